"""The one exception a person can fix.

`UsageError` is printed as one line without a traceback and ends the command with exit code 2. Everything else that
escapes is a defect of ours.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

# What a terminal may take for a command or for the direction of a text (controls but newline and tab, and marks), and
# halves of characters, which no stream takes.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class UsageError(Exception):
    """A mistake in what the user gave; the message says what was given, what is allowed, and what to do."""


def plain(text: str) -> str:
    """Text that no terminal obeys, whoever wrote it: control characters as `\\u001b`, which JSON reads back."""
    return _COMMANDS.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def in_short(message: str) -> str:
    """A message for the terminal: plain, and without the middle of a word of a thousand digits."""
    said = plain(message)
    return said if len(said) < 4000 else f"{said[:2000]} … {said[-1500:]}"


def nearest(given: str, allowed: Iterable[str]) -> str | None:
    """The allowed word most like `given`, or None when nothing is near."""
    found = difflib.get_close_matches(given.lower(), list(allowed), n=1, cutoff=0.5)
    return found[0] if found else None


def unknown(what: str, given: str, allowed: Iterable[str], hint: str = "") -> UsageError:
    """The error for a name that is not known: what was given, the nearest match, what is allowed, what to do."""
    names = sorted(allowed)
    match = nearest(given, names)
    parts = [f"unknown {what} {given!r}"]
    if match:
        parts.append(f"did you mean {match!r}?")
    parts.append(f"allowed: {', '.join(names) if names else 'none'}")
    if hint:
        parts.append(hint)
    return UsageError("; ".join(parts))

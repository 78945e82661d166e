"""The one exception a person can fix.

`UsageError` is printed as one line without a traceback and ends the command with exit code 2. Everything else that
escapes is a defect of ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageError(Exception):
    """A mistake in what the user gave; the message says what was given, what is allowed, and what to do."""


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

"""What the commands share: stored records, folders to write to, words for a person."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ropebench.errors import UsageError, plain


def stored_in(results: str, keep: Any = lambda _: True) -> tuple[list[Any], Any]:
    """Counting records and their sample rows. Raises UsageError when there are none."""
    from ropebench import store
    from ropebench.report.cells import samples_by_cell

    records = [record for record in store.newest_ok(store.read(results)) if keep(record)]
    if not records:
        raise UsageError(f"no records in {results!r}; measure something first: ropebench run --help")
    return records, samples_by_cell(records, store.samples(results))


def folder_named(word: str) -> Path:
    """An output folder, made where it is missing. Raises UsageError where it cannot be."""
    folder = Path(word)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"output folder {word!r} cannot be made: {error.strerror}") from None
    return folder


def quietly() -> None:
    """Keep libraries' bars and advice out of our output."""
    from ropebench.quiet import quiet

    quiet()


def say(text: str) -> None:
    """Tell a person at the terminal; what a program reads goes to stdout."""
    sys.stderr.write(plain(text))
    sys.stderr.flush()


class Plain:
    """A stream on which nothing that a record, a file name or an answer holds is a command to the terminal."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return int(self._stream.write(plain(text)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def unreadable(results: str) -> str | None:
    """What in a results folder is not as it should be: the first such line; None where all are."""
    from ropebench.store import everything
    from ropebench.verify import verdict

    try:
        found = verdict(everything(results)).fatal
    except UsageError:
        return None
    return str(found[0]) if found else None

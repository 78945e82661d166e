"""InfiniteBench's files: a JSON object a line, read by name, one line at a time.

Columns and types are stated, as the hub's data set needs it: inferred per file they clash, since labels are numbers in
one file and text in another, and a file may lack a column. Every label is read as text, which is what the stated types
make of it; `scoring.label_of` gives it the type that the official scorer compares.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ropebench.errors import UsageError

HUB = "xinrongzhang2022/InfiniteBench"
# longbook_qa_eng was edited in place between revisions (OpenBMB/InfiniteBench#12), so one is pinned.
REVISION = "90f0394333616266d9fe85824ceaf505093cbaa5"

FEATURES = {"id": "int64", "context": "string", "input": "string", "answer": "list[string]", "options": "list[string]"}


@dataclass(frozen=True)
class Row:
    """One row. `number` is its place in the file; `answers` are all labels, as text."""

    number: int
    context: str = field(repr=False)
    input: str
    answers: tuple[str, ...]
    options: tuple[str, ...] = ()
    id: int | None = None


@dataclass(frozen=True)
class Rows:
    """A file's rows by number. Only where each line begins is held: the largest file is over a gigabyte."""

    name: str
    file: Path
    starts: tuple[int, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, number: int) -> Row:
        with self.file.open("rb") as handle:
            handle.seek(self.starts[number])
            line = handle.readline()
        try:
            return row_of(number, json.loads(line))
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{self.name}: {self.file.name}: row {number} is not laid out as published "
                f"({type(error).__name__}: {error})"
            ) from None


@cache
def rows_of(name: str, file: Path) -> Rows:
    """The rows of a file, empty lines left out. Raises UsageError for one that cannot be read or has none."""
    starts, at = [], 0
    try:
        with file.open("rb") as handle:
            for line in handle:
                if line.strip():
                    starts.append(at)
                at += len(line)
    except OSError as error:
        raise UsageError(f"{name}: {file.name} cannot be read ({error.strerror})") from None
    if not starts:
        raise UsageError(f"{name}: {file.name} has no row")
    return Rows(name, file, tuple(starts))


def row_of(number: int, values: Mapping[str, Any]) -> Row:
    """A row from its JSON object. Missing options are none (one file of the hub lacks the column).

    Raises KeyError, TypeError or ValueError for another layout.
    """
    context = values["context"] if "context" in values else values["content"]
    asked = values["input"]
    if not isinstance(context, str) or not isinstance(asked, str):
        raise TypeError("context and input must be text")
    answers = texts(values["answer"])
    if not answers:
        raise ValueError("no answer")
    given = values.get("id")
    return Row(number, context, asked, answers, texts(values.get("options")), None if given is None else int(given))


def texts(value: Any) -> tuple[str, ...]:
    """A label or a list of them, each as text; a list within a list (math_calc's, in one layout) is taken out of it.

    >>> texts(44), texts([44]), texts(["44"]), texts(None)
    (('44',), ('44',), ('44',), ())
    """
    if value is None:
        return ()
    if isinstance(value, list):
        return tuple(text for part in value for text in texts(part))
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return (str(value),)
    raise TypeError(f"{value!r} is no label")

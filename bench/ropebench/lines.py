"""The lines of a results file as records or sample rows of the current schema; what is neither is an error that names
file and line."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import NoReturn

from ropebench.errors import UsageError, plain
from ropebench.record import SCHEMA, STATUSES, Json
from ropebench.upgrades import UPGRADES


def lines_of(
    name: str, raw: bytes, sample: bool, torn: Callable[[str], None], bad: Callable[[str], None] | None = None
) -> Iterator[tuple[str, Json]]:
    """The lines of file `name` with their places (file:line). `torn` is told of a last line that was cut off, `bad` of
    any other that cannot be read; without `bad` such a line raises UsageError."""
    name = plain(name)
    lines = raw.split(b"\n")
    last = lines.pop()  # what follows the last newline: nothing, or a line that was never finished
    if last.strip():
        try:
            json.loads(last)  # all of it but the newline is there
        except (ValueError, RecursionError):
            torn(f"{name}:{len(lines) + 1}: the last line is torn (a run was cut off); skipped")
        else:
            lines.append(last)
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"{name}:{number}"
            try:
                value = parsed(where, line, sample)
            except UsageError as error:
                if bad is None:
                    raise
                bad(str(error))
                continue
            yield where, value


def parsed(where: str, line: bytes, sample: bool) -> Json:
    """The line's object, upgraded to the current schema; `where` (file:line) stands in errors, `sample` says that it
    is to be a sample row. Raises UsageError for anything else."""
    # Not for every line: a number beyond float64 and half a character (a lone surrogate) are rare, and looking is slow.
    number = _finite if _LARGE.search(line) else None
    try:
        value = json.loads(line, parse_constant=_refuse, parse_float=number)
        if _HALF.search(line):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not a JSON record ({error}); mend or remove this line") from None
    if not isinstance(value, dict) or type(value.get("schema")) is not int or not isinstance(value.get("cell_id"), str):
        raise UsageError(f"{where}: not a ropebench record (no schema and cell_id)")
    if value["schema"] > SCHEMA:
        raise UsageError(f"{where}: schema {value['schema']} is newer than this ropebench reads ({SCHEMA}); upgrade it")
    while value["schema"] < SCHEMA:
        if value["schema"] not in UPGRADES:
            raise UsageError(f"{where}: schema {value['schema']} is not known")
        try:
            value = UPGRADES[value["schema"]](value)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{where}: not a whole record of schema {value['schema']} ({error!r})") from None
    if not _whole(value, sample):
        raise UsageError(f"{where}: not a whole ropebench record; mend or remove this line")
    record: Json = value
    return record


def _whole(value: Json, sample: bool) -> bool:
    """Whether a line has what reading relies on; the rest is as it was written."""
    if sample:
        hashed, scored, meta = value.get("prompt_sha256"), value.get("scores"), value.get("meta") or {}
        fine = type(value.get("index")) is int and isinstance(hashed, str) and isinstance(scored, dict)
        return fine and isinstance(meta, dict) and isinstance(meta.get("cluster"), str | int | None)
    outcome, condition = value.get("outcome"), value.get("condition")
    if value.get("kind") != "run":
        return isinstance(value.get("kind"), str)
    return isinstance(outcome, dict) and outcome.get("status") in STATUSES and isinstance(condition, dict)


_LARGE = re.compile(rb"[eE]\+?\d{3}")
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def _finite(word: str) -> float:
    return float(word) if math.isfinite(float(word)) else _refuse(word)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number in JSON")

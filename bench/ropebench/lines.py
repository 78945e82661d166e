"""One line of a results file as a record or a sample row of the current schema; what is neither is an error that names
file and line."""

from __future__ import annotations

import json
from typing import Any

from ropebench.errors import UsageError
from ropebench.record import SCHEMA, STATUSES, Json
from ropebench.upgrades import UPGRADES


def parsed(where: str, line: bytes, sample: bool) -> Json:
    """The line's object, upgraded to the current schema; `where` (file:line) stands in errors, `sample` says that it
    is to be a sample row. Raises UsageError for anything else."""
    try:
        value = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not a JSON record ({error}); mend or remove this line") from None
    if not isinstance(value, dict) or type(value.get("schema")) is not int or not isinstance(value.get("cell_id"), str):
        raise UsageError(f"{where}: not a ropebench record (no schema and cell_id)")
    if value["schema"] > SCHEMA:
        raise UsageError(f"{where}: schema {value['schema']} is newer than this ropebench reads ({SCHEMA}); upgrade it")
    while value["schema"] < SCHEMA:
        if value["schema"] not in UPGRADES:
            raise UsageError(f"{where}: schema {value['schema']} is not known")
        value = UPGRADES[value["schema"]](value)
    if not _whole(value, sample):
        raise UsageError(f"{where}: not a whole ropebench record; mend or remove this line")
    record: Json = value
    return record


def _whole(value: Json, sample: bool) -> bool:
    """Whether a line has what reading relies on; the rest is as it was written."""
    if sample:
        hashed, scored = value.get("prompt_sha256"), value.get("scores")
        return type(value.get("index")) is int and isinstance(hashed, str) and isinstance(scored, dict)
    outcome, condition = value.get("outcome"), value.get("condition")
    if value.get("kind") != "run":
        return isinstance(value.get("kind"), str)
    return isinstance(outcome, dict) and outcome.get("status") in STATUSES and isinstance(condition, dict)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a number in JSON")

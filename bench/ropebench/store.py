"""The only code that touches the results folder: append lines, read them back, say which record counts.

One run writes two files, `RUN.jsonl` (records) and `RUN.samples.jsonl` (sample rows), one write per line. Nothing is
edited in place; the newest `ok` record of a cell wins. A torn last line (a crash in mid-write) is reported and skipped;
any other bad line is an error with file and line.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ropebench.errors import UsageError
from ropebench.record import SCHEMA, Json, canonical

SAMPLES = ".samples.jsonl"

# One function per step, from a schema to the next; each has a golden file in tests/data.
UPGRADES: dict[int, Callable[[Json], Json]] = {}


def _warn(message: str) -> None:
    sys.stderr.write(f"ropebench: {message}\n")


def read(folder: str | Path, warn: Callable[[str], None] = _warn) -> list[Json]:
    """Every record in a results folder, oldest first, upgraded to the current schema. Missing folder: no records."""
    records = [line for file in _files(folder, samples=False) for line in _lines(file, warn)]
    return sorted(records, key=lambda record: str(record.get("created", "")))


def samples(
    folder: str | Path, cell_id: str | None = None, warn: Callable[[str], None] = _warn
) -> list[Json]:
    """Sample rows of one cell (None: of all cells), one per (cell, index): the newest."""
    newest: dict[tuple[str, int], Json] = {}
    for file in _files(folder, samples=True):
        for row in _lines(file, warn):
            if cell_id is None or row.get("cell_id") == cell_id:
                newest[row["cell_id"], row["index"]] = row
    return [newest[key] for key in sorted(newest)]


def newest_ok(records: Iterable[Json], kind: str = "run") -> list[Json]:
    """One record per cell: its newest `ok` one with the most samples, else its newest failure."""
    chosen: dict[str, Json] = {}
    for record in records:
        if record.get("kind") != kind:
            continue
        old = chosen.get(record["cell_id"])
        if old is None or _ok(record) or not _ok(old):
            chosen[record["cell_id"]] = record
    return list(chosen.values())


def _ok(record: Json) -> bool:
    return bool(record["outcome"]["status"] == "ok")


def _files(folder: str | Path, samples: bool) -> list[Path]:
    folder = Path(folder)
    if not folder.exists():
        return []
    if not folder.is_dir():
        raise UsageError(f"results {folder.name!r} is not a folder")
    return sorted(f for f in folder.glob("*.jsonl") if f.name.endswith(SAMPLES) == samples)


def _lines(file: Path, warn: Callable[[str], None]) -> Iterator[Json]:
    raw = file.read_bytes()
    lines = raw.split(b"\n")
    torn = lines.pop()  # what follows the last newline: nothing, or a line that was never finished
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _parsed(file, number, line)
    if torn.strip():
        warn(f"{file.name}:{len(lines) + 1}: the last line is torn (a run was cut off); skipped")


def _parsed(file: Path, number: int, line: bytes) -> Json:
    where = f"{file.name}:{number}"
    try:
        value = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not a JSON record ({error}); mend or remove this line") from None
    if not isinstance(value, dict) or not isinstance(value.get("schema"), int) or "cell_id" not in value:
        raise UsageError(f"{where}: not a ropebench record (no schema and cell_id)")
    if value["schema"] > SCHEMA:
        raise UsageError(f"{where}: schema {value['schema']} is newer than this ropebench reads ({SCHEMA}); upgrade it")
    while value["schema"] < SCHEMA:
        if value["schema"] not in UPGRADES:
            raise UsageError(f"{where}: schema {value['schema']} is not known")
        value = UPGRADES[value["schema"]](value)
    return value


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a number in JSON")


class Writer:
    """Appends one run's lines. Files appear with the first line; a folder that cannot be written is said at once."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        probe = self.folder / f".{self.run_id}.probe"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise UsageError(f"results folder {str(folder)!r} cannot be written: {error.strerror}") from None

    @property
    def path(self) -> Path:
        return self.folder / f"{self.run_id}.jsonl"

    def record(self, record: Json) -> None:
        """Append a record."""
        append(self.path, record)

    def sample(self, row: Json) -> None:
        """Append a sample row."""
        append(self.folder / f"{self.run_id}{SAMPLES}", row)


def append(path: str | Path, value: Json) -> None:
    """Append one line to a results file in one write, and have it on the disk before returning.

    Raises OSError when not all of it was written.
    """
    data = (canonical(value) + "\n").encode()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        written = os.write(handle, data)
        if written != len(data):
            raise OSError(f"{Path(path).name}: only {written} of {len(data)} bytes were written (disk full?)")
        os.fsync(handle)
    finally:
        os.close(handle)

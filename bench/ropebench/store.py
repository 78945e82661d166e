"""The only code that touches the results folder: append lines, read them back, say which record counts.

One run writes two files, `RUN.jsonl` (records) and `RUN.samples.jsonl` (sample rows), one write per line. Nothing is
edited in place; the newest `ok` record of a cell wins. A torn last line (a crash in mid-write) is reported and skipped;
any other bad line is an error with file and line.

Samples that were measured as one set carry one `series`: the run that began it. Runs that go on with the set keep it,
and a rerun begins another, so that a rerun that is cut off never mixes its scores with older ones.

Here too: what a folder already holds (`Stored`), and whether a cell is done.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ropebench.errors import UsageError
from ropebench.lines import lines_of
from ropebench.record import Json, canonical

if TYPE_CHECKING:
    from ropebench.cell import Cell

SAMPLES = ".samples.jsonl"

_LOG = logging.getLogger("ropebench")


class NotStored(UsageError):
    """A result could not be written: the run ends, since going on would lose what it measures."""


def read(folder: str | Path, warn: Callable[[str], None] = _LOG.warning) -> list[Json]:
    """Every record in a results folder, oldest first, upgraded to the current schema. Missing folder: no records."""
    records = [line for file in _files(folder, samples=False) for line in _lines(file, warn)]
    return sorted(records, key=lambda record: str(record.get("created", "")))


def sample_sets(
    folder: str | Path, cell_id: str | None = None, warn: Callable[[str], None] = _LOG.warning
) -> dict[str, dict[str | None, dict[int, Json]]]:
    """Sample rows by cell, series and index (cell_id None: of all cells), the newest of each index."""
    found: dict[str, dict[str | None, dict[int, Json]]] = {}
    for file in _files(folder, samples=True):
        for row in _lines(file, warn):
            if cell_id is None or row["cell_id"] == cell_id:
                found.setdefault(row["cell_id"], {}).setdefault(row.get("series"), {})[row["index"]] = row
    return found


def samples(folder: str | Path, cell_id: str | None = None, warn: Callable[[str], None] = _LOG.warning) -> list[Json]:
    """Sample rows of one cell (None: of all cells), one per (cell, index): the newest of the series that counts, which
    is that of the cell's counting record, or, where there is no record yet, the newest."""
    chosen = {r["cell_id"]: r.get("series") for r in newest_ok(read(folder, lambda _: None))}
    found = sample_sets(folder, cell_id, warn)
    kept = {cell: sets.get(chosen.get(cell, [*sets][-1]), {}) for cell, sets in found.items()}
    return [kept[cell][index] for cell in sorted(kept) for index in sorted(kept[cell])]


def newest_ok(records: Iterable[Json], kind: str = "run") -> list[Json]:
    """One record per cell, of records in the order of `read`: its newest `ok` one, else its newest failure. A rerun
    with fewer samples does not take the place of more evidence."""
    chosen: dict[str, Json] = {}
    for record in records:
        if record.get("kind") != kind:
            continue
        old = chosen.get(record["cell_id"])
        if old is None or not _ok(old) or (_ok(record) and _scored(record) >= _scored(old)):
            chosen[record["cell_id"]] = record
    return list(chosen.values())


def ids_of(records: Iterable[Json]) -> frozenset[str]:
    """The ids of records; those of tests may have none."""
    return frozenset(str(record.get("record_id")) for record in records)


def _scored(record: Json) -> int:
    return int(record["condition"]["n_scored"])


def _ok(record: Json) -> bool:
    return bool(record["outcome"]["status"] == "ok")


def _files(folder: str | Path, samples: bool) -> list[Path]:
    folder = Path(folder)
    try:
        if not folder.exists():
            return []
        if not folder.is_dir():
            raise UsageError(f"results {folder.name!r} is a file, not a folder")
        return sorted(f for f in folder.glob("*.jsonl") if f.name.endswith(SAMPLES) == samples)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise UsageError(f"results folder {folder.name!r} cannot be read: {error}") from None


def fingerprint(folder: str | Path, but: str = "") -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of a folder's files, without those of run `but`: equal where nothing was written."""
    found = []
    for file in [*_files(folder, samples=False), *_files(folder, samples=True)]:
        with suppress(OSError):
            if not but or not file.name.startswith(but):
                found.append((file.name, file.stat().st_size, file.stat().st_mtime_ns))
    return tuple(found)


def _lines(file: Path, torn: Callable[[str], None]) -> Iterator[Json]:
    for _, value in lines_of(file.name, _bytes(file), file.name.endswith(SAMPLES), torn):
        yield value


def _bytes(file: Path) -> bytes:
    """A results file's content. Raises UsageError for a link, which may lead anywhere, and for what is no file."""
    try:
        if file.is_symlink() or not file.is_file():
            raise UsageError(f"{file.name}: not a plain file; results files are not read through links: copy it here")
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file.name}: cannot be read: {error.strerror}") from None


@dataclass(frozen=True)
class Found:
    """All lines of a results folder, each with its place (file:line); `unread` says which cannot be read and why, and
    `torn` which were cut off in the middle."""

    records: list[tuple[str, Json]] = field(default_factory=list)
    rows: list[tuple[str, Json]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)


def everything(folder: str | Path) -> Found:
    """What a results folder holds, line by line, however damaged. Raises UsageError for one that is not there."""
    if not os.path.isdir(folder):  # unlike pathlib's, never raises, whatever the name
        raise UsageError(f"no results folder {str(folder)!r}; name one that `ropebench run` wrote")
    found = Found()
    for samples_too, into in ((False, found.records), (True, found.rows)):
        for file in _files(folder, samples_too):
            try:
                raw = _bytes(file)
            except UsageError as error:
                found.unread.append(str(error))
                continue
            into += lines_of(file.name, raw, samples_too, found.torn.append, found.unread.append)
    return found


@dataclass(frozen=True)
class Offered:
    """A results file from elsewhere with the sample rows beside it: its lines, and both files' bytes by name."""

    records: list[Json]
    rows: list[Json]
    files: dict[str, bytes]


def offered(word: str | Path) -> Offered:
    """A file NAME.jsonl and NAME.samples.jsonl beside it. Raises UsageError for a line that cannot be read, the last
    one too: a file that is handed on is whole."""
    path = Path(str(word).replace(SAMPLES, ".jsonl"))
    if path.suffix != ".jsonl" or not os.path.isfile(path):
        raise UsageError(f"{str(word)!r}: no results file; name a run's .jsonl (its .samples.jsonl lies beside it)")

    def refuse(torn: str) -> None:
        raise UsageError(f"{torn}; a file that is handed on must be whole")

    beside = path.with_name(path.stem + SAMPLES)
    both = [one for one in (path, beside) if one.is_file()]
    rows = list(_lines(beside, refuse)) if beside in both else []
    return Offered(list(_lines(path, refuse)), rows, {one.name: one.read_bytes() for one in both})


def every_sample(folder: str | Path, cells: set[str]) -> list[Json]:
    """All stored rows of some cells, of whichever series."""
    found = (row for file in _files(folder, samples=True) for row in _lines(file, lambda _: None))
    return [row for row in found if row["cell_id"] in cells]


def adopt(folder: str | Path, files: Mapping[str, bytes]) -> list[str]:
    """Put files into a results folder and return the names of those that were not there yet. Raises UsageError where
    one of that name holds something else: nothing is overwritten, and then nothing is written."""
    folder = Path(folder)
    there = {name: (folder / name).read_bytes() for name in files if (folder / name).exists()}
    other = [name for name, data in there.items() if data != files[name]]
    if other:
        raise UsageError(f"{', '.join(other)}: the results folder has another file of that name; rename one of them")
    new = [name for name in files if name not in there]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in reversed(new):  # sample rows first, so that no record stands without them
            with (folder / name).open("xb") as file:
                file.write(files[name])
    except OSError as error:
        raise UsageError(f"results folder {str(folder)!r} cannot be written: {error.strerror}") from None
    return new


@dataclass
class Stored:
    """What a results folder already holds: the counting record per cell, and the sample rows that count. A rerun
    starts from an empty one."""

    records: dict[str, Json] = field(default_factory=dict)
    rows: dict[str, dict[int, Json]] = field(default_factory=dict)
    folder: Path | None = field(default=None, compare=False)
    known: frozenset[str] | None = field(default=None, compare=False)  # ids of all records there were

    @classmethod
    def read(cls, folder: str | Path, warn: Callable[[str], None] = _LOG.warning) -> Stored:
        records, rows = read(folder, warn), dict[str, dict[int, Json]]()
        for row in samples(folder, warn=warn):
            rows.setdefault(row["cell_id"], {})[row["index"]] = row
        return cls({one["cell_id"]: one for one in newest_ok(records)}, rows, Path(folder), ids_of(records))

    @classmethod
    def set_aside(cls, folder: str | Path) -> Stored:
        """What a rerun starts from: nothing, though it is known which records there were."""
        return cls(known=ids_of(read(folder)))

    def again(self) -> Stored:
        """The same folder as it is now; what a rerun starts from stays empty."""
        return self if self.folder is None else Stored.read(self.folder, lambda _: None)

    def series(self, cell: Cell, run_id: str) -> str | None:
        """The series that samples of a cell belong to when run `run_id` measures them: the stored one that it goes on
        with (null in lines of schema 1), else its own."""
        for line in (*self.rows.get(cell.id, {}).values(), self.records.get(cell.id)):
            if line is not None:
                return line.get("series")
        return run_id

    def done(self, cell: Cell) -> bool:
        """Whether an ok record with the wanted samples, or with all that the source has, is stored."""
        record = self.records.get(cell.id)
        if record is None or not _ok(record):
            return False
        had = record["condition"]
        return bool(had["n_requested"] >= cell.n or had["n_scored"] + had["n_skipped"] < had["n_requested"])


class Writer:
    """Appends one run's lines. Files appear with the first line; a folder that cannot be written is said at once.

    Raises UsageError for such a folder, and NotStored when a line cannot be written later.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        # To the microsecond, so that runs in the order of their names are runs in the order of their time.
        self.run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{secrets.token_hex(3)}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.probe()
        except FileExistsError:
            raise UsageError(f"results {str(folder)!r} is a file, not a folder; name another with --results") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"results folder {str(folder)!r} cannot be written: {reason}; name another with --results"
            ) from None

    @property
    def path(self) -> Path:
        return self.folder / f"{self.run_id}.jsonl"

    def probe(self) -> None:
        """Make and remove a file. Raises OSError where the folder cannot be written."""
        probe = self.folder / f".{self.run_id}.probe"
        probe.touch()
        probe.unlink()

    def record(self, record: Json) -> None:
        """Append a record."""
        append(self.path, record)

    def sample(self, row: Json) -> None:
        """Append a sample row."""
        append(self.folder / f"{self.run_id}{SAMPLES}", row)


def append(path: str | Path, value: Json) -> None:
    """Append one line to a results file in one write, and have it on the disk before returning.

    A file to which many runs append (bench.jsonl) may end in the middle of a line, where one was cut off. The torn end
    is taken away, since the new line would be glued to it; a line that lacks only its newline gets it.

    Raises NotStored when not all of it could be written; the file is then as it was.
    """
    data = (canonical(value) + "\n").encode()
    path = Path(path)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            data = _mended(path, handle) + data
            before = os.fstat(handle).st_size
            written = os.write(handle, data)
            if written != len(data):
                with suppress(OSError):  # half a line in the middle of a file would spoil it
                    os.ftruncate(handle, before)
                raise NotStored(f"{path.name}: only {written} of {len(data)} bytes could be written (disk full?)")
            os.fsync(handle)
        finally:
            os.close(handle)
        if not before and os.name == "posix":  # a new file is on the disk only when its folder's entry is
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                with suppress(OSError):  # some network file systems cannot
                    os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        raise NotStored(f"{path.name} cannot be written: {error.strerror}; what came before is stored") from None


def _mended(path: Path, handle: int) -> bytes:
    """What must stand before a new line: nothing, or the newline that the last one lacks. A torn end is taken away."""
    size = os.fstat(handle).st_size
    if size:
        os.lseek(handle, -1, os.SEEK_END)
    if not size or os.read(handle, 1) == b"\n":
        return b""
    tail = path.read_bytes().rpartition(b"\n")[2]
    try:
        json.loads(tail)
    except ValueError:
        _LOG.warning("%s: its last line was torn (a run was cut off); taken away", path.name)
        os.ftruncate(handle, size - len(tail))
        return b""
    return b"\n"

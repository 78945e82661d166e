"""Which run measures which cell, when several work on one results folder: files in its `.claims` folder.

A claim is a file `CELL.NUMBER`, created in a way that only one process can win, whose time is renewed while its run is
alive. It is stale when its process is gone (told at once on the same machine) or when it was not renewed for `LEASE`
seconds by the watcher's own clock, so that the clocks of two machines are never compared. A stale claim is not
replaced: its successor takes the next number, and counts only if nothing else has appeared meanwhile. No host name is
written, only a hash that tells one running machine (and container) from another.

A process that was stopped for longer than the lease finds its claim gone, and then writes nothing more of that cell.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ropebench.store import NotStored

FOLDER = ".claims"
LEASE = 180.0  # seconds without a sign of life after which a claim on another machine is stale
RENEWAL = 20.0  # seconds between two signs of life

_Seen = dict[str, tuple[int, str]]  # file name → its time (ns) and text


@dataclass
class Claims:
    """The claims of one run in a results folder, renewed by a thread until `close`.

    `take`, `holds` and `give_back` raise NotStored where the claims folder cannot be used.
    """

    results: Path
    run_id: str
    lease: float = LEASE
    renewal: float = RENEWAL
    held: dict[str, Path] = field(default_factory=dict)
    _known: dict[str, set[str]] = field(default_factory=dict)  # our own file, and the stale ones that go with it
    _watched: dict[str, tuple[tuple[int, str], float]] = field(default_factory=dict)
    _closed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def folder(self) -> Path:
        return self.results / FOLDER

    def take(self, cell_id: str) -> bool:
        """Claim a cell. False where another run that is alive has it."""
        if cell_id in self.held:
            return True
        try:
            self.folder.mkdir(exist_ok=True)
            before = self._of(cell_id)
            if any(not self._stale(name, seen) for name, seen in before.items()):
                return False
            who = self._text.encode()  # made before the file is: a claim that a kill leaves empty waits for its lease
            number = max((int(name.rpartition(".")[2]) for name in before), default=-1) + 1
            own = self.folder / f"{cell_id}.{number}"
            try:
                handle = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            except (FileExistsError, FileNotFoundError):  # another was first, or took the emptied folder away
                return False
            try:
                os.write(handle, who)
            finally:
                os.close(handle)
            after = self._of(cell_id)
            if any(before.get(name) != seen for name, seen in after.items() if name != own.name):
                own.unlink(missing_ok=True)  # another came at the same time
                return False
        except OSError as error:
            raise NotStored(f"{FOLDER} in the results folder cannot be used: {error.strerror}") from None
        self.held[cell_id], self._known[cell_id] = own, {own.name, *before}
        self._start()
        return True

    def holds(self, cell_id: str) -> bool:
        """Whether the claim is still this run's own; read anew, since another may have taken it for stale."""
        own = self.held.get(cell_id)
        try:
            if own is None or own.read_text() != self._text:
                return False
            return self._of(cell_id).keys() <= self._known[cell_id]
        except OSError:
            return False

    def give_back(self, cell_ids: Iterable[str]) -> None:
        """Drop claims, and with them the stale ones that they took over; our own goes last."""
        for cell_id in cell_ids:
            own, known = self.held.pop(cell_id, None), self._known.pop(cell_id, set())
            with suppress(OSError):
                if own is not None and own.read_text() == self._text:
                    for name in known - {own.name}:
                        (self.folder / name).unlink(missing_ok=True)
                    own.unlink(missing_ok=True)

    def close(self) -> None:
        """Drop all claims and end the renewal."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self.give_back([*self.held])
        with suppress(OSError):
            left = [*self.folder.iterdir()]
            if all(gone(path.read_text()) for path in left):  # what killed runs left, and nobody else is here
                for path in left:
                    path.unlink(missing_ok=True)
                self.folder.rmdir()

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def _text(self) -> str:
        who = {"run_id": self.run_id, "machine": machine(), "pid": os.getpid(), "started": started(os.getpid())}
        return json.dumps(who, sort_keys=True)

    def _of(self, cell_id: str) -> _Seen:
        """The claims on a cell. Each is opened, since network file systems look at the server only then."""
        found: _Seen = {}
        for path in self.folder.glob(f"{cell_id}.*"):
            if path.suffix[1:].isdigit():
                with suppress(FileNotFoundError), path.open() as handle:
                    found[path.name] = (os.fstat(handle.fileno()).st_mtime_ns, handle.read())
        return found

    def _stale(self, name: str, seen: tuple[int, str]) -> bool:
        """Whether nobody stands behind a claim any more."""
        if gone(seen[1]):
            return True
        last, since = self._watched.get(name, (None, 0.0))
        if last != seen:
            self._watched[name] = (seen, time.monotonic())
            return False
        return time.monotonic() - since > self.lease

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._renew, name="claims", daemon=True)
            self._thread.start()

    def _renew(self) -> None:
        while not self._closed.wait(self.renewal):
            for own in [*self.held.values()]:
                with suppress(OSError):
                    os.utime(own)


def gone(text: str) -> bool:
    """Whether a claim's process is known to be no more: of this machine, and not running or another since. A claim
    that is not written out yet, or of another machine, is left to the lease."""
    try:
        who: dict[str, Any] = json.loads(text)
        here, pid, then = who["machine"] == machine(), int(who["pid"]), who["started"]
    except (ValueError, TypeError, KeyError):
        return False
    if not here or os.name != "posix" or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    now = started(pid)
    return now is not None and now != then


def started(pid: int) -> str | None:
    """When a process began, in the kernel's ticks, or "ended" for one that its parent has not looked after; None where
    that cannot be told (not on Linux). Process ids are used again, these times are not."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "ended" if words[0] in "ZX" else words[19]
    except (OSError, IndexError):
        return None


@cache
def machine() -> str:
    """A hash that tells one start of one machine from another, and one container's processes from another's."""
    parts = [platform.node()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

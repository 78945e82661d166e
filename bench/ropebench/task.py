"""What a task is: named, versioned, with metrics; it yields examples and scores outputs.

A task file holds one class. It is found by the registry, and nothing else is edited:

    @dataclass(frozen=True)
    class Passkey(Task):
        name, version = "passkey", 1
        metrics = (Metric("recall", "higher"),)
        ...

The engine decides how to run an example; the task only says what it needs: generated text (`max_new_tokens`), the
negative log-likelihood of spans (`windows`), or both on the same sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from inspect import get_annotations
from math import isfinite
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from ropebench.errors import UsageError, unknown

if TYPE_CHECKING:
    from ropebench.corpus import Corpus
    from ropebench.prompt import Encoder


@dataclass(frozen=True)
class Metric:
    """One number a task reports. `low`–`high` is its range (None: open), `chance` what guessing scores.

    `derived` marks a metric that the cell computes from the samples' mean (perplexity = exp of the mean nll): it is
    `(function name, sample metric)`, and only "exp" exists so far.
    """

    name: str
    direction: Literal["higher", "lower"]
    low: float | None = 0.0
    high: float | None = 1.0
    chance: float | None = 0.0
    unit: str = ""
    derived: tuple[str, str] | None = None


@dataclass(frozen=True)
class Window:
    """One forward pass for likelihood: `ids` fed to the model; ids[first_scored:] are scored, each exactly once.

    `first_scored` ≥ 1, since the first id of a window has no prediction.
    """

    ids: tuple[int, ...]
    first_scored: int = 1


@dataclass(frozen=True)
class Example:
    """One sample. `ids` are all ids fed as the prompt, BOS and chat template included (may be empty when only
    windows are wanted). `targets` are the accepted answers. `meta` goes into the sample row; the keys `depth`
    (0–1, where the needle really is) and `cluster` (samples that share a haystack or a document) have a meaning to
    the reports.
    """

    ids: tuple[int, ...] = ()
    targets: tuple[str, ...] = ()
    max_new_tokens: int = 0
    stop: tuple[str, ...] = ()
    windows: tuple[Window, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    skip: str | None = None  # a reason: the example does not fit; it is recorded and counted apart, never cut

    @property
    def tokens(self) -> int:
        """Ids fed to the model plus the answer budget (the sample's actual length)."""
        return max([len(self.ids) + self.max_new_tokens, *(len(w.ids) for w in self.windows)])


@dataclass(frozen=True)
class Output:
    """What the engine returns for an example: the new text and ids, and per window the scored tokens' NLL (nats)."""

    text: str = ""
    ids: tuple[int, ...] = ()
    nll: tuple[Sequence[float], ...] = ()


@dataclass(frozen=True)
class Task:
    """Base of every task. A subclass is a frozen dataclass whose fields are its parameters.

    Class attributes: `name`, `version` (raised whenever a score could change), `metrics` (the first is primary),
    `scorer` (the scorer's own name), `minimum_length` (tokens), `default_n`, `needs_corpus`, `gated`, `summary`,
    `source`. A task with the metrics `context_nll` and `exact_match` gets a table of their dissociation.
    """

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1
    metrics: ClassVar[tuple[Metric, ...]] = ()
    scorer: ClassVar[str] = ""
    minimum_length: ClassVar[int] = 0
    default_n: ClassVar[int] = 10
    needs_corpus: ClassVar[bool] = False
    default_docs: ClassVar[str | None] = None  # the corpus word used when --docs is not given
    gated: ClassVar[bool] = False  # True: scores say nothing where the unmodified model is at chance inside its window
    chat: ClassVar[bool] = True  # False: plain text whatever the chat-template setting (likelihood of documents)
    summary: ClassVar[str] = ""
    source: ClassVar[str] = ""

    def examples(self, length: int, encoder: Encoder, seed: int, corpus: Corpus | None = None) -> Iterator[Example]:
        """An endless (or, for fixed data, finite) reproducible stream; sample i depends on (seed, i) alone.

        With a further parameter `start: int = 0` it begins at that sample, and those before it need not be made.
        """
        raise TypeError(f"task {self.name!r} does not define examples()")

    def score(self, example: Example, output: Output) -> dict[str, float]:
        """Metric values of one sample, by name; a derived metric has none, another may be left out."""
        raise TypeError(f"task {self.name!r} does not define score()")

    def default_lengths(self, usual: Sequence[int]) -> Sequence[int]:
        """The lengths where none are asked for, out of the usual ones, which rise."""
        return usual

    def on_this_machine(self) -> Task:
        """The task for a run with --offline: one that fetches data has a field `offline`, which is then true."""
        return replace(self, **{"offline": True}) if any(f.name == "offline" for f in fields(self)) else self

    def resolved(self, lengths: Sequence[int], corpus: Corpus | None = None) -> Task:
        """The task with defaults that depend on the sweep filled in (such as a document filter = longest length)."""
        return self

    def docs(self) -> str | None:
        """The corpus word used where --docs is not given."""
        return self.default_docs

    def scorer_name(self) -> str:
        """The name of the scorer in use; two scorers are never compared under one name."""
        return self.scorer

    def variant_name(self) -> str:
        """What follows the task's name in a label, such as `number` in niah:number."""
        return ""

    @property
    def primary(self) -> Metric:
        return self.metrics[0]

    @property
    def params(self) -> dict[str, Any]:
        """The parameters as plain JSON values; they are part of a cell's identity. A field with compare=False is none:
        where a file is says nothing about the numbers."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.compare}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def with_params(kind: str, cls: type[Any], params: Mapping[str, str]) -> Any:
    """Build a task or method class from command-line words, each read as its field's own type.

    Raises UsageError for an unknown or missing parameter, and for a value that the field's type does not accept.
    """
    known = {f.name: f for f in fields(cls)}
    loose = [n for n, t in get_annotations(cls).items() if n not in known and "ClassVar" not in str(t)]
    if loose:
        raise UsageError(f"{kind} {cls.name!r}: {loose[0]} is no parameter yet; write @dataclass(frozen=True) above it")
    try:
        types = get_type_hints(cls)
    except NameError as error:
        raise UsageError(f"{kind} {cls.name!r}: the type of a parameter cannot be read ({error})") from None
    values: dict[str, Any] = {}
    for key, word in params.items():
        if key not in known:
            raise unknown(f"parameter of {kind} {cls.name!r}:", key, known)
        values[key] = _parse(f"{kind} {cls.name!r}: {key}", word, types[key])
    required = [n for n, f in known.items() if f.init and f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in required if name not in values]
    if missing:
        raise UsageError(f"{kind} {cls.name!r} needs {', '.join(missing)}: write {cls.name}:{missing[0]}=VALUE")
    return cls(**values)


# What a word for a parameter of each type must be.
WANTS = {bool: "true or false", int: "a whole number", float: "a number", tuple: "numbers with / between them"}


def _parse(what: str, word: str, wanted: Any) -> Any:
    """One command-line word as a value of the type `wanted`; `what` it is for begins the message of an error."""
    choices = get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,)
    if NoneType in choices and word.lower() == "none":
        return None
    wanted = next(choice for choice in choices if choice is not NoneType)
    kind = get_origin(wanted) or wanted
    if kind is Literal:
        allowed = {str(value): value for value in get_args(wanted)}
        if word not in allowed:
            raise unknown(f"value of {what}:", word, allowed)
        return allowed[word]
    try:
        if kind is bool:
            return {"true": True, "false": False, "1": True, "0": False, "on": True, "off": False}[word.lower()]
        if kind is int:
            return parse_length(word)
        if kind is float:
            return _number(word)
        if kind is tuple:
            return tuple(_number(part) for part in word.split("/"))
    except (ValueError, KeyError):
        none = " (or none)" if NoneType in choices else ""
        raise UsageError(f"{what}={word!r} is not {WANTS[kind]}{none}") from None
    if kind is str:
        return word
    raise UsageError(f"{what} is of a type ({wanted}) that cannot be given as a word")


def _number(word: str) -> float:
    value = float(word)
    if not isfinite(value):
        raise ValueError(word)
    return value


def parse_length(word: str) -> int:
    """Tokens from '32768', '32k' or '32K' (k = 1024). Raises ValueError for anything else.

    >>> parse_length("32k")
    32768
    """
    word = word.strip().lower()
    return int(word[:-1]) * 1024 if word.endswith("k") else int(word)

"""From what was asked (a `Sweep`: flags or a TOML file) to `Cell`s, each with an identity that decides "already done".

Everything that can be wrong with a request is said here, before any weights are loaded.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ropebench.corpus import Corpus, open_corpus
from ropebench.errors import UsageError, unknown
from ropebench.geometry import RopeGeometry
from ropebench.methods import Method, Native
from ropebench.model import ModelCard, card, choose_device, choose_dtype, find
from ropebench.prompt import BOS_RULES
from ropebench.record import Json, digest
from ropebench.registry import Entry, Registry, sweeps
from ropebench.task import Task, parse_length

PerTask = Mapping[str, Any]


@dataclass(frozen=True)
class Sweep:
    """What was asked. Words are as on the command line; `lengths`, `n` and `docs` may be mappings by task name."""

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
    attention: str = "sdpa"
    offline: bool = False
    trust_remote_code: bool = False
    plugins: tuple[str, ...] = ()

    @classmethod
    def from_toml(cls, word: str) -> Sweep:
        """A sweep file by path, or a built-in one by name. Unknown keys are errors with the nearest match."""
        built_in = sweeps()
        path = built_in.get(word) or Path(word)
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise unknown("sweep", word, built_in, "or a TOML file") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"sweep {path.name}: {error}") from None
        known = {f.name for f in fields(cls)}
        values = {}
        for key, value in table.items():
            if key not in known:
                raise unknown(f"key in sweep {path.name}:", key, known)
            values[key] = tuple(value) if key in ("methods", "tasks", "plugins") else value
        for key in ("target", "trained_length"):
            if key in values:
                values[key] = length_of(values[key])
        return cls(**values)


@dataclass(frozen=True, eq=False)
class Cell:
    """One number to measure, with all that it depends on. `n` is wanted, not part of the identity."""

    card: ModelCard
    geometry: RopeGeometry
    base: str
    device: str
    dtype: str
    attention: str
    method: Method
    method_code: str | None
    factor: float | None
    factor_rule: str
    task: Task
    task_code: str | None
    corpus: Corpus | None
    length: int
    seed: int
    bos: str
    chat: bool
    n: int
    trust_remote_code: bool = False

    @cached_property
    def identity(self) -> Json:
        """Everything the number depends on, as JSON; `id` is its hash."""
        table = self.method.frequencies(self.geometry, self.factor or 1.0, self.length)
        # Seven digits: the float32 that the model is given, and the same on every platform's pow().
        values = [f"{value:.6e}" for value in np.float32(table.inv_freq)] + [f"{table.attention_factor:.6e}"]
        return {
            "model": {
                "id": self.card.id,
                "revision": self.card.revision,
                "trained_length": self.geometry.trained_length,
                "dtype": self.dtype,
                "attention": self.attention,
                "quantization": None,
            },
            "method": {
                "name": self.method.name,
                "version": self.method.version,
                "params": self.method.params,
                "code": self.method_code,
                "factor": self.factor,
                "base": self.base,
                "frequencies": digest(values),
            },
            "task": {
                "name": self.task.name,
                "version": self.task.version,
                "params": self.task.params,
                "code": self.task_code,
                "scorer": self.task.scorer_name(),
                "corpus": self.corpus.identity if self.corpus else None,
            },
            "length": self.length,
            "seed": self.seed,
            "bos": self.bos,
            "chat_template": self.chat,
        }

    @cached_property
    def id(self) -> str:
        return digest(self.identity)

    @property
    def method_label(self) -> str:
        """Name, non-default parameters and factor: `yarn:beta_fast=16.0×4`."""
        words = [self.method.name, *(f"{k}={_short(v)}" for k, v in self.method.set_params.items())]
        return ":".join(words) + (f"×{self.factor:g}" if self.factor is not None else "")

    @property
    def task_label(self) -> str:
        """Name, variant and corpus: `niah:number[python-docs-3.11.7]`."""
        variant = self.task.variant_name()
        return self.task.name + (f":{variant}" if variant else "") + (f"[{self.corpus.label}]" if self.corpus else "")


def _short(value: Any) -> str:
    return f"<{len(value)} values>" if isinstance(value, list) else str(value)


@dataclass(frozen=True)
class Plan:
    """Cells in the order in which they run, and what a person should know (`notes`)."""

    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    sweep: Sweep = field(default_factory=Sweep)


def length_of(word: Any) -> int:
    """Tokens from 32768, '32768' or '32k'. Raises UsageError."""
    try:
        value = parse_length(str(word))
    except ValueError:
        raise UsageError(f"length {word!r} is not a number of tokens; write 32768 or 32k") from None
    if value < 1:
        raise UsageError(f"length {word!r} must be at least 1 token")
    return value


def make_plan(sweep: Sweep, corpora: bool = True) -> Plan:
    """Resolve names, lengths, factors and corpora into cells. Reads configs and corpora, loads no weights; with
    `corpora=False` no long text is opened (its cells can be looked at, not run).

    Raises UsageError for anything that cannot be run as asked.
    """
    registry = Registry.load(sweep.plugins)
    methods = [registry.build("method", word) for word in sweep.methods]
    tasks = [registry.build("task", word) for word in sweep.tasks]
    if not tasks:
        raise UsageError("no task: give --tasks, for example --tasks proofpile,niah")
    _check_words(sweep, [entry.name for _, entry in tasks])
    if not sweep.model:
        raise UsageError("no model: give --model NAME (see ropebench list models), a folder, or a hub id")
    spec = find(sweep.model, sweep.models, sweep.revision)
    asked = {entry.name: _lengths(sweep, entry.name) for _, entry in tasks}
    for task, entry in tasks:
        for length in asked[entry.name] or ():
            _check_minimum(task, length)
    device = choose_device(sweep.device)
    dtype = choose_dtype(sweep.dtype, device)
    model = card(spec, sweep.trained_length, sweep.offline, sweep.trust_remote_code)
    geometry = model.geometry
    if sweep.base == "native":
        geometry = geometry.on_base(Native().frequencies(geometry, 1.0, geometry.extended_length))
    trained = geometry.trained_length
    default = tuple(int(trained * share) for share in (0.5, 1, 2, 4))
    lengths = {name: given or default for name, given in asked.items()}
    target = sweep.target or max(max(given) for given in lengths.values())
    notes: list[str] = []
    baseline = "native" if model.geometry.shipped else "none"
    rows = _rows(registry, methods, baseline if sweep.baseline else None)
    chat = {"on": True, "off": False, "auto": spec.instruct}[sweep.chat_template]
    cells: list[Cell] = []
    for method, method_entry in rows:
        for task, task_entry in tasks:
            corpus = _corpus(sweep, task) if corpora else None
            task = task.resolved(lengths[task_entry.name])
            # Longest first: a likelihood task's shorter lengths are then read off the longest pass.
            for length in sorted(lengths[task_entry.name], reverse=True):
                factor, rule = factor_of(sweep, method, trained, target, length)
                if method.scales and factor == 1.0 and not method.length_dependent:
                    notes.append(
                        f"factor 1 at length {length} (trained length {trained}): every method equals the unmodified "
                        "model there, so only the baseline is run"
                    )
                    continue
                own = model.geometry if method.name == "native" else geometry
                cells.append(
                    Cell(
                        model, own, sweep.base, device, dtype, sweep.attention,
                        method, method_entry.code, factor, rule,
                        task, task_entry.code, corpus, length, sweep.seed,
                        sweep.bos, chat and task.chat,
                        _per_task(sweep.n, task_entry.name) or task.default_n,
                        sweep.trust_remote_code,
                    )
                )  # fmt: skip
    for cell in cells:
        cell.method.frequencies(cell.geometry, cell.factor or 1.0, cell.length)  # raises for what it cannot do
    if not cells:
        raise UsageError("nothing to run: " + "; ".join(dict.fromkeys(notes)) + " (and --no-baseline leaves that out)")
    if model.sliding_window and any(cell.length > model.sliding_window for cell in cells):
        notes.append(
            f"{model.id} has layers that attend within a sliding window of {model.sliding_window} tokens: what lies "
            "farther back is invisible to them whatever the method"
        )
    return Plan(tuple(cells), tuple(dict.fromkeys(notes)), sweep)


def factor_of(
    sweep: Sweep, method: Method, trained: int, target: int, length: int
) -> tuple[float | None, str]:
    """The factor and the rule that gave it: the one place that computes it. None for methods that take no factor."""
    if not method.scales:
        return None, "none"
    if sweep.factor is not None:
        return float(sweep.factor), "factor"
    if sweep.matched:
        return max(1.0, length / trained), "matched"
    return max(1.0, target / trained), f"target={target}"


def _rows(
    registry: Registry, methods: Sequence[tuple[Method, Entry]], baseline: str | None
) -> Iterator[tuple[Method, Entry]]:
    """The baseline first, then the methods asked for, each once."""
    seen = set()
    first = [registry.build("method", baseline)] if baseline else []
    for method, entry in [*first, *methods]:
        key = (method.name, str(method.params))
        if key not in seen:
            seen.add(key)
            yield method, entry


def _check_words(sweep: Sweep, tasks: Sequence[str]) -> None:
    for what, word, allowed in (
        ("BOS rule", sweep.bos, BOS_RULES),
        ("chat template setting", sweep.chat_template, ("auto", "on", "off")),
        ("base", sweep.base, ("unscaled", "native")),
        ("attention backend", sweep.attention, ("sdpa", "eager", "flash_attention_2", "flex_attention")),
    ):
        if word not in allowed:
            raise unknown(what, str(word), allowed)
    if sweep.factor is not None and not sweep.factor >= 1:
        raise UsageError(f"--factor {sweep.factor}: must be at least 1 (a factor below 1 would shrink the window)")
    given = [name for name in ("factor", "matched", "target") if getattr(sweep, name)]
    if "matched" in given and len(given) > 1 or "factor" in given and "target" in given:
        raise UsageError(f"--{' and --'.join(given)} contradict each other: give one of --target, --matched, --factor")
    for name in ("lengths", "n", "docs"):
        value = getattr(sweep, name)
        for key in value if isinstance(value, Mapping) else ():
            if key not in tasks:
                raise unknown(f"task in {name}:", key, tasks)
    for value in (sweep.n or {}).values() if isinstance(sweep.n, Mapping) else [sweep.n]:
        if value is not None and (not isinstance(value, int) or value < 1):
            raise UsageError(f"--n {value!r}: the number of samples must be a whole number of at least 1")


def _per_task(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else value


def _lengths(sweep: Sweep, name: str) -> tuple[int, ...] | None:
    given = _per_task(sweep.lengths, name)
    if given is None:
        return None
    words = given.split(",") if isinstance(given, str) else given if isinstance(given, (list, tuple)) else [given]
    return tuple(dict.fromkeys(length_of(word) for word in words))


def _check_minimum(task: Task, length: int) -> None:
    if length < task.minimum_length:
        raise UsageError(f"length {length} is below the minimum of task {task.name!r} ({task.minimum_length} tokens)")


def _corpus(sweep: Sweep, task: Task) -> Corpus | None:
    if not task.needs_corpus:
        return None
    word = _per_task(sweep.docs, task.name) or task.docs()
    if word is None:
        raise UsageError(f"task {task.name!r} needs long text: give --docs installed, or --docs FOLDER")
    return open_corpus(word, sweep.offline)

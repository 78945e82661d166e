"""From what was asked (a `Sweep`) to `Cell`s: names, lengths, factors and corpora resolved.

Everything that can be wrong with a request is said here, before any weights are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ropebench import served
from ropebench.aliases import ModelSpec
from ropebench.cell import Cell
from ropebench.corpus import Corpus, open_corpus
from ropebench.device import choose_attention, choose_device, choose_dtype
from ropebench.errors import UsageError
from ropebench.geometry import RopeGeometry
from ropebench.methods import Method, Native
from ropebench.model import ModelCard, card, find, is_commit
from ropebench.registry import Entry, Registry
from ropebench.sweep import Sweep, length_of
from ropebench.task import Task

__all__ = ["Cell", "Plan", "Sweep", "factor_of", "length_of", "make_plan"]

# The default lengths, as shares of the trained length.
_SHARES = (0.5, 1, 2, 4)


@dataclass(frozen=True)
class Plan:
    """Cells in the order in which they run, and what a person should know (`notes`)."""

    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    sweep: Sweep = field(default_factory=Sweep)


@dataclass(frozen=True)
class _Asked:
    """A task of the sweep with everything that is the same for all methods."""

    task: Task
    entry: Entry
    corpus: Corpus | None
    lengths: tuple[int, ...]
    n: int


def make_plan(sweep: Sweep, corpora: bool = True) -> Plan:
    """Resolve names, lengths, factors and corpora into cells. Reads configs and corpora, loads no weights; with
    `corpora=False` no long text is opened (its cells can be looked at, not run).

    Raises UsageError for anything that cannot be run as asked.
    """
    sweep = served.checked(sweep)
    registry = Registry.load(sweep.plugins)
    methods = [registry.build("method", word) for word in sweep.methods]
    loading = sweep.loading  # what is not installed is said before anything is read
    tasks = [registry.build("task", word) for family in sweep.tasks for word in registry.expanded("task", family)]
    if not tasks:
        raise UsageError("no task: give --tasks, for example --tasks proofpile,niah")
    known = [entry.name for entry in registry.of("task")]
    sweep.check_tasks([*known, *{name.split("/")[0] for name in known}])
    if not sweep.model:
        raise UsageError("no model: give --model NAME (see ropebench list models), a folder, or a hub id")
    there = served.is_served(sweep.model)
    spec = find(sweep.tokenizer if there and sweep.tokenizer else sweep.model, sweep.models, sweep.revision)
    for task, entry in tasks:
        sweep.n_of(entry.name), sweep.docs_of(entry.name)
        for length in sweep.lengths_of(entry.name) or ():
            _check_minimum(task, length)
    model = card(spec, sweep.trained_length, sweep.offline, sweep.trust_remote_code, weights=not there)
    device, dtype, attention, server = "served", "", "", None
    if there:
        server = served.Served(served.name_of(sweep), spec.id, model.revision)
        model = replace(model, spec=replace(spec, id=f"served:{server.name}"))
    else:
        device = choose_device(sweep.device)
        dtype = choose_dtype(sweep.dtype, device)
        attention = choose_attention(sweep.attention, model.config)
    geometry = start_of(model, sweep.base)
    trained = geometry.trained_length
    if (sweep.target or trained) < trained and any(method.scales and method.uses_factor for method, _ in methods):
        raise UsageError(
            f"--target {sweep.target} is below the trained window of {model.id} ({trained} tokens), and no method "
            f"shrinks a window; give more than {trained}, or leave it out: the longest of --lengths is then the target"
        )
    notes = _about(model, attention, sweep.attention)
    asked = [_asked(sweep, task, entry, trained, spec, corpora, notes) for task, entry in tasks]
    target = sweep.target or max(max(one.lengths) for one in asked)
    baseline = "native" if model.geometry.shipped else "none"
    chat = {"on": True, "off": False, "auto": spec.instruct}[sweep.chat_template]
    cells: dict[str, Cell] = {}
    for method, method_entry in _rows(registry, methods, baseline if sweep.baseline else None):
        # The unmodified models are what they are, whatever the methods start from.
        own = geometry if method.scales else model.geometry
        for one in asked:
            # Longest first: a likelihood task's shorter lengths are then read off the longest pass.
            for length in sorted(one.lengths, reverse=True):
                factor, rule = factor_of(sweep, method, trained, target, length)
                if method.scales and factor == 1.0 and _is_unmodified(method, own, model.geometry, length):
                    notes.append(
                        f"factor 1 at length {length} (trained length {trained}): every method equals the unmodified "
                        "model there, so only the baseline is run"
                    )
                    continue
                cell = Cell(
                    model, own, sweep.base, device, dtype, attention,
                    method, method_entry.code, factor, rule,
                    one.task, one.entry.code, one.corpus, length, sweep.seed,
                    sweep.bos, chat and one.task.chat, one.n, sweep.trust_remote_code,
                    loading, server,
                )  # fmt: skip
                _check_table(cell)
                cells.setdefault(cell.id, cell)
    if not cells:
        raise UsageError("nothing to run: " + "; ".join(dict.fromkeys(notes)) + " (and --no-baseline leaves that out)")
    if model.sliding_window and any(cell.length > model.sliding_window for cell in cells.values()):
        notes.append(
            f"{model.id} has layers that attend within a sliding window of {model.sliding_window} tokens: what lies "
            "farther back is invisible to them whatever the method"
        )
    return Plan(tuple(cells.values()), tuple(dict.fromkeys(notes)), sweep)


def _about(model: ModelCard, attention: str, asked: str) -> list[str]:
    """What a person should know of the model as it was found."""
    notes, spec = [], model.spec
    if spec.on_hub and not is_commit(spec.revision):
        found = f"resolved to {model.revision}; give --revision {model.revision} to keep to it"
        if not is_commit(model.revision):
            found = "and no commit could be found for it, so that a later change would go unnoticed"
        notes.append(f"{model.id}: revision {spec.revision!r} of {spec.source} is a moving target; {found}")
    if attention == "eager" and asked == "auto":
        notes.append(
            f"{model.id}: transformers has no sdpa for models of type {model.config.model_type!r}, so attention is "
            "eager; it holds a matrix of length × length per head, which limits the length that fits into memory"
        )
    return notes


def _is_unmodified(method: Method, start: RopeGeometry, shipped: RopeGeometry, length: int) -> bool:
    """Whether a method at factor 1 is the model as it is. Not so for a table that ignores the factor, an attention
    factor of its own, or a checkpoint that ships a scaling which the method does not start from."""
    if method.varies(start):
        return False
    return method.frequencies(start, 1.0, length).same_as(Native().frequencies(shipped, 1.0, length))


def factor_of(sweep: Sweep, method: Method, trained: int, target: int, length: int) -> tuple[float | None, str]:
    """The factor and the rule that gave it: the one place that computes it. None for methods that take no factor."""
    if not (method.scales and method.uses_factor):
        return None, "none"
    if sweep.factor is not None:
        return float(sweep.factor), "factor"
    if sweep.matched:
        return max(1.0, length / trained), "matched"
    return max(1.0, target / trained), f"target={target}"


def start_of(model: ModelCard, base: str) -> RopeGeometry:
    """The geometry that methods start from: the unscaled one, or that of the table the checkpoint ships."""
    geometry = model.geometry
    if base != "native":
        return geometry
    return geometry.on_base(Native().frequencies(geometry, 1.0, geometry.extended_length))


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


def _asked(
    sweep: Sweep, task: Task, entry: Entry, trained: int, spec: ModelSpec, corpora: bool, notes: list[str]
) -> _Asked:
    lengths = sweep.lengths_of(entry.name)
    if lengths is None:
        default = task.default_lengths([max(1, int(trained * share)) for share in _SHARES])
        lengths = tuple(length for length in default if length >= task.minimum_length)
        if not lengths:
            _check_minimum(task, default[-1])
        if len(lengths) < len(default):
            left = ", ".join(str(length) for length in default if length not in lengths)
            notes.append(f"{entry.name}: default lengths below its minimum of {task.minimum_length} left out: {left}")
    corpus = None
    if task.needs_corpus and corpora:
        word = sweep.docs_of(entry.name) or spec.docs or task.docs()
        if word is None:
            raise UsageError(f"task {task.name!r} needs long text: give --docs installed, or --docs FOLDER")
        corpus = open_corpus(word, sweep.offline)
    task = task.on_this_machine() if sweep.offline else task
    resolved = task.resolved(lengths, corpus) if corpus else task.resolved(lengths)
    usual = min(task.default_n, spec.n or task.default_n)
    return _Asked(resolved, entry, corpus, lengths, sweep.n_of(entry.name) or usual)


def _check_minimum(task: Task, length: int) -> None:
    if length < task.minimum_length:
        raise UsageError(f"length {length} is below the minimum of task {task.name!r} ({task.minimum_length} tokens)")


def _check_table(cell: Cell) -> None:
    """Make the cell's table once, so that a method that cannot is said now."""
    try:
        table = cell.method.frequencies(cell.geometry, cell.factor or 1.0, cell.length)
        pairs = len(table.inv_freq)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"method {cell.method_label}: has no table at length {cell.length} ({type(error).__name__}: {error})"
        ) from error
    if pairs != cell.geometry.pairs:
        raise UsageError(
            f"method {cell.method_label}: its table has {pairs} frequencies, the model has {cell.geometry.pairs} pairs"
        )

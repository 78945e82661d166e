"""Cells to records: what is already stored is not run again, what fails becomes a record, Ctrl-C loses nothing.

Sample rows are written as they are measured, so a run that is cut off goes on inside the cell where it stopped.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ropebench.errors import UsageError
from ropebench.plan import Cell
from ropebench.prompt import Encoder
from ropebench.record import SCHEMA, Json, canonical, digest, ids_sha256, now, provenance, summary
from ropebench.store import Writer, newest_ok, read, samples
from ropebench.task import Example, Output

NLL_BIN = 256  # tokens per bin of the position-resolved likelihood in a sample row


@dataclass(frozen=True)
class Progress:
    """Where a run is, for whoever shows it: cell k of n, samples, tokens per second, seconds left (None: unknown)."""

    cell: Cell
    number: int
    cells: int
    sample: int
    samples: int
    tokens_per_second: float | None
    seconds_left: float | None


@dataclass
class Stored:
    """What a results folder already holds: the counting record per cell, and all sample rows."""

    records: dict[str, Json] = field(default_factory=dict)
    rows: dict[str, dict[int, Json]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: str) -> Stored:
        rows: dict[str, dict[int, Json]] = {}
        for row in samples(folder):
            rows.setdefault(row["cell_id"], {})[row["index"]] = row
        return cls({record["cell_id"]: record for record in newest_ok(read(folder))}, rows)

    def done(self, cell: Cell) -> bool:
        """Whether an ok record with at least the wanted samples (or all that the source has) is stored."""
        record = self.records.get(cell.id)
        return bool(record and record["outcome"]["status"] == "ok" and record["condition"]["n_requested"] >= cell.n)


def encoder_of(cell: Cell, tokenizer: Any) -> Encoder:
    """The encoder of a cell: its tokenizer, BOS rule and chat template."""
    return Encoder(tokenizer, cell.bos, cell.chat)


def preflight(cells: Sequence[Cell], tokenizer: Any) -> None:
    """Make the first example of every (task, length), so that what cannot be made is said before weights are loaded."""
    tried = set()
    for cell in cells:
        key = canonical([cell.identity["task"], cell.length, cell.chat])
        if key not in tried:
            tried.add(key)
            next(iter(cell.task.examples(cell.length, encoder_of(cell, tokenizer), cell.seed, cell.corpus)), None)


def run_cells(
    cells: Sequence[Cell],
    loaded: Any,
    stored: Stored,
    writer: Writer,
    argv: Sequence[str] = (),
    progress: Callable[[Progress], None] = lambda _: None,
    engine: Callable[[Any, Encoder], Any] | None = None,
) -> list[Json]:
    """Run cells on one loaded model, in order; returns their records (also written). A cell that fails is a record and
    the next one runs. `engine` builds the engine from (model, encoder); tests give a fake one.

    KeyboardInterrupt passes through after the sample at hand is written.
    """
    if engine is None:
        from ropebench.engine import Engine

        engine = Engine
    memo = Prefixes()
    held: tuple[str, ...] = ()
    records = []
    for number, cell in enumerate(cells, 1):
        under = (cell.card.id, canonical(cell.identity["method"]))
        if under != held:  # nothing computed under one table is ever used under another
            memo, held = Prefixes(), under
        report = _Reporter(cell, number, len(cells), progress)
        records.append(_run_cell(cell, loaded, stored, writer, tuple(argv), report, engine, memo))
        writer.record(records[-1])
    return records


class Prefixes:
    """NLL of passes already made under the table at hand. A causal model's NLL of a prefix is the prefix of its NLL, so
    a shorter length of the same document costs nothing."""

    def __init__(self, most: int = 64) -> None:
        self._held: list[tuple[tuple[int, ...], Any]] = []
        self._most = most

    def find(self, ids: tuple[int, ...]) -> Any | None:
        """The NLL of `ids` (len(ids) − 1 values), where a held pass begins with them."""
        for longer, nll in self._held:
            if longer[: len(ids)] == ids:
                return nll[: len(ids) - 1]
        return None

    def add(self, ids: tuple[int, ...], nll: Any) -> None:
        """Hold one pass, dropping the oldest beyond the limit."""
        self._held = [*self._held[1 - self._most :], (ids, nll)]


@dataclass
class _Reporter:
    cell: Cell
    number: int
    cells: int
    show: Callable[[Progress], None]
    began: float = field(default_factory=time.monotonic)
    tokens: int = 0
    measured: int = 0

    def at(self, index: int) -> None:
        spent = time.monotonic() - self.began
        rate = self.tokens / spent if self.tokens else None
        left = spent / self.measured * (self.cell.n - index) if self.measured else None
        self.show(Progress(self.cell, self.number, self.cells, index, self.cell.n, rate, left))


def _run_cell(
    cell: Cell, loaded: Any, stored: Stored, writer: Writer, argv: tuple[str, ...], report: _Reporter,
    engine: Callable[[Any, Encoder], Any], memo: Prefixes,
) -> Json:  # fmt: skip
    rows: list[Json] = []
    status, error, live = "ok", None, None
    reset_peak(loaded)
    try:
        encoder = encoder_of(cell, loaded.tokenizer)
        runner = engine(loaded.model, encoder)
        with _table(cell, loaded, cell.length) as live:
            old = stored.rows.get(cell.id, {})
            stream = cell.task.examples(cell.length, encoder, cell.seed, cell.corpus)
            for index, example in enumerate(islice(stream, cell.n)):
                report.at(index)
                row = old.get(index)
                if row is None or row["prompt_sha256"] != prompt_sha256(example):
                    row = _measure(cell, loaded, runner, index, example, memo, writer.run_id)
                    writer.sample(row)
                    report.tokens += example.tokens
                    report.measured += 1
                rows.append(row)
    except (KeyboardInterrupt, SystemExit):
        raise
    except Exception as caught:  # any failure of a task, a model or a device is this cell's outcome
        status, error = _failure(caught)
        gc.collect()
    return _record(cell, loaded, rows, status, error, live, argv, report, writer.run_id)


def _table(cell: Cell, loaded: Any, length: int) -> Any:
    """The context in which the cell's table is live; yields it, read back from the model. A checkpoint as shipped with
    no scaling, and a fake without a rotary module, go through the same door."""
    table = cell.method.frequencies(cell.geometry, cell.factor or 1.0, length)
    if loaded.model is None:
        return nullcontext(table)
    from ropebench.apply import applied

    return applied(loaded.model, table)


def _measure(
    cell: Cell, loaded: Any, runner: Any, index: int, example: Example, memo: Prefixes, run_id: str
) -> Json:
    output = None
    if example.skip is None:
        if cell.method.length_dependent:
            # The total length is fixed before the pass, and the table is set anew for each example.
            with _table(cell, loaded, example.tokens):
                output = runner.answer(example)
        else:
            nll = []
            for window in example.windows:
                known = memo.find(window.ids)
                if known is None:
                    known = runner.nll(window.ids)
                    memo.add(window.ids, known)
                nll.append(known[window.first_scored - 1 :])
            text = runner.answer(example) if example.max_new_tokens else Output()
            output = Output(text.text, text.ids, tuple(nll))
    scores = {} if output is None else cell.task.score(example, output)
    for name, value in scores.items():
        if not math.isfinite(value):
            raise ArithmeticError(f"sample {index}: {name} is {value} (the model returned NaN or infinity)")
    return {
        "schema": SCHEMA,
        "kind": "sample",
        "cell_id": cell.id,
        "run_id": run_id,
        "index": index,
        "prompt_sha256": prompt_sha256(example),
        "tokens": example.tokens,
        "skip": example.skip,
        "scores": scores,
        "output": output.text if output and example.max_new_tokens else None,
        "targets": list(example.targets),
        "meta": dict(example.meta),
        "nll_bins": _bins(example, output),
    }


def prompt_sha256(example: Example) -> str:
    """Hash of all ids that an example feeds to the model: its prompt, then its windows."""
    parts = [example.ids, *(window.ids for window in example.windows)]
    return ids_sha256(parts[1]) if not example.ids and len(parts) == 2 else ids_sha256([i for p in parts for i in p])


def _bins(example: Example, output: Output | None) -> Json | None:
    """NLL sums (nats) and token counts by position within the window, for examples of one window."""
    if output is None or len(example.windows) != 1:
        return None
    first, nll = example.windows[0].first_scored, output.nll[0]
    sums = [0.0] * -(-(first + len(nll)) // NLL_BIN)
    counts = [0] * len(sums)
    for position, value in enumerate(nll, first):
        sums[position // NLL_BIN] += float(value)
        counts[position // NLL_BIN] += 1
    return {"size": NLL_BIN, "sum": sums, "count": counts}


def _failure(caught: Exception) -> tuple[str, Json]:
    name, message = type(caught).__name__, str(caught).strip()[:2000]
    memory = isinstance(caught, MemoryError) or "OutOfMemory" in name or "not enough memory" in message
    status = "out_of_memory" if memory else "unsupported" if isinstance(caught, UsageError) else "error"
    return status, {"type": name, "message": message}


def metrics_of(task: Any, rows: Iterable[Json]) -> Json:
    """The cell's metrics from its sample rows: means with standard errors, then the derived ones (exp of a mean, its
    standard error by the delta method)."""
    scored = [row["scores"] for row in rows if row["skip"] is None]
    means = {
        metric.name: summary([scores[metric.name] for scores in scored if metric.name in scores])
        for metric in task.metrics
        if metric.derived is None
    }
    metrics = {}
    for metric in task.metrics:
        if metric.derived is None:
            if means[metric.name]["n"]:
                metrics[metric.name] = means[metric.name]
            continue
        mean = means[metric.derived[1]]
        value = None if mean["value"] is None else math.exp(min(mean["value"], 700.0))
        stderr = None if value is None or mean["stderr"] is None else value * mean["stderr"]
        metrics[metric.name] = {"value": value, "stderr": stderr, "n": mean["n"]}
    return metrics


def _record(
    cell: Cell, loaded: Any, rows: list[Json], status: str, error: Json | None, live: Any,
    argv: tuple[str, ...], report: _Reporter, run_id: str,
) -> Json:  # fmt: skip
    seconds = time.monotonic() - report.began
    scored = [row for row in rows if row["skip"] is None]
    tokens = [row["tokens"] for row in rows]
    metrics = metrics_of(cell.task, rows) if status == "ok" else {}
    if status == "ok" and not scored:
        reason = rows[0]["skip"] if rows else "the source has no sample"
        status, error, metrics = "unsupported", {"type": "NoSamples", "message": reason}, {}
    geometry, method, task = cell.geometry, cell.method, cell.task
    return {
        "schema": SCHEMA,
        "kind": "run",
        "record_id": digest([cell.id, run_id, now(), report.number]),
        "cell_id": cell.id,
        "run_id": run_id,
        "created": now(),
        "model": {
            "id": cell.card.id,
            "source": cell.card.spec.source if not cell.card.spec.source.startswith("folder:") else "folder",
            "revision": cell.card.revision,
            "dtype": cell.dtype,
            "attention": cell.attention,
            "quantization": None,
            "rotary_dim": geometry.rotary_dim,
            "theta": geometry.theta,
            "trained_length": geometry.trained_length,
            "base": cell.base,
            "sliding_window": cell.card.sliding_window,
            "remote_code": cell.trust_remote_code,
        },
        "method": {
            "name": method.name,
            "version": method.version,
            "params": method.params,
            "set_params": method.set_params,
            "code": cell.method_code,
            "factor": cell.factor,
            "factor_rule": cell.factor_rule,
            "label": cell.method_label,
            "length_dependent": method.length_dependent,
            "inv_freq": None if live is None else [float(v) for v in live.inv_freq],
            "attention_factor": None if live is None else live.attention_factor,
        },
        "task": {
            "name": task.name,
            "version": task.version,
            "params": task.params,
            "code": cell.task_code,
            "label": cell.task_label,
            "scorer": task.scorer_name(),
            "corpus": None if cell.corpus is None else {**cell.corpus.describe(), "documents": _documents(rows)},
            "samples_sha256": digest([row["prompt_sha256"] for row in scored], 64),
            "metrics": [
                {"name": m.name, "direction": m.direction, "low": m.low, "high": m.high, "chance": m.chance}
                for m in task.metrics
            ],
        },
        "condition": {
            "length": cell.length,
            "seed": cell.seed,
            "bos": cell.bos,
            "bos_used": encoder_of(cell, loaded.tokenizer).adds_bos,
            "chat_template": "on" if cell.chat else "off",
            "n_requested": cell.n,
            "n_scored": len(scored),
            "n_skipped": len(rows) - len(scored),
            "tokens_min": min(tokens, default=None),
            "tokens_mean": sum(tokens) / len(tokens) if tokens else None,
            "tokens_max": max(tokens, default=None),
        },
        "outcome": {"status": status, "error": error, "metrics": metrics, "primary": task.primary.name},
        "cost": {
            "seconds": seconds,
            "tokens": report.tokens,
            "tokens_per_second": report.tokens / seconds if report.tokens and seconds else None,
            "peak_bytes": peak(loaded),
        },
        "provenance": provenance(argv, loaded.device),
    }


def _documents(rows: Iterable[Json]) -> list[Json]:
    """The documents that the samples name in their meta, each once."""
    found = {row["meta"]["document"]: row["meta"]["document_sha256"] for row in rows if "document" in row["meta"]}
    return [{"name": name, "sha256": sha} for name, sha in found.items()]


def reset_peak(loaded: Any) -> None:
    """Forget the highest memory use so far (CUDA's own counter; on Linux the process's high-water mark)."""
    if str(loaded.device).startswith("cuda"):
        import torch

        torch.cuda.reset_peak_memory_stats()
        return
    try:
        with open("/proc/self/clear_refs", "w") as handle:
            handle.write("5")
    except OSError:
        return  # elsewhere the mark cannot be reset, and `peak` reports null


def peak(loaded: Any) -> int | None:
    """The highest memory use since `reset_peak`, weights included, in bytes; None where it cannot be told."""
    if str(loaded.device).startswith("cuda"):
        import torch

        return int(torch.cuda.max_memory_allocated())
    try:
        with open("/proc/self/status") as handle:
            line = next(line for line in handle if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):
        return None

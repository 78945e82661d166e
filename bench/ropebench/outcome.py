"""What came of a cell, as stored: its sample rows, the metrics over them, and its record, which `results/README.md`
describes key by key."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ropebench.cell import Cell
from ropebench.errors import UsageError
from ropebench.memory import is_out_of_memory
from ropebench.record import SCHEMA, Json, digest, ids_sha256, now, provenance, summary, without_secrets
from ropebench.task import Example, Output

NLL_BIN = 256  # tokens per bin of the position-resolved likelihood in a sample row

_PATH = re.compile(r"(?<![\w./:])~?/(?:[\w.+@-]+/)+([\w.+@-]+)")


def prompt_sha256(example: Example) -> str:
    """Hash of all ids that an example feeds to the model: its prompt, then its windows."""
    parts = [example.ids, *(window.ids for window in example.windows)]
    return ids_sha256(parts[1]) if not example.ids and len(parts) == 2 else ids_sha256([i for p in parts for i in p])


def sample_row(
    cell: Cell, run_id: str, index: int, example: Example, output: Output | None,
    series: str | None = None, cost: Json | None = None,
) -> Json:  # fmt: skip
    """The row of one example, scored; `output` is None for one that is skipped. `series` is the run that began the set
    of samples; `cost` holds the seconds and tokens of the sample's passes.

    Raises ArithmeticError for a likelihood or a score that is not a finite number, ValueError for one that the task
    does not declare.
    """
    _check_likelihood(index, output)
    scores = {} if output is None else _scores(cell, index, cell.task.score(example, output))
    return {
        "schema": SCHEMA,
        "kind": "sample",
        "cell_id": cell.id,
        "run_id": run_id,
        "series": series,
        "index": index,
        "prompt_sha256": prompt_sha256(example),
        "tokens": example.tokens,
        "skip": example.skip,
        "scores": scores,
        "output": output.text if output and example.max_new_tokens else None,
        "targets": list(example.targets),
        "meta": dict(example.meta),
        "nll_bins": _bins(example, output),
        "cost": cost,
    }


def _check_likelihood(index: int, output: Output | None) -> None:
    """A task that only compares likelihoods would make a score of NaN, and a wrong one."""
    for number, nll in enumerate(output.nll if output else ()):
        bad = np.flatnonzero(~np.isfinite(np.asarray(nll, dtype=np.float64)))
        if len(bad):
            raise ArithmeticError(
                f"sample {index}: the likelihood of scored token {bad[0]} of window {number} is {nll[bad[0]]} (the "
                "model returned NaN or infinity)"
            )


def _scores(cell: Cell, index: int, scores: Mapping[str, float]) -> dict[str, float]:
    declared = [metric.name for metric in cell.task.metrics if metric.derived is None]
    for name, value in scores.items():
        if name not in declared:
            raise ValueError(f"sample {index}: the task scores {name!r}, which is none of its metrics {declared}")
        if not math.isfinite(value):
            raise ArithmeticError(f"sample {index}: {name} is {value} (the model returned NaN or infinity)")
    return {name: float(value) for name, value in scores.items()}


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


def metrics_of(task: Any, rows: Iterable[Json]) -> Json:
    """The cell's metrics from its sample rows: means with standard errors, then the derived ones (exp of a mean, its
    standard error by the delta method; null where that is beyond floating point)."""
    scored = [row["scores"] for row in rows if row["skip"] is None]
    means = {
        metric.name: summary([scores[metric.name] for scores in scored if metric.name in scores])
        for metric in task.metrics
        if metric.derived is None
    }
    metrics = {}
    for metric in task.metrics:
        mean = means[metric.name if metric.derived is None else metric.derived[1]]
        if mean["n"]:
            metrics[metric.name] = mean if metric.derived is None else _exp(mean)
    return metrics


def _exp(mean: Json) -> Json:
    try:
        value = math.exp(mean["value"])
    except OverflowError:
        return {"value": None, "stderr": None, "n": mean["n"]}
    stderr = None if mean["stderr"] is None else value * mean["stderr"]
    return {"value": value, "stderr": stderr if stderr is None or math.isfinite(stderr) else None, "n": mean["n"]}


def failure(caught: Exception) -> tuple[str, Json]:
    """The status and error of a cell that an exception ended; paths in the message reduced to their last part."""
    status = "unsupported" if isinstance(caught, UsageError) else "error"
    if is_out_of_memory(caught):
        status = "out_of_memory"
    return status, {
        "type": type(caught).__name__,
        "message": _PATH.sub(r"\1", without_secrets(str(caught).strip()))[:2000],
    }


def record_of(
    cell: Cell, rows: Sequence[Json], *, status: str, error: Json | None, live: Any, first_id: int | None,
    bos_used: bool | None, cost: Json, run_id: str, series: str | None, argv: tuple[str, ...], device: str,
    hardware: Json | None = None,
) -> Json:  # fmt: skip
    """The record of a cell: `rows` are its samples, `live` the table read back from the model (None: never set),
    `first_id` the id that its inputs begin with and `bos_used` whether that is the BOS token (None: nothing was fed);
    `cost` is that of this run, to which the rows of earlier ones add theirs."""
    scored = [row for row in rows if row["skip"] is None]
    tokens = [row["tokens"] for row in rows]
    metrics = metrics_of(cell.task, rows) if status == "ok" else {}
    if status == "ok" and not scored:
        reason = rows[0]["skip"] if rows else "the source has no sample"
        status, error = "unsupported", {"type": "NoSamples", "message": reason}
    created = now()
    return {
        "schema": SCHEMA,
        "kind": "run",
        "record_id": digest([cell.id, run_id, created, len(rows)]),
        "cell_id": cell.id,
        "run_id": run_id,
        "series": series,
        "created": created,
        "model": _model(cell),
        "method": _method(cell, live),
        "task": _task(cell, rows, scored),
        "condition": {
            "length": cell.length,
            "seed": cell.seed,
            "bos": cell.bos,
            "bos_used": bos_used,
            "first_id": first_id,
            "chat_template": "on" if cell.chat else "off",
            "n_requested": cell.n,
            "n_scored": len(scored),
            "n_skipped": len(rows) - len(scored),
            "tokens_min": min(tokens, default=None),
            "tokens_mean": sum(tokens) / len(tokens) if tokens else None,
            "tokens_max": max(tokens, default=None),
        },
        "outcome": {"status": status, "error": error, "metrics": metrics, "primary": cell.task.primary.name},
        "cost": _cost(cost, rows, run_id),
        "provenance": {**provenance(argv, device), "hardware": hardware},
    }


def _cost(own: Json, rows: Sequence[Json], run_id: str) -> Json:
    """The cost of this run with that of the samples it took over from earlier ones; `partial` where a sample of schema
    1 does not tell its own."""
    earlier = [row for row in rows if row["run_id"] != run_id]
    told = [row["cost"] for row in earlier if row["cost"] is not None]
    seconds = own["seconds"] + sum(cost["seconds"] for cost in told)
    tokens = own["tokens"] + sum(cost["tokens"] for cost in told)
    return {
        "seconds": seconds,
        "tokens": tokens,
        "tokens_per_second": tokens / seconds if tokens and seconds else None,
        "peak_bytes": own["peak_bytes"],
        "sizes": own.get("sizes"),
        "estimate": own.get("estimate"),
        "runs": len({row["run_id"] for row in rows}),
        "partial": len(told) < len(earlier),
    }


def _source(cell: Cell) -> str:
    """Where the model is from: served, bundled, folder, or where its files were got."""
    if cell.served:
        return "served"
    spec = cell.card.spec
    return "bundled" if spec.bundled else "folder" if spec.folder is not None else spec.source


def _model(cell: Cell) -> Json:
    card, geometry = cell.card, cell.geometry
    return {
        "id": card.id,
        "source": _source(cell),
        "revision": None if cell.served else card.revision,
        "dtype": cell.dtype or None,
        "attention": cell.attention or None,
        "quantization": cell.loading.quantize or card.spec.quantization or None,
        "compiled": cell.loading.compiled,
        "device_map": cell.loading.device_map,
        "rotary_dim": geometry.rotary_dim,
        "theta": geometry.theta,
        "trained_length": geometry.trained_length,
        "base": cell.base,
        "sliding_window": card.sliding_window,
        "remote_code": cell.trust_remote_code,
        **({"served": cell.served.identity} if cell.served else {}),
    }


def _method(cell: Cell, live: Any) -> Json:
    method = cell.method
    return {
        "name": method.name,
        "version": method.version,
        "params": method.params,
        "set_params": method.set_params,
        "code": cell.method_code,
        "factor": cell.factor,
        "factor_rule": cell.factor_rule,
        "label": cell.method_label,
        "length_dependent": cell.length_dependent,
        "inv_freq": None if live is None else [float(v) for v in live.inv_freq],
        "attention_factor": None if live is None else live.attention_factor,
    }


def _task(cell: Cell, rows: Sequence[Json], scored: Sequence[Json]) -> Json:
    task = cell.task
    named = {row["meta"]["document"]: row["meta"]["document_sha256"] for row in rows if "document" in row["meta"]}
    documents = [{"name": name, "sha256": sha} for name, sha in named.items()]
    return {
        "name": task.name,
        "version": task.version,
        "params": task.params,
        "code": cell.task_code,
        "label": cell.task_label,
        "scorer": task.scorer_name(),
        "gated": task.gated,
        "corpus": None if cell.corpus is None else {**cell.corpus.describe(), "documents": documents},
        "samples_sha256": digest([row["prompt_sha256"] for row in scored], 64),
        "metrics": [
            {
                "name": m.name,
                "direction": m.direction,
                "low": m.low,
                "high": m.high,
                "chance": m.chance,
                "unit": m.unit,
                "derived": list(m.derived) if m.derived else None,
            }
            for m in task.metrics
        ],
    }

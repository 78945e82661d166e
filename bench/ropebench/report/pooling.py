"""Several seeds of one cell as one row: their samples together.

Seeds draw other samples, so that clusters of one name (`sample-3`) are others under another seed; a document or text
that is named is the same one, and stays one cluster (`evidence.cluster_of`). What failed under one seed is said beside
what came of the others, never averaged away.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ropebench.record import canonical, digest

Record = Mapping[str, Any]
Samples = dict[str, list[Record]]

_METHOD = ("name", "version", "code", "set_params", "params", "factor", "label")
_TASK = ("name", "version", "code", "label", "scorer", "params", "corpus")
_CONDITION = ("length", "bos", "chat_template")


def pooled(records: Iterable[Record], samples: Mapping[str, Sequence[Any]]) -> tuple[list[Record], Samples]:
    """Records that differ in the seed alone as one record each, and the sample rows under its `cell_id`, which joins
    those of its cells with `+` as its seed does. Every row gets the key `seed`."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(_key(record), []).append(record)
    found: list[Record] = []
    rows: Samples = {}
    for members in groups.values():
        by_seed: dict[Any, list[Record]] = {}
        for record in members:
            by_seed.setdefault(record["condition"]["seed"], []).append(record)
        good = [record for record in members if record["outcome"]["status"] == "ok"]
        # Two cells of one seed differ in something else, such as files or frequencies: they are no seeds of one cell.
        pool = len(good) > 1 and all(len(same) == 1 for same in by_seed.values())
        for kept in [good] if pool else [[record] for record in members]:
            one = _merged(sorted(kept, key=_seed), members) if pool else kept[0]
            found.append(one)
            rows[one["cell_id"]] = [
                {**row, "seed": record["condition"]["seed"]}
                for record in sorted(kept, key=_seed)
                for row in samples.get(record["cell_id"], ())
            ]
    return found, rows


def _seed(record: Record) -> str:
    return f"{record['condition']['seed']!s:>12}"


def _key(record: Record) -> str:
    model = {key: value for key, value in record["model"].items() if key not in ("source", "remote_code")}
    method = [record["method"].get(key) for key in _METHOD]
    corpus = record["task"].get("corpus") or {}
    task = [record["task"].get(key) for key in _TASK[:-1]] + [corpus.get("label"), corpus.get("identity")]
    condition = [record["condition"].get(key) for key in _CONDITION]
    return canonical([record.get("kind"), model, method, task, condition])


def _merged(good: Sequence[Record], members: Sequence[Record]) -> Record:
    """One record of several that are ok, in the order of their seeds."""
    newest = max(good, key=lambda record: record["created"])
    conditions, costs = [record["condition"] for record in good], [record["cost"] for record in good]

    def joined(values: Iterable[Any]) -> str:
        return "+".join(dict.fromkeys(map(str, values)))

    def over(how: Any, key: str, groups: Sequence[Mapping[str, Any]]) -> Any:
        known = [group[key] for group in groups if group.get(key) is not None]
        return how(known) if known else None

    counted = [(c["n_scored"], c.get("tokens_mean")) for c in conditions if c.get("tokens_mean") is not None]
    total = sum(n for n, _ in counted)
    names = list(good[0]["outcome"]["metrics"])
    shared = [name for name in names if all(name in record["outcome"]["metrics"] for record in good)]
    metrics = {name: _mean([record["outcome"]["metrics"][name] for record in good]) for name in shared}
    for spec in good[0]["task"]["metrics"]:
        derived = spec.get("derived") or (["exp", "nll"] if spec["name"] == "perplexity" else None)
        if derived and spec["name"] in metrics and derived[1] in metrics:
            metrics[spec["name"]] = _exp(metrics[derived[1]])
    failed = [f"seed {r['condition']['seed']}: {r['outcome']['status']}" for r in sorted(members, key=_seed)
              if r["outcome"]["status"] != "ok"]  # fmt: skip
    return {
        **newest,
        "cell_id": joined(record["cell_id"] for record in good),
        "run_id": joined(record["run_id"] for record in good),
        "task": {**newest["task"], "samples_sha256": digest([r["task"]["samples_sha256"] for r in good], 64)},
        "condition": {
            **newest["condition"],
            "seed": joined(c["seed"] for c in conditions),
            "n_requested": sum(c["n_requested"] for c in conditions),
            "n_scored": sum(c["n_scored"] for c in conditions),
            "n_skipped": over(sum, "n_skipped", conditions),
            "tokens_min": over(min, "tokens_min", conditions),
            "tokens_max": over(max, "tokens_max", conditions),
            "tokens_mean": sum(n * mean for n, mean in counted) / total if total else None,
            "failed_seeds": ", ".join(failed) or None,
        },
        "outcome": {**newest["outcome"], "metrics": metrics},
        "cost": {
            **newest["cost"],
            "seconds": over(sum, "seconds", costs),
            "tokens": over(sum, "tokens", costs),
            "peak_bytes": over(max, "peak_bytes", costs),
        },
    }


def _mean(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean, standard error and number of all samples, from those of the parts."""
    n = sum(part["n"] for part in parts)
    if any(part["value"] is None for part in parts) or not n:
        return {"value": None, "stderr": None, "n": n}
    value = math.fsum(part["n"] * part["value"] for part in parts) / n
    square = None
    if n > 1 and all(part["stderr"] is not None for part in parts):
        inside = math.fsum(part["n"] * (part["n"] - 1) * part["stderr"] ** 2 for part in parts)
        square = inside + math.fsum(part["n"] * (part["value"] - value) ** 2 for part in parts)
    return {"value": value, "stderr": None if square is None else math.sqrt(square / (n - 1) / n), "n": n}


def _exp(mean: Mapping[str, Any]) -> dict[str, Any]:
    try:
        value = None if mean["value"] is None else math.exp(mean["value"])
    except OverflowError:
        value = None
    stderr = None if value is None or mean["stderr"] is None else value * mean["stderr"]
    return {"value": value, "stderr": stderr, "n": mean["n"]}

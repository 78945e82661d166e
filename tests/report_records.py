"""Hand-made records for the tests of reports: tests/data/records, and arithmetic cells made from numbers.

Everything in them is made up. proofpile has 8 documents, the second four mostly like the first; niah has 5 haystacks of
one needle at 1024 tokens and 3 at 4096, and one cell that ran out of memory.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ropebench.report.cells import Block, blocks, cell_rows

FIXTURES = Path(__file__).parent / "data" / "records"

Json = dict[str, Any]
Samples = dict[str, list[Json]]


def lines(name: str) -> list[Json]:
    return [json.loads(line) for line in (FIXTURES / name).read_text(encoding="utf-8").splitlines()]


def pick(records: list[Json], task: str, method: str, length: int) -> Json:
    return next(
        r for r in records
        if (r["task"]["name"], r["method"]["name"], r["condition"]["length"]) == (task, method, length)
    )  # fmt: skip


def block(records: list[Json], samples: Samples, task: str) -> Block:
    return next(b for b in blocks(cell_rows(records, samples)) if b.first["task_name"] == task)


PROBE_METRICS = [
    {"name": "exact_match", "direction": "higher", "low": 0.0, "high": 1.0, "chance": 0.01, "derived": None},
    {"name": "context_nll", "direction": "lower", "low": 0.0, "high": None, "chance": None, "derived": None},
]


def cell(
    task: str,
    method: str,
    length: int,
    scores: Mapping[str, Sequence[float]],
    *,
    metrics: Sequence[Json] = PROBE_METRICS,
    clusters: Sequence[str] | None = None,
    **more: Any,
) -> tuple[Json, list[Json]]:
    """A record and its sample rows from values per metric, one value a sample. `more` goes into the record's task; the
    model was trained on 2048 tokens, and samples of one length are the same for every method."""
    record = copy.deepcopy(lines("fixture.jsonl")[0])
    names, n = list(scores), len(next(iter(scores.values())))
    factor = None if method in ("none", "native") else 2.0
    label = method if factor is None else f"{method}×2"
    record["cell_id"] = record["record_id"] = "-".join(map(str, (task, more.get("label", ""), method, length)))
    record["method"] |= {"name": method, "label": label, "factor": factor}
    about = {"name": task, "label": task, "params": {}, "corpus": None, "samples_sha256": f"{task} {length}"}
    record["task"] |= {**about, "metrics": list(metrics), **more}
    record["condition"] |= {"length": length, "n_requested": n, "n_scored": n}
    means = {name: {"value": sum(values) / n, "stderr": 0.1, "n": n} for name, values in scores.items()}
    record["outcome"] = {"status": "ok", "error": None, "metrics": means, "primary": names[0]}
    rows = [
        {
            "cell_id": record["cell_id"],
            "index": index,
            "prompt_sha256": f"{task} {length} {index}",
            "skip": None,
            "scores": {name: scores[name][index] for name in names},
            "meta": {} if clusters is None else {"cluster": clusters[index]},
        }
        for index in range(n)
    ]
    return record, rows


def stored(*cells: tuple[Json, list[Json]]) -> tuple[list[Json], Samples]:
    """Records and samples of several cells, as reports take them."""
    return [record for record, _ in cells], {record["cell_id"]: rows for record, rows in cells}


def share(right: int, of: int) -> list[float]:
    """So many ones, then zeros."""
    return [1.0] * right + [0.0] * (of - right)

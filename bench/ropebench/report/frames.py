"""Records and sample rows as tidy pandas DataFrames: one row per cell, one row per sample.

Columns are documented in `ropebench.report.cells` (they follow the record: `group_key`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from ropebench.errors import unknown
from ropebench.report.cells import Record, Samples, blocks, cell_rows
from ropebench.report.dissociation import with_dissociation
from ropebench.report.paired import by_cell

_SAMPLE_KEYS = ("cell_id", "run_id", "index", "prompt_sha256", "tokens", "skip", "output")


def records_frame(records: Iterable[Record], samples: Samples | None = None, metric: str | None = None) -> pd.DataFrame:
    """One row per cell with the columns of `cells.cell_rows` and `dissociation` (yes, no, undecided, uninformative, or
    none: see `dissociation`). Failed cells keep their status and have no value; of an uninformative cell `measured`
    holds what was recorded, and `value` is empty."""
    records, samples = list(records), samples or {}
    return pd.DataFrame(with_dissociation(cell_rows(records, samples, metric), samples, by_cell(records)))


def samples_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per sample: cell_id, run_id, index, prompt_sha256, tokens, skip, output, `score_<metric>`, `meta_<key>`.

    Likelihood bins (`nll_bins`) and targets are left to the rows.
    """
    flat = []
    for row in rows:
        plain = {key: row.get(key) for key in _SAMPLE_KEYS}
        scores = {f"score_{name}": value for name, value in row["scores"].items()}
        meta = {f"meta_{name}": value for name, value in (row.get("meta") or {}).items()}
        flat.append(plain | scores | meta)
    return pd.DataFrame(flat)


def scores_by_length(frame: pd.DataFrame, model: str, task: str, mean: bool = False) -> pd.DataFrame:
    """Values as a table: index = method label (the baseline first), columns = lengths in tokens, missing = NaN.

    `model` is a model_id, `task` a task_label. Where conditions differ (seed, dtype …) the index is the label plus
    those conditions. With `mean`, a last column "mean" holds the mean over lengths, blank (NaN) where any is missing.
    Raises UsageError for a model or task that the frame does not hold.
    """
    for column, given, what in (("model_id", model, "model"), ("task_label", task, "task")):
        if frame.empty or given not in set(frame[column]):
            raise unknown(f"{what} in these records:", given, set() if frame.empty else set(frame[column]))
    chosen = frame[(frame["model_id"] == model) & (frame["task_label"] == task)]
    # to_dict turns a missing number into NaN; blocks and tables speak of None.
    rows = [{str(k): None if pd.isna(v) else v for k, v in row.items()} for row in chosen.to_dict("records")]
    table: dict[str, dict[int, float]] = {}
    for block in blocks(rows):
        for label in block.labels:
            name = " · ".join((label, *block.qualifiers))
            for length in block.lengths:
                cell = block.cell(label, length)
                known = cell is not None and cell["value"] is not None
                table.setdefault(name, {})[length] = float(cell["value"]) if cell and known else float("nan")
    pivot = pd.DataFrame.from_dict(table, orient="index")
    pivot = pivot[sorted(pivot.columns)]
    pivot.index.name, pivot.columns.name = "method", "length"
    if mean:
        pivot["mean"] = pivot.mean(axis=1, skipna=False)
    return pivot

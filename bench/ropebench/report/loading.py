"""`ropebench.load_results`: the stored results as a pandas DataFrame."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ropebench import store
from ropebench.errors import UsageError
from ropebench.report.cells import samples_by_cell
from ropebench.report.frames import records_frame, samples_frame

_CELL = ["cell_id", "model_id", "method_name", "method_label", "method_factor", "task_label", "condition_length",
         "condition_seed", "model_trained_length"]  # fmt: skip


def load_results(folder: str | Path = "results", *, samples: bool = False, metric: str | None = None) -> pd.DataFrame:
    """One row per cell: of its records the one that counts. With `samples`, one row per sample of those cells.

    Columns are the record's keys as `group_key` (see `results/README.md`) and what was worked out: `metric`,
    `direction`, `chance`, `value`, `low`, `high`, `interval`, `n`, `clusters` … (`ropebench.report.cells`). `metric`
    takes another metric than each task's primary one. Of samples: `score_<metric>`, `meta_<key>` and the keys of a
    sample row, with the model, method, task and length of their cell before them. Scores are 0–1, lengths in tokens.

    Raises UsageError where the folder holds no record, or no task has the metric.
    """
    records = store.newest_ok(store.read(folder))
    if not records:
        raise UsageError(f"no records in {str(folder)!r}; measure something first: ropebench run --help")
    rows = samples_by_cell(records, store.samples(folder))
    cells = records_frame(records, rows, metric)
    if not samples:
        return cells
    flat = samples_frame(row for members in rows.values() for row in members)
    known = cells[[name for name in _CELL if name in cells]]
    return known.merge(flat, on="cell_id", how="inner", validate="one_to_many") if len(flat) else flat

"""Which plots a set of blocks has, and their file names. matplotlib is imported when one is drawn, not before."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ropebench.record import digest
from ropebench.report.cells import Block, Record, Samples
from ropebench.report.paired import baseline_differences, compared_metric


@dataclass(frozen=True)
class Planned:
    """A plot to be made. `kind` is value, difference, position or depth; `stem` its file name without suffix."""

    kind: str
    block: Block
    metric: str
    stem: str
    title: str


def plan(blocks: Sequence[Block], samples: Samples, records: Mapping[str, Record]) -> list[Planned]:
    """Plots in reading order; `records` by cell_id. A kind of plot for which a block has no data is left out."""
    found: list[Planned] = []
    for block in blocks:
        if all(row["value"] is None for row in block.rows):
            continue
        shown, metric, longest = block.first["metric"], compared_metric(block, records), block.lengths[-1]
        found.append(_planned("value", block, metric, f"{shown} by context length"))
        if not block.percent and baseline_differences(block, samples, metric):
            found.append(_planned("difference", block, metric, f"{metric}, paired difference to {block.baseline}"))
        here = [row["cell_id"] for row in block.rows if row["condition_length"] == longest]
        if any(row.get("nll_bins") for cell in here for row in samples.get(cell, ())):
            found.append(_planned("position", block, metric, f"nll by position at length {longest}"))
        every = (row for cell in block.rows for row in samples.get(cell["cell_id"], ()))
        if block.percent and any((row.get("meta") or {}).get("depth") is not None for row in every):
            found.append(_planned("depth", block, metric, f"{shown} by depth and context length"))
    stems = [one.stem for one in found]
    return [
        one if stems.count(one.stem) == 1 else replace(one, stem=f"{one.stem}_{digest([one.title, place], 6)}")
        for place, one in enumerate(found)
    ]


def _planned(kind: str, block: Block, metric: str, what: str) -> Planned:
    first = block.first["metric"] if kind == "value" else kind
    parts = (first, block.first["model_id"], block.first["task_label"], *block.qualifiers)
    # Lower case: names must stay apart on file systems that ignore it.
    stem = "_".join(re.sub(r"[^a-z0-9.=]+", "-", part.lower()).strip("-.") for part in parts)
    return Planned(kind, block, metric, stem[:120], f"{block.title}: {what}")


def draw(planned: Planned, samples: Samples, folder: Path) -> list[Path]:
    """Write stem.png and stem.svg into a folder; returns both paths."""
    from ropebench.report import heatmap, plots

    stem, block = folder / planned.stem, planned.block
    if planned.kind == "value":
        return plots.value_by_length(block, stem)
    if planned.kind == "difference":
        differences = baseline_differences(block, samples, planned.metric)
        return plots.difference_by_length(block, differences, planned.metric, stem)
    if planned.kind == "position":
        return plots.nll_by_position(block, samples, block.lengths[-1], stem)
    return heatmap.depth_heatmap(block, samples, stem)

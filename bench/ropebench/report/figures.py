"""Which plots a set of blocks has, and their file names. matplotlib is imported when one is drawn, not before."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ropebench.record import digest
from ropebench.report.cells import Block, Record, Samples
from ropebench.report.paired import baseline_differences, compared_metric
from ropebench.report.ruler_summary import Family, families
from ropebench.report.style import order
from ropebench.stats import MIN_CLUSTERS


@dataclass(frozen=True)
class Planned:
    """A plot to be made. `stem` is its file name without suffix; `family` is set where it shows several blocks.

    `kind`: value, difference, position, reach (cost against reach), depth, depth_difference, ruler, or frequencies,
    which shows all methods of a model and has their `tables` (see `plots.plot_frequencies`).
    """

    kind: str
    block: Block
    metric: str
    stem: str
    title: str
    family: Family | None = None
    tables: tuple[Mapping[str, Any], ...] = ()

    @property
    def of_model(self) -> bool:
        """Whether it is about a model or a family of tasks, and not about one block alone."""
        return self.family is not None or self.kind == "frequencies"


def plan(blocks: Sequence[Block], samples: Samples, records: Mapping[str, Record]) -> list[Planned]:
    """Plots in reading order; `records` by cell_id. A kind of plot for which a block has no data is left out."""
    found: list[Planned] = _frequencies(blocks, records)
    for family in families(blocks):
        name, model = family.label, family.first.first["model_id"]
        title = f"{model} · {name}: each task by context length"
        stem = _stem("ruler", model, name, *family.first.qualifiers)
        found.append(Planned("ruler", family.first, "score", stem, title, family))
    for block in blocks:
        if all(row["value"] is None for row in block.rows):
            continue
        shown, metric, longest = block.first["metric"], compared_metric(block, records), block.lengths[-1]
        every = (row for cell in block.rows for row in samples.get(cell["cell_id"], ()))
        deep = block.percent and any((row.get("meta") or {}).get("depth") is not None for row in every)
        if any(one.family is not None and any(block is b for b in one.family.blocks) for one in found):
            # The family's plot shows its values; what is left is where in the text it fails.
            if deep:
                found.append(_planned("depth", block, metric, f"{shown} by depth and context length"))
            continue
        where = "by context length" if len(block.lengths) > 1 else f"at length {longest}"
        found.append(_planned("value", block, metric, f"{shown} {where}"))
        differences = baseline_differences(block, samples, metric)
        if not block.percent and differences:
            found.append(_planned("difference", block, metric, f"{metric}, paired difference to {block.baseline}"))
        here = [row["cell_id"] for row in block.rows if row["condition_length"] == longest]
        if any(row.get("nll_bins") for cell in here for row in samples.get(cell, ())):
            found.append(_planned("position", block, metric, f"nll by position at length {longest}"))
        # Scores over too few haystacks would put methods at places that another draw would change.
        enough = not block.percent or max(row["clusters"] for row in block.rows) >= MIN_CLUSTERS
        if enough and len(block.labels) > 2 and _reaches(block, differences):
            found.append(_planned("reach", block, metric, "cost inside the window against reach beyond it"))
        if deep:
            found.append(_planned("depth", block, metric, f"{shown} by depth and context length"))
            if differences:
                what = f"{shown} minus that of {block.baseline}, by depth and context length"
                found.append(_planned("depth_difference", block, metric, what))
    stems = [one.stem for one in found]
    return [
        one if stems.count(one.stem) == 1 else replace(one, stem=f"{one.stem}_{digest([one.title, place], 6)}")
        for place, one in enumerate(found)
    ]


def _frequencies(blocks: Sequence[Block], records: Mapping[str, Record]) -> list[Planned]:
    """One plot per model of the tables that its methods set, as read back from it; nothing to draw for one alone."""
    found = []
    for model in dict.fromkeys(block.first["model_id"] for block in blocks):
        members = [block for block in blocks if block.first["model_id"] == model]
        tables: dict[str, Mapping[str, Any]] = {}
        for row in (row for block in members for row in block.rows):
            record = records[row["cell_id"]]
            inv_freq, about = record["method"].get("inv_freq"), record["model"]
            if inv_freq and about.get("theta") and not record["method"].get("length_dependent"):
                tables.setdefault(row["label"], _table(row, inv_freq, about["theta"]))
        if len(tables) > 1:
            what = "what each method does to the rotary frequencies"
            stem = _stem("frequencies", model)
            ordered = sorted(tables.values(), key=lambda one: (*order(one["name"]), one["label"]))
            found.append(Planned("frequencies", members[0], "", stem, f"{model} · {what}", None, tuple(ordered)))
    return found


def _table(row: Mapping[str, Any], inv_freq: Sequence[float], theta: float) -> Mapping[str, Any]:
    """Wavelength of each pair in tokens, and λ_j: slowdown of pair j ÷ that of the pair before it."""
    default = [theta ** (-place / len(inv_freq)) for place in range(len(inv_freq))]
    slowdown = [plain / own for plain, own in zip(default, inv_freq, strict=True)]
    radix = [slow / before for slow, before in zip(slowdown, [1.0, *slowdown], strict=False)]
    wavelength = [2 * math.pi / own for own in inv_freq]
    return {"label": row["label"], "name": row["method_name"], "wavelength": wavelength, "lambda": radix}


def _reaches(block: Block, differences: Mapping[tuple[str, int], object]) -> bool:
    """Whether there is a comparison on either side of the trained window."""
    lengths = {length for _, length in differences}
    return min(lengths, default=0) <= block.trained_length < max(lengths, default=0)


def _planned(kind: str, block: Block, metric: str, what: str) -> Planned:
    first = block.first["metric"] if kind == "value" else kind
    stem = _stem(first, block.first["model_id"], block.first["task_label"], *block.qualifiers)
    return Planned(kind, block, metric, stem, f"{block.title}: {what}")


def _stem(*parts: str) -> str:
    # Lower case: names must stay apart on file systems that ignore it.
    return "_".join(re.sub(r"[^a-z0-9.=]+", "-", part.lower()).strip("-.") for part in parts)[:120]


def draw(planned: Planned, samples: Samples, folder: Path, enough: Any = None) -> list[Path]:
    """Write stem.png and stem.svg into a folder; returns both paths. `enough`: an `effective.Enough`."""
    from ropebench.report import heatmap, plots

    stem, block = folder / planned.stem, planned.block
    if planned.kind == "ruler" and planned.family is not None:
        from ropebench.report.ruler_plot import ruler_by_task

        return ruler_by_task(planned.family, stem)
    if planned.kind == "frequencies":
        return plots.plot_frequencies(planned.tables, block.trained_length, stem)
    if planned.kind == "value":
        return plots.value_by_length(block, stem)
    if planned.kind == "position":
        return plots.nll_by_position(block, samples, block.lengths[-1], stem)
    if planned.kind == "depth":
        return heatmap.depth_heatmap(block, samples, stem)
    if planned.kind == "depth_difference":
        return heatmap.difference_heatmap(block, samples, block.baseline or "", stem)
    differences = baseline_differences(block, samples, planned.metric)
    if planned.kind == "difference":
        return plots.difference_by_length(block, differences, planned.metric, stem)
    from ropebench.report.effective import ENOUGH
    from ropebench.report.reach import reach_plot, reaches

    enough = enough or ENOUGH
    found = reaches(block, differences, samples, planned.metric, enough)
    return reach_plot(block, found, planned.metric, stem, enough)

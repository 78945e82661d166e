"""RULER task by task: one small plot per task and one of their mean, score by context length."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from ropebench.report.plots import Apart, figure, length_axis, line, save, wrapped
from ropebench.report.ruler_summary import FAMILY, Family
from ropebench.report.style import Style, styles

_ACROSS = 5
Point = tuple[float, float | None, float | None]  # value, low, high (0–1)


def ruler_by_task(family: Family, stem: Path) -> list[Path]:
    """Small multiples on one scale of 0–100 %; bars are 95 % intervals. A task that was not run has no plot."""
    labels, lengths = family.labels, family.lengths
    first = family.first
    looks = styles(labels, [next(b.name(label) for b in family.blocks if label in b.labels) for label in labels])
    tasks = [block.first["task_name"] for block in family.blocks]
    panels: list[tuple[str, Callable[[str, int], Point | None]]] = [
        (task.removeprefix(FAMILY), partial(_of_task, family, task)) for task in tasks
    ]
    if any(family.score(label, length) is not None for label in labels for length in lengths):
        panels.append(("mean of all 13", partial(_of_mean, family)))
    places = len(panels) + 1  # one is the legend's
    across = min(places, _ACROSS)
    down = math.ceil(places / across)
    with figure(across * 2.3, down * 1.9 + 0.5, across, down, squeeze=False, sharex=True, sharey=True) as (
        drawn, grid,
    ):  # fmt: skip
        spots = list(grid.flat)
        for axes, (name, point) in zip(spots, panels, strict=False):
            _panel(axes, labels, lengths, looks, point)
            length_axis(axes, lengths, first.trained_length, Apart(len(labels), 0.02), named=False)
            axes.set_title(name, fontsize=8.5, fontweight="bold" if name.startswith("mean") else "normal")
            axes.tick_params(labelsize=7)
            axes.set_ylim(-4, 104)
        for axes in spots[len(panels) :]:
            axes.set_axis_off()
        handles, names = spots[0].get_legend_handles_labels()
        spots[len(panels)].legend(handles, names, loc="center", fontsize=8)
        drawn.supxlabel("context length (tokens), shaded beyond the trained window", fontsize=8.5)
        drawn.supylabel("score (%)", fontsize=8.5)
        counts = sorted({row["n"] for block in family.blocks for row in block.rows if row["value"] is not None})
        n = "–".join(str(n) for n in sorted({counts[0], counts[-1]})) if counts else "0"
        said = f"{first.first['model_id']} · {family.label} by task\nn = {n} per point, bars: 95 % intervals"
        drawn.suptitle(wrapped(said, across * 2.3), x=0.01, ha="left", fontsize=9)
        return save(drawn, stem)


def _of_task(family: Family, task: str, label: str, length: int) -> Point | None:
    cell = family.cells(label, length).get(task)
    return None if cell is None else (cell["value"], cell["low"], cell["high"])


def _of_mean(family: Family, label: str, length: int) -> Point | None:
    score, ends = family.score(label, length), family.interval(label, length)
    return None if score is None else (score, *(ends or (None, None)))


def _panel(axes: Axes, labels: list[str], lengths: list[int], looks: dict[str, Style], point: Any) -> None:
    apart = Apart(len(labels), 0.02)
    for place, label in enumerate(labels):
        found = [(length, at) for length in lengths if (at := point(label, length)) is not None]
        x = [apart.at(length, place) for length, _ in found]
        look = line(looks[label]) | {"markersize": 3.5, "linewidth": 1.2}
        axes.plot(x, [100 * value for _, (value, _, _) in found], label=label, **look)
        for at, (_, (_, low, high)) in zip(x, found, strict=True):
            if low is not None and high is not None:
                axes.vlines(at, 100 * low, 100 * high, color=looks[label].colour, alpha=0.6, linewidth=0.9)

"""Scores by depth and context length, one small heat map per method in one figure; and differences of two methods."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ropebench.report.cells import Block, Samples
from ropebench.report.evidence import scored
from ropebench.report.plots import figure, save, tokens, wrapped

_MOST_ROWS = 11

Fields = Mapping[tuple[int, int], tuple[float, int]]  # (depth row, length) → (value, number of samples)


def has_depth(block: Block, samples: Samples) -> bool:
    """Whether any sample of the block says at which depth its needle lies."""
    rows = (row for cell in block.rows for row in samples.get(cell["cell_id"], ()))
    return any((row.get("meta") or {}).get("depth") is not None for row in rows)


def depth_edges(block: Block, samples: Samples) -> list[float]:
    """Edges of the depth rows, from 0 to 1. Samples are sorted by where their needle really is.

    Where few depths were aimed at, edges lie halfway between them, so that a needle that had to move to the next
    sentence end stays in its row; where depths are spread over the text, rows are equal and hold some samples each.
    """
    aimed: set[float] = set()
    most = 0
    for cell in block.rows:
        about = [row.get("meta") or {} for row in samples.get(cell["cell_id"], ())]
        known = [meta for meta in about if meta.get("depth") is not None]
        aimed |= {round(meta.get("depth_wanted", meta["depth"]), 2) for meta in known}
        most = max(most, len(known))
    depths = sorted(aimed)
    if len(depths) <= _MOST_ROWS:
        return [0.0, *((one + two) / 2 for one, two in pairwise(depths)), 1.0]
    rows = min(max(most // 4, 3), _MOST_ROWS - 1)
    return [at / rows for at in range(rows + 1)]


def depth_means(block: Block, samples: Samples, label: str, edges: Sequence[float]) -> Fields:
    """Mean score (0–1) of one method by depth row and length; absent where nothing was measured."""
    found: dict[tuple[int, int], list[float]] = {}
    for length in block.lengths:
        for row in _rows(block, samples, label, length).values():
            found.setdefault((_row_of(row, edges), length), []).append(_score(block, row))
    return {place: (sum(scores) / len(scores), len(scores)) for place, scores in found.items()}


def depth_differences(block: Block, samples: Samples, label: str, other: str, edges: Sequence[float]) -> Fields:
    """Mean of label − other by depth row and length, over samples that both have and whose prompts agree."""
    found: dict[tuple[int, int], list[float]] = {}
    for length in block.lengths:
        ours, theirs = (_rows(block, samples, name, length) for name in (label, other))
        for index, row in ours.items():
            pair = theirs.get(index)
            if pair is not None and pair["prompt_sha256"] == row["prompt_sha256"]:
                value = _score(block, row) - _score(block, pair)
                found.setdefault((_row_of(row, edges), length), []).append(value)
    return {place: (sum(values) / len(values), len(values)) for place, values in found.items()}


def _rows(block: Block, samples: Samples, label: str, length: int) -> dict[int, Mapping[str, Any]]:
    """Scored sample rows with a depth, by index."""
    cell = block.cell(label, length)
    rows = [] if cell is None else scored(samples.get(cell["cell_id"], ()), cell["metric"])
    return {row["index"]: row for row in rows if (row.get("meta") or {}).get("depth") is not None}


def _row_of(row: Mapping[str, Any], edges: Sequence[float]) -> int:
    return min(bisect_right(edges, row["meta"]["depth"]), len(edges) - 1) - 1


def _score(block: Block, row: Mapping[str, Any]) -> float:
    return float(row["scores"][block.first["metric"]])


@dataclass(frozen=True)
class Look:
    """How fields are coloured and written: ends of the colour map in percent, whether values carry a sign; the colour
    bar's name, and more words for the title."""

    low: float
    high: float
    colours: str
    signed: bool
    name: str
    more: str = ""

    def text(self, value: float, count: int) -> str:
        shown = f"{100 * value:{'+' if self.signed else ''}.0f}".replace("-", "−")
        return ("0" if shown == "+0" else shown) + (f" ({count})" if count > 1 else "")

    def ink(self, value: float) -> str:
        """Black or white, whichever is read on the field's colour."""
        dark = abs(value) > 0.6 if self.signed else value <= 0.5
        return "white" if dark else "black"


def depth_heatmap(block: Block, samples: Samples, stem: Path) -> list[Path]:
    """One map per method: depth of the needle down, context length across, score as colour and number.

    Hatched fields were not measured (a failed cell shows its status); the line marks the trained window. A number in
    brackets is the count of samples where it is more than one. Returns no files where no sample has a depth.
    """
    if not has_depth(block, samples):
        return []
    edges = depth_edges(block, samples)
    maps = {label: depth_means(block, samples, label, edges) for label in block.labels}
    return _multiples(block, maps, edges, Look(0, 100, "cividis", False, f"{block.first['metric']} (%)"), stem)


def difference_heatmap(block: Block, samples: Samples, other: str, stem: Path) -> list[Path]:
    """One map per method: its score minus that of `other` on the same samples, in points; blue is better, brown worse.
    Returns no files where nothing is comparable."""
    edges = depth_edges(block, samples)
    labels = [label for label in block.labels if label != other]
    maps = {label: depth_differences(block, samples, label, other, edges) for label in labels}
    if not any(maps.values()):
        return []
    colours = "BrBG" if block.first["direction"] == "higher" else "BrBG_r"
    look = Look(-100, 100, colours, True, "difference (points)", f" minus that of {other}: green is better")
    return _multiples(block, maps, edges, look, stem)


def _multiples(block: Block, maps: Mapping[str, Fields], edges: Sequence[float], look: Look, stem: Path) -> list[Path]:
    lengths, labels, rows = block.lengths, list(maps), len(edges) - 1
    inside = sum(length <= block.trained_length for length in lengths)
    across = min(4, len(labels))
    down = math.ceil(len(labels) / across)
    width, height = max(2.0, 0.42 * len(lengths) + 0.3), max(1.5, 0.24 * rows + 0.75)
    window = tokens(block.trained_length)
    marked = f"orange line: trained window {window}" if 0 < inside < len(lengths) else f"trained window {window}"
    counts = "one sample per field, (n) where there are more"
    wide = max(across * width + 1.2, 4.4)
    said = wrapped(f"{block.title}{look.more}\n{counts} · hatched: not measured · {marked}", wide)
    high = down * height + 0.3 + 0.15 * len(said.splitlines())
    with figure(wide, high, across, down, squeeze=False, sharex=True, sharey=True) as (drawn, grid):
        mesh = None
        for place, axes in enumerate(grid.flat):
            axes.grid(False)
            if place >= len(labels):
                axes.set_axis_off()
                continue
            mesh = _map(axes, block, labels[place], maps[labels[place]], rows, look)
            if 0 < inside < len(lengths):
                axes.axvline(inside - 0.5, color="#D55E00", linewidth=1.8)
            axes.set_xticks(range(len(lengths)), [tokens(length) for length in lengths], fontsize=7)
            ticks = [f"{100 * low:.0f}–{100 * high:.0f}" for low, high in pairwise(edges)]
            axes.set_yticks(range(rows), ticks, fontsize=6.5)
            axes.tick_params(length=0, labelbottom=place + across >= len(labels))
        drawn.supxlabel("context length (tokens)", fontsize=8.5)
        drawn.supylabel("needle depth (%)", fontsize=8.5)
        drawn.suptitle(said, x=0.01, ha="left", fontsize=9)
        if mesh is not None:
            drawn.colorbar(mesh, ax=grid, label=look.name, shrink=0.8)
        return save(drawn, stem)


def _map(axes: Axes, block: Block, label: str, fields: Fields, rows: int, look: Look) -> Any:
    """One method's map; returns what the colour bar belongs to."""
    lengths = block.lengths
    table = [[100 * fields.get((at, length), (math.nan, 0))[0] for length in lengths] for at in range(rows)]
    mesh = axes.imshow(table, vmin=look.low, vmax=look.high, cmap=look.colours, aspect="auto")
    for at in range(rows):
        for column, length in enumerate(lengths):
            if (at, length) not in fields:
                spot = (column - 0.5, at - 0.5)
                axes.add_patch(Rectangle(spot, 1, 1, facecolor="white", edgecolor="#bbbbbb", hatch="////", linewidth=0))
                continue
            value, count = fields[at, length]
            axes.text(
                column, at, look.text(value, count), ha="center", va="center", fontsize=6.5, color=look.ink(value)
            )
    axes.set_title(label, fontsize=8.5)
    for column, length in enumerate(lengths):
        cell = block.cell(label, length)
        if cell is not None and cell["outcome_status"] != "ok":
            axes.text(column, (rows - 1) / 2, cell["outcome_status"], rotation=90, ha="center", va="center",
                      fontsize=6.5, color="#B00000", backgroundcolor="white")  # fmt: skip
    return mesh

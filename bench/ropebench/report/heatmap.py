"""Needle scores by depth and context length: one small heat map per method, in one figure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from matplotlib.patches import Rectangle

from ropebench.report.cells import Block, Samples
from ropebench.report.plots import figure, save, tokens

_MOST_ROWS = 11


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


def depth_means(
    block: Block, samples: Samples, label: str, edges: Sequence[float]
) -> dict[tuple[int, int], tuple[float, int]]:
    """(depth row, length) → (mean score 0–1, number of samples) of one method; absent where nothing was measured."""
    found: dict[tuple[int, int], list[float]] = {}
    for length in block.lengths:
        cell = block.cell(label, length)
        if cell is None:
            continue
        for row in samples.get(cell["cell_id"], ()):
            depth, score = (row.get("meta") or {}).get("depth"), row["scores"].get(cell["metric"])
            if depth is not None and score is not None and not row.get("skip"):
                at = min(bisect_right(edges, depth), len(edges) - 1) - 1
                found.setdefault((at, length), []).append(float(score))
    return {place: (sum(scores) / len(scores), len(scores)) for place, scores in found.items()}


def depth_heatmap(block: Block, samples: Samples, stem: Path) -> list[Path]:
    """Small multiples, one per method: depth of the needle down, context length across, score as colour and number.

    Hatched cells were not measured (a failed cell shows its status); the line marks the trained window. A number in
    brackets is the count of samples where it is more than one. Returns no files where no sample has a depth.
    """
    if not has_depth(block, samples):
        return []
    edges, lengths, labels = depth_edges(block, samples), block.lengths, block.labels
    bins, inside = len(edges) - 1, sum(length <= block.trained_length for length in block.lengths)
    across = min(4, len(labels))
    down = math.ceil(len(labels) / across)
    width = max(2.0, 0.42 * len(lengths) + 0.3)
    height = max(1.5, 0.24 * bins + 0.75)
    with figure(across * width + 1.2, down * height + 0.6, across, down, squeeze=False, sharex=True, sharey=True) as (
        drawn, grid,
    ):  # fmt: skip
        mesh = None
        for place, axes in enumerate(grid.flat):
            axes.grid(False)
            if place >= len(labels):
                axes.set_axis_off()
                continue
            means = depth_means(block, samples, labels[place], edges)
            table = [[means.get((at, length), (math.nan, 0))[0] * 100 for length in lengths] for at in range(bins)]
            mesh = axes.imshow(table, vmin=0, vmax=100, cmap="cividis", aspect="auto")
            for at in range(bins):
                for column, length in enumerate(lengths):
                    if (at, length) not in means:
                        spot = (column - 0.5, at - 0.5)
                        axes.add_patch(
                            Rectangle(spot, 1, 1, facecolor="white", edgecolor="#bbbbbb", hatch="////", linewidth=0)
                        )
                        continue
                    value, count = means[at, length]
                    text = f"{100 * value:.0f}" + (f" ({count})" if count > 1 else "")
                    colour = "black" if value > 0.5 else "white"
                    axes.text(column, at, text, ha="center", va="center", fontsize=6.5, color=colour)
            if 0 < inside < len(lengths):
                axes.axvline(inside - 0.5, color="#D55E00", linewidth=1.8)
            axes.set_title(labels[place], fontsize=8.5)
            for column, length in enumerate(lengths):
                cell = block.cell(labels[place], length)
                if cell is not None and cell["outcome_status"] != "ok":
                    axes.text(column, (bins - 1) / 2, cell["outcome_status"], rotation=90, ha="center", va="center",
                              fontsize=6.5, color="#B00000", backgroundcolor="white")  # fmt: skip
            axes.set_xticks(range(len(lengths)), [tokens(length) for length in lengths], fontsize=7)
            rows = [f"{100 * low:.0f}–{100 * high:.0f}" for low, high in pairwise(edges)]
            axes.set_yticks(range(bins), rows, fontsize=6.5)
            axes.tick_params(length=0, labelbottom=place + across >= len(labels))
        drawn.supxlabel("context length (tokens)", fontsize=8.5)
        drawn.supylabel("needle depth (%)", fontsize=8.5)
        window = tokens(block.trained_length)
        marked = f"orange line: trained window {window}" if 0 < inside < len(lengths) else f"trained window {window}"
        drawn.suptitle(f"{block.title}\nhatched: not measured · {marked}", x=0.01, ha="left", fontsize=9)
        if mesh is not None:
            drawn.colorbar(mesh, ax=grid, label=f"{block.first['metric']} (%)", shrink=0.8)
        return save(drawn, stem)

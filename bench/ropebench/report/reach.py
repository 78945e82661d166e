"""What a method costs inside the window against how far it reaches: the numbers, and the chart that decides.

Cost is the tax: the largest loss against the unmodified model at or below the trained window. Reach is, for a
likelihood, the gain over the unmodified model at the longest length; for a score, its effective length: the longest one
at which it keeps 85 % of what the unmodified model scores at the shortest length inside its window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ropebench.comparison import Difference
from ropebench.report.cells import Block
from ropebench.report.paired import tax, unit
from ropebench.report.plots import figure, line, save, tokens
from ropebench.report.style import styles

KEPT = 0.85  # of the unmodified model's own short score, as in NoLiMa


@dataclass(frozen=True)
class Reach:
    """Cost and reach of a method. `cost` counts losses as positive; `reach` is a gain in the metric's unit, or tokens
    (0: not even the shortest length). `low` and `high` of either are its interval, None where there is none."""

    cost: float
    cost_low: float | None
    cost_high: float | None
    reach: float
    low: float | None = None
    high: float | None = None


def reaches(block: Block, differences: Mapping[tuple[str, int], Difference]) -> dict[str, Reach]:
    """By method label, for those with both numbers; empty where nothing was measured on one side of the window."""
    found: dict[str, Reach] = {}
    longest = block.lengths[-1]
    if longest <= block.trained_length:
        return {}
    sign = 1 if block.first["direction"] == "lower" else -1
    for label in block.labels:
        if label == block.baseline:
            found[label] = Reach(0.0, None, None, (effective_length(block, label) or 0) if block.percent else 0.0)
            continue
        worst, far = tax(block, differences, label), differences.get((label, longest))
        if worst is None:
            continue
        cost, low, high = _signed(worst[1], sign)
        if block.percent:
            reach = effective_length(block, label)
            if reach is not None:
                found[label] = Reach(cost, low, high, reach)
        elif far is not None:
            found[label] = Reach(cost, low, high, *_signed(far, -sign))
    return found


def _signed(found: Difference, sign: int) -> tuple[float, float | None, float | None]:
    """Value and interval with losses (or gains) positive."""
    ends = [None if end is None else sign * end for end in (found.low, found.high)]
    low, high = ends if sign > 0 else reversed(ends)
    return sign * found.value, low, high


def effective_length(block: Block, label: str) -> int | None:
    """Tokens; 0 where not even the shortest length keeps enough; None without a baseline's score inside the window."""
    inside = [length for length in block.lengths if length <= block.trained_length]
    known = block.cell(block.baseline, inside[0]) if block.baseline and inside else None
    if known is None or known["value"] is None:
        return None
    cells = [(length, block.cell(label, length)) for length in block.lengths]
    return max((length for length, cell in cells if cell and cell["value"] is not None
                and cell["value"] >= KEPT * known["value"]), default=0)  # fmt: skip


def leading(found: Mapping[str, Reach]) -> list[str]:
    """Methods so near the best corner that they hide one another on axes which show all: within a tenth of the range
    from the furthest reach and from the least cost. All of them where none is far off."""
    costs, gains = [at.cost for at in found.values()], [at.reach for at in found.values()]
    near = [label for label, at in found.items()
            if at.cost - min(costs) <= 0.1 * (max(costs) - min(costs))
            and max(gains) - at.reach <= 0.1 * (max(gains) - min(gains))]  # fmt: skip
    return near if 1 < len(near) < len(found) else list(found)


def reach_plot(block: Block, found: Mapping[str, Reach], metric: str, stem: Path) -> list[Path]:
    """Cost to the right, reach upwards: better methods stand further up and further left. For a likelihood, methods
    that stand close together at the best corner are shown again, larger."""
    near = list(found) if block.percent else leading(found)
    panels = [list(found)] if len(near) == len(found) else [list(found), near]
    known = any(at.cost_low is not None for at in found.values())
    with figure(7.2 if len(panels) == 1 else 9.6, 4.2, columns=len(panels), squeeze=False) as (drawn, grid):
        for axes, labels in zip(grid.flat, panels, strict=True):
            _points(axes, block, found, labels)
            axes.set_xlabel(f"cost: largest loss up to {tokens(block.trained_length)} ({unit(block, metric)})")
        if block.percent:
            grid[0, 0].set_ylabel(f"reach: longest length with {100 * KEPT:.0f} % of {block.baseline}'s short score")
        else:
            gain = f"reach: gain at {tokens(block.lengths[-1])} ({unit(block, metric)})"
            grid[0, 0].set_ylabel(gain)
        if len(panels) == 2:
            grid[0, 1].set_title("the best corner, larger", loc="left", fontsize=9)
            grid[0, 0].set_title("all methods", loc="left", fontsize=9)
        bars = "bars: 95 % intervals" if known else "no intervals: n too small"
        drawn.suptitle(
            f"{block.title}\nagainst {block.baseline}; up: reaches further, left: costs less; {bars}",
            x=0.01, ha="left", fontsize=9,
        )  # fmt: skip
        handles, names = grid[0, 0].get_legend_handles_labels()
        drawn.legend(handles, names, loc="outside right center", fontsize=8)
        return save(drawn, stem)


def _points(axes: Axes, block: Block, found: Mapping[str, Reach], labels: Sequence[str]) -> None:
    looks = styles(block.labels, [block.name(label) for label in block.labels])
    scale = 100 if block.percent else 1
    for place, label in enumerate(labels):
        at, colour = found[label], looks[label].colour
        # Equal lengths side by side; 0 stands below the shortest one.
        up = 0.06 * (place - (len(labels) - 1) / 2)
        y = at.reach if not block.percent else up + sum(length <= at.reach for length in block.lengths)
        axes.plot([scale * at.cost], [y], label=label, **(line(looks[label]) | {"linestyle": "none"}))
        if at.cost_low is not None and at.cost_high is not None:
            axes.hlines([y], scale * at.cost_low, scale * at.cost_high, color=colour, linewidth=1.2)
        if at.low is not None and at.high is not None:
            axes.vlines([at.cost], at.low, at.high, color=colour, linewidth=1.2)
    if axes.get_xlim()[0] <= 0:
        axes.axvline(0, color="black", linewidth=1)
    if block.percent:
        names = [f"below {tokens(block.lengths[0])}", *map(tokens, block.lengths)]
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(-0.5, len(names) - 0.5)
        window = sum(length <= block.trained_length for length in block.lengths)
        axes.axhspan(window + 0.5, len(names) - 0.5, color="#000000", alpha=0.04, linewidth=0)
    else:
        axes.set_xlim(_at_least(axes.get_xlim()))
        axes.set_ylim(_at_least(axes.get_ylim()))
        if axes.get_ylim()[0] <= 0 <= axes.get_ylim()[1]:
            axes.axhline(0, color="black", linewidth=1)
    axes.xaxis.set_major_locator(MaxNLocator(6))


def _at_least(limits: tuple[float, float], width: float = 0.05) -> tuple[float, float]:
    """Axis limits no narrower than 0.05 nats, 5 % of a perplexity: closer up, noise would look like an order."""
    more = max(0.0, width - (limits[1] - limits[0])) / 2
    return limits[0] - more, limits[1] + more

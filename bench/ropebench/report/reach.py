"""What a method costs inside the window against how far it reaches: the numbers, and the chart that decides.

Cost is the tax: the largest loss against the unmodified model at or below the trained window. Reach is the effective
length (`effective.relative`) with its interval. Among measured lengths many methods of a likelihood reach the same one,
so that the gain over the unmodified model at the longest length is shown beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ropebench.comparison import Difference
from ropebench.report.cells import Block, Samples
from ropebench.report.effective import ENOUGH, Effective, Enough, curves, relative
from ropebench.report.paired import tax, unit
from ropebench.report.plots import figure, line, save, tokens, wrapped
from ropebench.report.style import styles


@dataclass(frozen=True)
class Reach:
    """Cost and reach of a method: losses count as positive, and `gain` (a likelihood's) is that at the longest length,
    both in the metric's unit. The ends are of their intervals, None where there is none."""

    cost: float
    cost_low: float | None
    cost_high: float | None
    far: Effective
    gain: float | None = None
    low: float | None = None
    high: float | None = None


def reaches(
    block: Block, differences: Mapping[tuple[str, int], Difference], samples: Samples, metric: str,
    enough: Enough = ENOUGH,
) -> dict[str, Reach]:  # fmt: skip
    """By method label, for those with both numbers; empty where nothing was measured on one side of the window."""
    found: dict[str, Reach] = {}
    longest = block.lengths[-1]
    if longest <= block.trained_length:
        return {}
    sign = 1 if block.first["direction"] == "lower" else -1
    known = curves(block, samples, metric)
    for label in block.labels:
        reached = relative(block, known, label, metric != block.first["metric"], enough.kept)
        worst, beyond = tax(block, differences, label), differences.get((label, longest))
        if reached is None:
            continue
        if label == block.baseline:
            found[label] = Reach(0.0, None, None, reached, None if block.percent else 0.0)
        elif worst is not None:
            gain = (None, None, None) if block.percent or beyond is None else _signed(beyond, -sign)
            found[label] = Reach(*_signed(worst[1], sign), reached, *gain)
    return found


def _signed(found: Difference, sign: int) -> tuple[float, float | None, float | None]:
    """Value and interval with losses (or gains) positive."""
    ends = [None if end is None else sign * end for end in (found.low, found.high)]
    low, high = ends if sign > 0 else reversed(ends)
    return sign * found.value, low, high


def leading(found: Mapping[str, Reach]) -> list[str]:
    """Methods so near the best corner of cost and gain that they hide one another where all are shown: within a tenth
    of the range from the largest gain and from the least cost. All of them where none is far off."""
    gains = {label: at.gain for label, at in found.items() if at.gain is not None}
    if not gains:
        return []
    costs = [found[label].cost for label in gains]
    most, least = max(gains.values()), min(gains.values())
    near = [label for label, gain in gains.items()
            if found[label].cost - min(costs) <= 0.1 * (max(costs) - min(costs))
            and most - gain <= 0.1 * (most - least)]  # fmt: skip
    return near if 1 < len(near) < len(gains) else list(gains)


def reach_plot(
    block: Block, found: Mapping[str, Reach], metric: str, stem: Path, enough: Enough = ENOUGH
) -> list[Path]:
    """Cost to the right, reach upwards: better methods stand further up and further left. For a likelihood the second
    half has the gain at the longest length, of the methods at the best corner where others are far off."""
    near = leading(found)
    known = any(at.cost_low is not None or at.far.low is not None for at in found.values())
    names = [label for label in block.labels if label in found]
    with figure(9.8 if near else 7.2, max(4.2, 0.27 * len(names) + 1.2), 2 if near else 1, squeeze=False) as (
        drawn, grid,
    ):  # fmt: skip
        left = grid[0, 0]
        _effective(left, block, found)
        left.set_ylabel(f"effective length ({enough.share:g} % of {block.baseline})")
        for axes in grid.flat:
            axes.set_xlabel(f"cost: largest loss up to {tokens(block.trained_length)} ({unit(block, metric)})")
        if near:
            _gains(grid[0, 1], block, found, near)
            grid[0, 1].set_ylabel(f"gain over {block.baseline} at {tokens(block.lengths[-1])} ({unit(block, metric)})")
            less = f"the {len(near)} at the best corner: " if len(near) < len(found) else ""
            grid[0, 1].set_title(f"{less}gain at {tokens(block.lengths[-1])}", loc="left", fontsize=9)
            left.set_title("how far", loc="left", fontsize=9)
        bars = "bars: 95 % intervals" if known else "no intervals: n too small"
        said = f"{block.title}\nagainst {block.baseline}; up: reaches further, left: costs less; {bars}"
        if any(at.far.open for at in found.values()):
            said += "\narrow: no longer length was measured"
        drawn.suptitle(wrapped(said, drawn.get_figwidth()), x=0.01, ha="left", fontsize=9)
        handles, shown = left.get_legend_handles_labels()
        drawn.legend(handles, shown, loc="outside right center", fontsize=8)
        return save(drawn, stem)


def _effective(axes: Axes, block: Block, found: Mapping[str, Reach]) -> None:
    """Measured lengths as steps, since nothing is known between them; equal ones side by side, 0 below the shortest."""
    looks = styles(block.labels, [block.name(label) for label in block.labels])
    scale = 100 if block.percent else 1
    step = min(0.08, 0.8 / max(len(found), 1))

    def place(length: int) -> int:
        return sum(one <= length for one in block.lengths)

    for label, at in found.items():
        equal = [one for one in found if found[one].far.tokens == at.far.tokens]
        colour, up = looks[label].colour, step * (equal.index(label) - (len(equal) - 1) / 2)
        x, y = scale * at.cost, place(at.far.tokens) + up
        axes.plot([x], [y], label=label, **(line(looks[label]) | {"linestyle": "none"}))
        if at.cost_low is not None and at.cost_high is not None:
            axes.hlines([y], scale * at.cost_low, scale * at.cost_high, color=colour, linewidth=1.2)
        if at.far.low is not None and at.far.high is not None and at.far.low < at.far.high:
            # Its ends are measured lengths, so they stand on those, not beside them as the marker may.
            axes.vlines([x], place(at.far.low), place(at.far.high), color=colour, linewidth=1.2)
    top = len(block.lengths)
    if any(at.far.open for at in found.values()):
        edge = axes.get_yaxis_transform()  # x as a share of the width
        arrow = {"arrowstyle": "->", "color": "#555555"}
        axes.annotate("", (0.97, top + 0.45), (0.97, top - 0.2), xycoords=edge, textcoords=edge, arrowprops=arrow)
    if not block.percent:
        # From hundredths of a nat to whole ones: linear near zero, logarithmic further out.
        axes.set_xscale("symlog", linthresh=0.1, linscale=1.5)
        low, high = axes.get_xlim()
        low, high = min(low, -0.01), max(high, 0.05)
        marks = [mark for mark in (-1, -0.3, -0.1, -0.05, 0, 0.05, 0.1, 0.3, 1, 3, 10) if low <= mark <= high]
        axes.set_xlim(low, 1.15 * high)
        axes.set_xticks(marks, [f"{mark:g}".replace("-", "−") for mark in marks])
        axes.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6))
    if axes.get_xlim()[0] <= 0:
        axes.axvline(0, color="black", linewidth=1, zorder=0)
    names = [f"below {tokens(block.lengths[0])}", *map(tokens, block.lengths)]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.5, top + 0.5)
    axes.axhspan(place(block.trained_length) + 0.5, top + 0.5, color="#000000", alpha=0.04, linewidth=0)


def _gains(axes: Axes, block: Block, found: Mapping[str, Reach], labels: Sequence[str]) -> None:
    looks = styles(block.labels, [block.name(label) for label in block.labels])
    for label in labels:
        at, colour = found[label], looks[label].colour
        if at.gain is None:
            continue
        axes.plot([at.cost], [at.gain], **(line(looks[label]) | {"linestyle": "none"}))
        if at.cost_low is not None and at.cost_high is not None:
            axes.hlines([at.gain], at.cost_low, at.cost_high, color=colour, linewidth=1.2)
        if at.low is not None and at.high is not None:
            axes.vlines([at.cost], at.low, at.high, color=colour, linewidth=1.2)
    axes.set_xlim(_at_least(axes.get_xlim()))
    axes.set_ylim(_at_least(axes.get_ylim()))
    if axes.get_xlim()[0] <= 0:
        axes.axvline(0, color="black", linewidth=1, zorder=0)
    if axes.get_ylim()[0] <= 0 <= axes.get_ylim()[1]:
        axes.axhline(0, color="black", linewidth=1, zorder=0)
    axes.xaxis.set_major_locator(MaxNLocator(6))


def _at_least(limits: tuple[float, float], width: float = 0.05) -> tuple[float, float]:
    """Axis limits no narrower than 0.05 nats, 5 % of a perplexity: closer up, noise would look like an order."""
    more = max(0.0, width - (limits[1] - limits[0])) / 2
    return limits[0] - more, limits[1] + more

"""Lines over context length and over position, and the frequency tables of `inspect`. PNG and SVG.

Every method has a look of its own (`style`); intervals are bands for up to three methods, else bars. The same data give
the same bytes on the same matplotlib: no dates, a fixed salt.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from PIL import Image

from ropebench.report.cells import Block, Samples
from ropebench.report.paired import unit
from ropebench.report.style import Style, method_of, styles

_RC: Any = {
    "svg.hashsalt": "ropebench",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.parse_math": False,  # a $ in a model's name is a $
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
_WINDOW = "#555555"
_MOST_BANDS = 3


@contextmanager
def figure(width: float, height: float, columns: int = 1, rows: int = 1, **more: Any) -> Iterator[tuple[Figure, Any]]:
    """A figure with our settings, closed on exit; yields (figure, axes as plt.subplots gives them)."""
    with plt.rc_context(_RC):
        drawn, axes = plt.subplots(rows, columns, figsize=(width, height), **more)
        try:
            yield drawn, axes
        finally:
            plt.close(drawn)


def save(drawn: Figure, stem: Path) -> list[Path]:
    """Write stem.png (150 dpi, 256 colours) and stem.svg without dates or program versions; returns both paths.

    A palette makes the PNG a third of its size; the page holds all of them. With 64 colours lines come out in others.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    png, svg = stem.with_name(stem.name + ".png"), stem.with_name(stem.name + ".svg")
    whole = BytesIO()
    drawn.savefig(whole, dpi=150, metadata={"Software": None})
    with Image.open(whole) as picture:
        picture.convert("RGB").quantize(256).save(png, optimize=True, dpi=(150, 150))
    drawn.savefig(svg, metadata={"Date": None, "Creator": "ropebench"})
    return [png, svg]


def wrapped(text: str, inches: float) -> str:
    """Lines of a title in 9 points, broken where they would leave a figure of this width."""
    return "\n".join(textwrap.fill(line, max(20, round(14 * inches))) for line in text.splitlines())


def value_by_length(block: Block, stem: Path) -> list[Path]:
    """The block's metric by context length. Scores on 0–100 %, open-ended metrics such as perplexity on a log axis.
    Where only one length was measured, one line per method and the metric across."""
    if len(block.lengths) == 1:
        return _value_at(block, block.lengths[0], stem)
    looks = styles(block.labels, [block.name(label) for label in block.labels])
    apart = Apart(len(block.labels), 0.03)
    with figure(7.2, 4.2) as (drawn, axes):
        for place, label in enumerate(block.labels):
            found = (block.cell(label, length) for length in block.lengths)
            cells = [cell for cell in found if cell is not None and cell["value"] is not None]
            if not cells:
                continue
            scale = 100 if block.percent else 1
            x = [apart.at(cell["condition_length"], place) for cell in cells]
            y = [scale * cell["value"] for cell in cells]
            axes.plot(x, y, label=label, **line(looks[label]))
            low = [scale * (cell["value"] if cell["low"] is None else cell["low"]) for cell in cells]
            high = [scale * (cell["value"] if cell["high"] is None else cell["high"]) for cell in cells]
            if len(block.labels) <= _MOST_BANDS:
                axes.fill_between(x, low, high, color=looks[label].colour, alpha=0.15, linewidth=0)
            axes.vlines(x, low, high, color=looks[label].colour, alpha=0.6, linewidth=1)
        length_axis(axes, block.lengths, block.trained_length, apart)
        if block.percent:
            axes.set_ylim(-4, 104)
        elif block.first["range_high"] is None:
            log_axis(axes)
        better = block.first["direction"]
        axes.set_ylabel(f"{block.measure}{' (%)' if block.percent else ''}, {better} is better")
        axes.set_title(wrapped(heading(block), 6.5), loc="left", fontsize=9, pad=14)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        return save(drawn, stem)


def _value_at(block: Block, length: int, stem: Path) -> list[Path]:
    looks = styles(block.labels, [block.name(label) for label in block.labels])
    scale = 100 if block.percent else 1
    with figure(6.4, 0.28 * len(block.labels) + 1.4) as (drawn, axes):
        for place, label in enumerate(block.labels):
            cell, look = block.cell(label, length), looks[label]
            if cell is None or cell["value"] is None:
                continue
            axes.plot([scale * cell["value"]], [place], **(line(look) | {"linestyle": "none"}))
            if cell["low"] is not None and cell["high"] is not None:
                axes.hlines([place], scale * cell["low"], scale * cell["high"], color=look.colour, linewidth=1.2)
        axes.set_yticks(range(len(block.labels)), block.labels)
        axes.set_ylim(len(block.labels) - 0.5, -0.5)
        if block.percent:
            axes.set_xlim(-4, 104)
        measured = f"{block.measure}{' (%)' if block.percent else ''}, {block.first['direction']} is better"
        axes.set_xlabel(f"{measured}, at {length} tokens (trained window {tokens(block.trained_length)})")
        axes.set_title(wrapped(heading(block), 5.2), loc="left", fontsize=9)
        return save(drawn, stem)


def line(look: Style) -> dict[str, Any]:
    """A Style as keyword arguments of Axes.plot."""
    face = "white" if look.hollow else look.colour
    return {
        "color": look.colour, "linestyle": look.line, "marker": look.marker, "markerfacecolor": face,
        "linewidth": 1.6, "markersize": 7 if look.marker in "*P" else 5.5,
    }  # fmt: skip


def heading(block: Block) -> str:
    """Two lines above a plot: what it shows, and the samples behind it."""
    done = [row for row in block.rows if row["outcome_status"] == "ok"]
    counts, clusters = sorted({row["n"] for row in done}), [row["clusters"] for row in done]
    kinds = sorted({row["interval"] for row in done if row["low"] is not None})
    said = f"n = {'–'.join(str(n) for n in sorted({counts[0], counts[-1]}))} per point" if counts else "no results"
    if any(row["clusters"] < row["n"] for row in done):
        several = sorted({min(clusters), max(clusters)})
        said += f" in {'–'.join(map(str, several))} haystack{'' if several[-1] == 1 else 's'}"
    bars = f"95 % intervals ({', '.join(kinds)})" if kinds else "no intervals: n too small"
    return f"{block.title}\n{said}, {bars}"


@dataclass(frozen=True)
class Apart:
    """Points of several methods at one length, side by side so that equal values stay visible. `step` in octaves."""

    methods: int
    step: float

    def at(self, length: float, place: int) -> float:
        """Where the `place`-th method's point stands."""
        return length * float(2 ** (self.step * (place - (self.methods - 1) / 2)))

    def beyond(self, length: float) -> float:
        """Just right of all points of a length: none of them lies beyond it."""
        return length * float(2 ** (self.step * (self.methods + 1) / 2))


def length_axis(axes: Axes, lengths: Sequence[int], trained: int, apart: Apart, named: bool = True) -> None:
    """log2 axis of context length in tokens, the trained window marked (and `named`), what lies beyond it shaded."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(lengths), [tokens(length) for length in lengths])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    # The window is in the plot wherever it lies: its name outside would leave no room for anything else.
    low, high = min(*lengths, trained) / 1.25, max(*lengths, trained) * 1.25
    axes.set_xlim(low, high)
    edge = apart.beyond(trained) if trained in lengths else trained
    axes.axvspan(edge, high, color="#000000", alpha=0.04, linewidth=0)
    mark_window(axes, trained, edge, named)
    if named:
        axes.set_xlabel("context length (tokens)")


def mark_window(axes: Axes, trained: int, at: float | None = None, named: bool = True) -> None:
    """A dotted line at the trained window (or right of the points that lie on it), named above the plot."""
    at = trained if at is None else at
    axes.axvline(at, color=_WINDOW, linestyle=(0, (1, 2)), linewidth=1.2, zorder=0)
    if not named:
        return
    axes.text(
        at, 1.005, f"trained window {tokens(trained)}", transform=axes.get_xaxis_transform(), fontsize=7,
        color=_WINDOW, ha="center", va="bottom",
    )  # fmt: skip


def tokens(length: float) -> str:
    """A number of tokens for an axis: 512, 8K, 2M (K = 1024)."""
    for size, name in ((1024**2, "M"), (1024, "K")):
        if length >= size:
            return f"{length / size:.3g}{name}"
    return f"{length:.3g}"


def log_axis(axes: Axes) -> None:
    """A log y axis with plain numbers at 1, 2, 3, 5, 7 × 10^k, so that small ranges still carry labels."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    wide = math.log10(high / low)
    subs = (1.0,) if wide > 4 else (1.0, 2.0, 5.0) if wide > 1 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=subs))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def difference_by_length(
    block: Block, differences: Mapping[tuple[str, int], Any], metric: str, stem: Path
) -> list[Path]:
    """Each method minus the baseline on identical samples, by length: bars are 95 % intervals of the paired mean.

    Differences reach from hundredths inside the window to whole nats beyond it, so the axis is linear near zero and
    logarithmic further out.
    """
    labels = [label for label in block.labels if label != block.baseline]
    apart = Apart(len(labels), 0.06)
    looks = styles(block.labels, [block.name(label) for label in block.labels])
    with figure(7.2, 4.2) as (drawn, axes):
        for place, label in enumerate(labels):
            known = [length for length in block.lengths if (label, length) in differences]
            points = [(length, differences[label, length]) for length in known]
            if not points:
                continue
            x = [apart.at(length, place) for length, _ in points]
            axes.plot(x, [found.value for _, found in points], label=label, **line(looks[label]))
            low = [found.value if found.low is None else found.low for _, found in points]
            high = [found.value if found.high is None else found.high for _, found in points]
            axes.vlines(x, low, high, color=looks[label].colour, linewidth=1.4)
        axes.axhline(0, color="black", linewidth=1)
        axes.set_yscale("symlog", linthresh=0.1, linscale=1.5)
        ticks = [-10, -3, -1, -0.3, -0.1, -0.05, 0, 0.05, 0.1, 0.3, 1, 3, 10]
        bottom, top = (1.3 * end for end in axes.get_ylim())  # markers at the ends stay whole
        axes.set_ylim(bottom, top)
        shown = [tick for tick in ticks if bottom <= tick <= top]
        axes.set_yticks(shown, [f"{tick:+g}".replace("-", "−") if tick else "0" for tick in shown])
        axes.yaxis.set_minor_formatter(NullFormatter())
        length_axis(axes, block.lengths, block.trained_length, apart)
        tested = any(found.low is not None for found in differences.values())
        bars = "95 % intervals" if tested else "no intervals: n too small"
        side = "below" if block.first["direction"] == "lower" else "above"
        axes.set_ylabel(f"{metric} − {metric} of {block.baseline} ({unit(block, metric)})\n{side} 0 is better")
        said = f"{block.title}\npaired difference to {block.baseline} on the same documents, {bars}"
        axes.set_title(wrapped(said, 6.5), loc="left", fontsize=9, pad=14)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        return save(drawn, stem)


def position_curve(samples: Samples, cells: Mapping[str, str], length: int) -> dict[str, list[tuple[float, float]]]:
    """Mean NLL by position, from the samples' bins: label → [(middle of the bin in tokens, nats per token)].

    `cells` maps row labels to cell_ids. Bins are merged to at most 32 over `length`; all scored tokens count alike.
    """
    curves = {}
    for label, cell_id in cells.items():
        sums: dict[int, list[float]] = {}
        for row in samples.get(cell_id, ()):
            bins = row.get("nll_bins")
            if not bins:
                continue
            width = bins["size"] * max(1, math.ceil(length / bins["size"] / 32))
            for place, (total, count) in enumerate(zip(bins["sum"], bins["count"], strict=True)):
                kept = sums.setdefault(place * bins["size"] // width, [0.0, 0.0, width])
                kept[0] += total
                kept[1] += count
        if sums:
            curves[label] = [((at + 0.5) * s[2], s[0] / s[1]) for at, s in sorted(sums.items()) if s[1]]
    return curves


def nll_by_position(block: Block, samples: Samples, length: int, stem: Path) -> list[Path]:
    """Mean NLL by token position at one length; no files (an empty list) where no sample has position bins."""
    cells = {label: cell["cell_id"] for label in block.labels if (cell := block.cell(label, length))}
    curves = position_curve(samples, cells, length)
    if not curves:
        return []
    looks = styles(block.labels, [block.name(label) for label in block.labels])
    with figure(7.2, 4.2) as (drawn, axes):
        for place, (label, points) in enumerate(curves.items()):
            axes.plot(
                [x for x, _ in points], [y for _, y in points], label=label,
                **(line(looks[label]) | {"markersize": 4, "markevery": (place % 7, 7), "linewidth": 1.3}),
            )  # fmt: skip
        axes.axvspan(block.trained_length, length, color="#000000", alpha=0.04, linewidth=0)
        axes.set_xlim(0, length)
        if block.trained_length < length:
            mark_window(axes, block.trained_length)
        axes.set_xticks([length * k // 8 for k in range(9)], [tokens(length * k / 8) for k in range(9)])
        axes.set_xlabel("position in the document (tokens)")
        axes.set_ylabel("negative log-likelihood (nats per token)")
        n = max(row["n"] for row in block.rows if row["condition_length"] == length)
        said = f"{block.title}\nby position, length {length}, {n} documents"
        axes.set_title(wrapped(said, 6.5), loc="left", fontsize=9, pad=14)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        return save(drawn, stem)


def plot_frequencies(rows: Sequence[Mapping[str, Any]], trained_length: int, stem: Path) -> list[Path]:
    """What methods do to the rotary pairs. Left: slowdown (the product of λ up to a pair) against the pair's default
    wavelength; right: λ_j by pair.

    `rows`: {"label", "wavelength": the method's own wavelength per pair in tokens, "lambda": λ_j per pair}, and
    optionally "name" (the method's name, for its colour). The default wavelength is wavelength ÷ slowdown.
    """
    looks = styles([row["label"] for row in rows], [row.get("name") or method_of(row["label"]) for row in rows])
    with figure(9.6, 4.0, columns=2) as (drawn, (left, right)):
        for row in rows:
            look = {**line(looks[row["label"]]), "markersize": 4, "markevery": 2}
            slowdown, product = [], 1.0
            for factor in row["lambda"]:
                product *= factor
                slowdown.append(product)
            default = [own / slow for own, slow in zip(row["wavelength"], slowdown, strict=True)]
            left.plot(default, slowdown, label=row["label"], **look)
            right.plot(range(len(row["lambda"])), row["lambda"], **look)
        left.set_xscale("log", base=2)
        left.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tokens(value)))
        left.set_xlabel("default wavelength (tokens per turn)")
        left.set_ylabel("slowdown (× default wavelength)")
        mark_window(left, trained_length)
        right.set_xlabel("pair j (0 turns fastest)")
        right.set_ylabel("λ_j (slowdown of pair j ÷ that of pair j − 1)")
        left.set_title("pairs right of the line never turn fully within the window", loc="left", fontsize=9, pad=14)
        right.set_title("radix of each pair", loc="left", fontsize=9, pad=14)
        drawn.legend(loc="outside right center", fontsize=8)
        return save(drawn, stem)

"""Plots of lens records: energy over wavelength, scores by band, mutual information over distance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from ropebench.report.lens import DEFAULT, domains
from ropebench.report.plots import figure, line, log_axis, mark_window, save, tokens
from ropebench.report.style import styles

Record = Mapping[str, Any]

_TEXTS = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"), ("#56B4E9", "P"))
_RANDOM = "#888888"


def plot(record: Record, stem: Path) -> list[Path]:
    """Write stem.png and stem.svg; no files for a kind of record that has no plot here."""
    kinds = {"spectrum": spectrum, "dependence": dependence}
    draw = kinds.get(record["lens"]["what"])
    return [] if draw is None else draw(record, stem)


def spectrum(record: Record, stem: Path) -> list[Path]:
    """Left: share of energy by wavelength, per text, beside random weights. Right: where each method moves each pair;
    below both, where methods were given, the scores by band and distance."""
    lens, window = record["lens"], record["model"]["trained_length"]
    several = len(lens["tables"]) > 1
    with figure(10.0, 3.9, columns=2 if several else 1) as (drawn, axes):
        left = axes[0] if several else axes
        _energy(left, lens, window)
        if several:
            _moved(axes[1], lens, window)
        n = f"n = {lens['n']} prompts of {lens['length']} tokens per text, 95 % intervals"
        left.set_title(f"{record['model']['id']} · frequency energy\n{n}", loc="left", fontsize=9, pad=14)
        drawn.legend(loc="outside lower center", fontsize=8, ncols=4)
        files = save(drawn, stem)
    if lens["scores"] and several:
        files += _scores(record, stem.with_name(stem.name + "_scores"))
    return files


def _waves(inv_freq: Sequence[float]) -> list[float]:
    return [2 * math.pi / f if f else math.nan for f in inv_freq]


def _energy(axes: Axes, lens: Mapping[str, Any], window: int) -> None:
    own = lens["tables"][0]
    waves = _waves(own["inv_freq"])
    for place, (label, domain) in enumerate(domains(lens, own)):
        colour, marker = _TEXTS[place % len(_TEXTS)]
        y = [100 * p for p in domain["shares"]]
        axes.plot(waves, y, color=colour, marker=marker, markersize=3.5, linewidth=1.3, label=label)
        if None not in domain["low"]:
            low, high = ([100 * p for p in domain[end]] for end in ("low", "high"))
            axes.fill_between(waves, low, high, color=colour, alpha=0.18, linewidth=0)
        theta = domain["variants"][DEFAULT]["theta_eff"]["value"]
        axes.axvline(2 * math.pi / theta, color=colour, linewidth=1, linestyle="--")
    if lens["random"]:
        y = [100 * p for p in lens["random"]["shares"]]
        axes.plot(waves, y, color=_RANDOM, linewidth=1.3, linestyle=":", marker="x", markersize=3,
                  label=f"random weights ×{lens['random']['inits']}")  # fmt: skip
    _wavelength_axis(axes, window)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("share of energy (%), dashed: θ_eff")


def _moved(axes: Axes, lens: Mapping[str, Any], window: int) -> None:
    """Share of energy against the wavelength that each method gives the pair: the trained spectrum, moved."""
    first = domains(lens, lens["tables"][0])[0][0]
    looks = styles([one["label"] for one in lens["tables"]], [one["name"] for one in lens["tables"]])
    for one in lens["tables"]:
        y = [100 * p for p in one["domains"][first]["shares"]]
        look = {**line(looks[one["label"]]), "markersize": 3.5, "linewidth": 1.2}
        axes.plot(_waves(one["inv_freq"]), y, label=one["label"], **look)
    _wavelength_axis(axes, window)
    axes.set_ylim(bottom=0)
    axes.set_title(f"where each method moves each pair, and its share there\n{first}", loc="left", fontsize=9, pad=14)


def _wavelength_axis(axes: Axes, window: int) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tokens(value)))
    axes.set_xlabel("wavelength (tokens per turn)")
    mark_window(axes, window)


def _scores(record: Record, stem: Path) -> list[Path]:
    """Deviation of standardised scores by distance, a panel per band: 1 is that of the unmodified model in its window;
    the mean is the thin line, 0 there."""
    scores = record["lens"]["scores"]
    bands = list(scores["pairs"])
    looks = styles([one["label"] for one in scores["methods"]], [one["name"] for one in scores["methods"]])
    with figure(3.4 * len(bands), 3.6, columns=len(bands), sharey=True, squeeze=False) as (drawn, grid):
        for axes, band in zip(grid[0], bands, strict=True):
            for one in scores["methods"]:
                found = [(2.0**k, row) for k, row in enumerate(one["bands"][band]["by_octave"]) if row is not None]
                x, look = [at for at, _ in found], line(looks[one["label"]])
                label = one["label"] if band == bands[0] else None
                axes.plot(x, [row["deviation"] for _, row in found], label=label, **{**look, "markersize": 4})
                axes.plot(x, [row["mean"] for _, row in found], color=look["color"], linewidth=0.8, alpha=0.7)
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tokens(value)))
            mark_window(axes, scores["window"])
            head = f"{record['model']['id']} · attention scores\n" if band == bands[0] else ""
            axes.set_title(f"{head}{band} band", loc="left", fontsize=9, pad=14)
            axes.set_xlabel("distance, from (tokens)")
        grid[0][0].set_ylabel("scores: deviation (marked), mean (thin)")
        drawn.legend(loc="outside lower center", fontsize=8, ncols=5)
        return save(drawn, stem)


def dependence(record: Record, stem: Path) -> list[Path]:
    """Mutual information over distance in bytes, a line per granularity; W marked. On the left as measured, on the
    right each with its own level taken out, where self-similar text has one curve."""
    lens = record["lens"]
    with figure(10.0, 4.0, columns=2) as (drawn, (left, right)):
        for place, one in enumerate(lens["granularities"]):
            colour, marker = _TEXTS[place % len(_TEXTS)]
            found = [(r * one["bytes_per_token"], *rest) for r, *rest in
                     zip(one["distances"], one["mi"], one["low"], one["high"], one["shown"], strict=True)]  # fmt: skip
            if not any(row[4] for row in found):
                continue
            x = [row[0] for row in found]  # a line breaks where nothing is shown to be above 0
            y, low, high = ([row[at] if row[4] else math.nan for row in found] for at in (1, 2, 3))
            look = {"color": colour, "marker": marker, "markersize": 3.5, "linewidth": 1.2}
            left.plot(x, y, label=f"{one['name']} ({one['classes']} classes)", **look)
            left.fill_between(x, low, high, color=colour, alpha=0.18, lw=0)
            shown = [math.log(row[1]) for row in found if row[4]]
            level = math.exp(sum(shown) / len(shown))
            right.plot(x, [value / level for value in y], **look)
            if one["width"]["value"] is not None:
                left.axvline(one["width"]["value"] * one["bytes_per_token"], color=colour, linestyle="--", linewidth=1)
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            log_axis(axes)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tokens(value)))
            axes.set_xlabel("distance (bytes)")
        left.set_ylabel("mutual information (nats), dashed: W")
        right.set_ylabel("÷ its geometric mean")
        head = f"{lens['source']['label']} · dependence on distance\n{lens['groups']} parts, 95 % intervals"
        left.set_title(head, loc="left", fontsize=9)
        right.set_title("shapes alone: one curve where self-similar", loc="left", fontsize=9)
        drawn.legend(loc="outside lower center", fontsize=8, ncols=5)
        return save(drawn, stem)

"""Plots of the experiments with small models, from their records: PNG and SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from ropebench.lens.experiment.law import PAPER_CONSTANT, fitted
from ropebench.report.cells import Record
from ropebench.report.experiments import kinds, measured, names_of, of, points, scores, setting, trainings
from ropebench.report.plots import figure, line, log_axis, save, tokens
from ropebench.report.style import styles

_LEGEND = 7
_MAIN = "#0072B2"
_OTHERS = (("#E69F00", "^"), ("#009E73", "s"), ("#CC79A7", "v"), ("#D55E00", "D"), ("#777777", "P"))


def draw(records: Sequence[Record], folder: Path) -> list[Path]:
    """experiment_NAME.png and .svg of each experiment among the records; returns the paths.

    Where models were trained in several ways, those with the most steps are shown: plots mix none.
    """
    makers: dict[str, Callable[[list[Record], Path], list[Path]]] = {"block": block, "igsm": igsm, "pi": pi}
    drawn = []
    for name, make in makers.items():
        groups = sorted(trainings(of(records, name)), key=lambda one: setting(one[0], "training")["steps"])
        if groups:
            drawn += make(groups[-1], folder / f"experiment_{name}")
    return drawn


def block(records: list[Record], stem: Path) -> list[Path]:
    """Left: effective frequency by block length, every model a point, with the fit, π/B and the paper's 3.02/B.
    Right: the spectra behind the main form's points."""
    forms = sorted(kinds(records, "form"), key=lambda f: -sum(setting(r, "form") == f for r in records))
    main = [r for r in records if setting(r, "form") == forms[0]]
    with figure(10.4, 4.4, columns=2) as (drawn, (left, right)):
        for place, form in enumerate(forms):
            own = points([r for r in records if setting(r, "form") == form])
            colour, marker = (_MAIN, "o") if place == 0 else _OTHERS[(place - 1) % len(_OTHERS)]
            shift = 2 ** (0.05 * (place - (len(forms) - 1) / 2))  # side by side
            x, y = [p.size * shift for p in own], [p.theta for p in own]
            found = fitted(own)
            label = form
            if found is not None and found.slope.low is not None and found.slope.high is not None:
                label += f": slope {found.slope.value:.2f} [{found.slope.low:.2f}, {found.slope.high:.2f}]"
            look = {"s": 26, "color": colour, "marker": marker, "zorder": 3 if place == 0 else 2}
            left.scatter(x, y, label=label.replace("-", "−"), alpha=0.9 if place == 0 else 0.6, **look)
            if place == 0 and found is not None:
                ends = np.array([min(p.size for p in own), max(p.size for p in own)])
                left.plot(ends, [found.at(float(end)) for end in ends], color=colour, linewidth=1.4)
        sizes = np.array(sorted(set(kinds(records, "size"))), float)
        left.plot(sizes, math.pi / sizes, color="black", linestyle="--", linewidth=1, label="π/B (theory)")
        paper = f"{PAPER_CONSTANT}/B (paper)"
        left.plot(sizes, PAPER_CONSTANT / sizes, color="black", linestyle=":", linewidth=1, label=paper)
        _size_axis(left, sizes, "block length B (tokens)")
        left.set_ylabel("effective frequency θ_eff (radians per token)")
        left.legend(fontsize=_LEGEND, loc="lower left")
        left.set_title(f"one point per trained model, {len(records)} models\n95 % intervals over sizes", loc="left",
                       fontsize=9)  # fmt: skip
        _spectra(right, main, "B")
        right.set_title(f"spectra of {forms[0]}, mean over seeds\ndashed: before training", loc="left", fontsize=9)
        return save(drawn, stem)


def igsm(records: list[Record], stem: Path) -> list[Path]:
    """Left: effective frequency by the number of operations, with π/W of the data. Right: the spectra."""
    with figure(10.4, 4.2, columns=2) as (drawn, (left, right)):
        own, found = points(records), fitted(points(records))
        label = "models"
        if found is not None and found.slope.low is not None and found.slope.high is not None:
            label += f": slope {found.slope.value:.2f} [{found.slope.low:.2f}, {found.slope.high:.2f}]"
        left.scatter([p.size for p in own], [p.theta for p in own], s=26, color=_MAIN, label=label.replace("-", "−"))
        sizes = np.array(sorted(set(kinds(records, "size"))), float)
        if found is not None:
            left.plot(sizes, [found.at(float(size)) for size in sizes], color=_MAIN, linewidth=1.4)
        wide = [(setting(r, "size"), math.pi / measured(r)["width"]["value"]) for r in records
                if measured(r)["width"]["value"]]  # fmt: skip
        left.scatter(
            *zip(*wide, strict=True), s=22, marker="x", color="black", label="π/W of the data"
        ) if wide else None
        _size_axis(left, sizes, "operations of a problem")
        left.set_ylabel("frequency (radians per token)")
        left.legend(fontsize=_LEGEND)
        left.set_title("one point per trained model; 95 % interval over sizes", loc="left", fontsize=9)
        _spectra(right, records, "operations")
        right.set_title("spectra, mean over seeds; dashed: before training", loc="left", fontsize=9)
        return save(drawn, stem)


def _size_axis(axes: Axes, sizes: Sequence[float] | np.ndarray, label: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(sizes), [f"{size:g}" for size in sizes])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    axes.set_xlabel(label)
    log_axis(axes)


def _spectra(axes: Axes, records: Sequence[Record], what: str) -> None:
    """Energy share of each pair over its wavelength, a line per size."""
    sizes = sorted(set(kinds(records, "size")))
    for place, size in enumerate(sizes):
        own = [r for r in records if setting(r, "size") == size]
        wavelength = 2 * math.pi / np.array(measured(own[0])["spectrum"]["inv_freq"])
        share = np.mean([measured(r)["spectrum"]["shares"] for r in own], axis=0)
        colour = colormaps["viridis"](0.9 * place / max(len(sizes) - 1, 1))
        axes.plot(wavelength, share, color=colour, marker=".", linewidth=1.3, label=f"{what} {size:g}")
    before = np.mean([measured(r)["initial"]["shares"] for r in records], axis=0)
    axes.plot(wavelength, before, color="black", linestyle="--", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: tokens(value))
    axes.set_xlabel("wavelength of the pair (tokens per turn)")
    axes.set_ylabel("share of frequency energy")
    axes.legend(fontsize=_LEGEND)


def pi(records: list[Record], stem: Path) -> list[Path]:
    """A column per kind and sort of test: perplexity above, exactness below it, by factor; at the bottom how the
    training data and the test's depend on distance."""
    looks: list[tuple[str, str, list[Record]]] = []
    for form in kinds(records, "form"):
        own = [record for record in records if setting(record, "form") == form]
        looks += [(form, sort, own) for sort in dict.fromkeys(test["test"] for test in measured(own[0])["tests"])]
    with figure(max(2.9 * len(looks), 6.4), 8.2, columns=len(looks), rows=3, squeeze=False) as (drawn, grid):
        for column, (form, sort, own) in enumerate(looks):
            names, factors = names_of(own)
            faces = styles(names, names)
            for axes, key in zip(grid[:2, column], ("perplexity", "accuracy"), strict=True):
                for name in names:
                    values = [scores(own, sort, name, factor, key) for factor in factors]
                    mean = [float(np.mean(value)) for value in values]
                    axes.plot(factors, mean, label=name, **(line(faces[name]) | {"markersize": 3.5, "linewidth": 1.2}))
                    axes.vlines(factors, [min(v) for v in values], [max(v) for v in values],
                                color=faces[name].colour, alpha=0.4, linewidth=1)  # fmt: skip
                axes.set_xscale("log", base=2)
                axes.set_xticks(factors, [f"×{factor}" for factor in factors])
                axes.minorticks_off()
            log_axis(grid[0, column])
            grid[1, column].set_ylim(-0.04, 1.04)
            grid[1, column].set_xlabel("length ÷ trained window")
            said = {"same": "not dilated", "dilated": "dilated"}[sort]
            grid[0, column].set_title(f"{form}, {said}", fontsize=9, loc="left")
            found = measured(own[0])["dependence"]
            for name, look, label in (("training", "-", "training data"), (sort, "--", f"test at ×{factors[-1]}")):
                profile = found[name]["profile"]
                mi = np.array(profile["mi"])
                grid[2, column].plot(
                    profile["distances"], np.where(mi > 0, mi, np.nan), look, linewidth=1.2, label=label
                )
            grid[2, column].set_xscale("log", base=2)
            grid[2, column].xaxis.set_major_formatter(lambda value, _: tokens(value))
            log_axis(grid[2, column])
            grid[2, column].set_xlabel("distance (tokens)")
            grid[2, column].legend(fontsize=_LEGEND)
        for axes, label in zip(grid[:, 0], ("perplexity", "exact", "mutual information (nats)"), strict=True):
            axes.set_ylabel(label)
        drawn.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", fontsize=_LEGEND,
                     ncols=6)  # fmt: skip
        seeds = len(kinds(records, "seed"))
        drawn.suptitle(f"small models past their window: mean over {seeds} seed(s), bars lowest to highest", fontsize=9,
                       x=0.01, ha="left")  # fmt: skip
        return save(drawn, stem)

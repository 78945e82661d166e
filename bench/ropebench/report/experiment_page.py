"""What the experiments with small models came to: a page of sentences, tables and plots, all from their records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean

from ropebench.lens.experiment.law import PAPER_CONSTANT, PAPER_SLOPE, Line, fitted
from ropebench.report.cells import Record
from ropebench.report.experiments import ends, kinds, measured, names_of, of, points, scores, setting, tables, trainings
from ropebench.report.tables import as_markdown
from ropebench.stats import Interval

README = "experiments.md"
FIXED = "recall_fixed"  # the form of one context for every size
ENOUGH = 5  # sizes for a law
SLOPES, CONSTANTS = (-1.2, -0.8), (2.5, 3.8)  # ours: where we would call it the paper's law

_OPENING = """# Experiments with small models

Made from lens records by `ropebench lens experiment block|igsm|pi --out`. The claims are those of arXiv:2607.07678,
which could not be read in full: sizes, data and measures are ropebench's own (`bench/ropebench/lens/experiment/`), and
that a number here is off the paper's says as much about the formulation as about the claim.
"""


def write(records: Iterable[Record], folder: Path) -> list[Path]:
    """experiments.md and the plots of every experiment among the records; returns the files."""
    from ropebench.report import experiment_plots

    kept = list(records)
    drawn = experiment_plots.draw(kept, folder)
    page = folder / README
    page.write_text(document(kept), encoding="utf-8", newline="\n")
    return [page, *drawn]


def document(records: Iterable[Record]) -> str:
    """Per experiment: what came out in sentences, the plot, the tables. A sentence says what its numbers show."""
    kept, parts = list(records), [_OPENING]
    makers: dict[str, Callable[[list[Record]], list[str]]] = {"block": block, "igsm": igsm, "pi": pi}
    for name, make in makers.items():
        own = of(kept, name)
        if own:
            said = [line for alike in trainings(own) for line in make(alike)]
            parts += [f"## {name}\n", "\n".join(f"- {line}" for line in said) + "\n"]
            parts += [f"![{name}](experiment_{name}.png)\n", *(as_markdown(table) for table in tables(own))]
    return "\n".join(parts)


def holds(found: Interval, value: float) -> bool:
    """Whether an interval holds a value; one that is not there holds none."""
    return found.low is not None and found.high is not None and found.low <= value <= found.high


def block(records: list[Record]) -> list[str]:
    """The law of the main form, beside the paper's and the theory's numbers; then the other forms and variants."""
    forms = sorted(kinds(records, "form"), key=lambda f: -sum(setting(r, "form") == f for r in records))
    said = []
    for place, form in enumerate(forms):
        own = [r for r in records if setting(r, "form") == form]
        line = fitted(points(own))
        if line is None:
            said.append(f"`{form}`: {_count(own)} of one size, so no line.")
        elif place == 0 or len(set(kinds(own, "size"))) >= ENOUGH:
            said += _law(form, own, line)
        else:
            kind = "" if line.slope.low is not None else " (no interval)"
            said.append(f"`{form}` (B = {_sizes(own)}, {_count(own)}): slope {ends(line.slope)}, c = "
                        f"{ends(line.at_minus_one)} at slope −1{kind}{_failing(line)}.")  # fmt: skip
    if FIXED in forms and len(forms) > 1:
        said.append(f"In every form but `{FIXED}` a context is a number of blocks: its length grows with B, "
                    f"and a slope is of both together. Only `{FIXED}` tells them apart.")  # fmt: skip
    deaf = [r for r in records if measured(r)["held_out"]["accuracy"] < 2 * measured(r)["chance"]]
    if deaf:
        which = ", ".join(sorted({f"{setting(r, 'form')} B = {setting(r, 'size')}" for r in deaf}))
        said.append(f"Right less than twice as often as a guess: {_count(deaf)} of {len(records)} ({which}).")
    return said


def _law(form: str, own: list[Record], line: Line) -> list[str]:
    def beside(found: Interval, *numbers: tuple[float, str]) -> str:
        if found.low is None:
            return "no interval: too few sizes"
        return " and ".join(f"{name} lies {'inside' if holds(found, value) else 'outside'}" for value, name in numbers)

    slope, constants = (PAPER_SLOPE, "−1"), ((PAPER_CONSTANT, f"{PAPER_CONSTANT} (paper)"), (math.pi, "π (theory)"))
    middle, at = line.slope.value or 0.0, line.at_minus_one.value or 0.0
    within = SLOPES[0] <= middle <= SLOPES[1] and CONSTANTS[0] <= at <= CONSTANTS[1]
    verdict = "the law with the paper's constant" if within else "the law with another constant"
    if not SLOPES[0] <= middle <= SLOPES[1]:
        verdict = "no law of slope −1"
    variants = [fitted(points(own, name)) for name in measured(own[0])["spectrum"]["theta_eff"]]
    slopes = sorted(float(one.slope.value or 0) for one in variants if one)
    levels = sorted(float(one.at_minus_one.value or 0) for one in variants if one)
    span = f"slopes {slopes[0]:.2f} to {slopes[-1]:.2f}, c {levels[0]:.2f} to {levels[-1]:.2f}".replace("-", "−")
    return [
        f"`{form}` (B = {_sizes(own)}, {_count(own)}): {verdict}. Slope {ends(line.slope)}: "
        f"{beside(line.slope, slope)}. c = {ends(line.at_minus_one)} at slope −1: "
        f"{beside(line.at_minus_one, *constants)}. With the slope left free c = {ends(line.constant)}: "
        f"{beside(line.constant, *constants)}.",
        f"`{form}` over the {len(variants)} variants of the measure that the definition leaves open: {span}.",
    ]


def _failing(line: Line) -> str:
    if line.slope.low is not None and not holds(line.slope, PAPER_SLOPE):
        return ": the law fails here"
    return "" if SLOPES[0] <= (line.slope.value or 0.0) <= SLOPES[1] else ": too uncertain to tell"


def igsm(records: list[Record]) -> list[str]:
    """Whether the spectrum moves with the number of operations, and whether the data's width does."""
    line = fitted(points(records))
    if line is None:
        return [f"{_count(records)} of one number of operations, so no line."]
    moves = "no interval: too few numbers of operations"
    if line.slope.low is not None and line.slope.high is not None:
        moves = "to lower frequencies" if line.slope.high < 0 else "to higher frequencies" if line.slope.low > 0 else ""
        moves = f"the spectrum moves {moves} as they grow" if moves else "no shift is shown: the interval holds 0"
    widths = {size: [measured(r)["width"]["value"] for r in records if setting(r, "size") == size and
                     measured(r)["width"]["value"]] for size in sorted(set(kinds(records, "size")))}  # fmt: skip
    wide = ", ".join(f"{size:g}: {fmean(values):.3g}" if values else f"{size:g}: none shown"
                     for size, values in widths.items())  # fmt: skip
    right = fmean(measured(r)["answers"]["accuracy"] for r in records)
    solved = f"{100 * right:.1f} % of the answers are right, {100 * measured(records[0])['chance']:.1f} % by guessing"
    return [
        f"ln θ_eff over ln operations ({_sizes(records)}; {_count(records)}) has slope {ends(line.slope)}: {moves}.",
        f"W of the problems in tokens, by operations: {wide}. It is that of neighbouring words as well as of steps.",
        f"{solved}: what the spectra show is the language of the problems"
        + ("." if right < 2 * measured(records[0])["chance"] else ", and a part of their sums."),
    ]


def pi(records: list[Record]) -> list[str]:
    """Per kind and sort of test, at the largest factor: PI, and the best other method, against no method at all."""
    said = []
    for form in kinds(records, "form"):
        own = [r for r in records if setting(r, "form") == form]
        names, factors = names_of(own)
        for sort in dict.fromkeys(test["test"] for test in measured(own[0])["tests"]):
            inside = fmean(scores(own, sort, "none", 1, "accuracy"))
            others = [name for name in names if name not in ("none", "pi")]
            best = max(others, key=lambda n: fmean(scores(own, sort, n, factors[-1], "accuracy")))
            what = {"same": "not dilated", "dilated": "dilated"}[sort]
            claim = _claimed(form, sort, *_gains(own, sort, "pi", factors[-1]))
            said.append(
                f"`{form}`, {what}, ×{factors[-1]} ({_count(own)}, {100 * inside:.0f} % exact in the window): PI "
                f"{_beside(own, sort, 'pi', factors[-1])}. {claim} The most "
                f"exact of the other methods, {best}: {_beside(own, sort, best, factors[-1])}."
            )
    return said


def _gains(records: Sequence[Record], sort: str, name: str, factor: int) -> tuple[list[float], list[float]]:
    """Of a method over `none`, model by model on the same sequences: ratios of perplexity, gains in exact points."""
    found = {key: zip(scores(records, sort, "none", factor, key), scores(records, sort, name, factor, key), strict=True)
             for key in ("perplexity", "accuracy")}  # fmt: skip
    ratios = [new / old for old, new in found["perplexity"]]
    return ratios, [100 * (new - old) for old, new in found["accuracy"]]


def _beside(records: Sequence[Record], sort: str, name: str, factor: int) -> str:
    ratios, gains = _gains(records, sort, name, factor)
    exact = " → ".join(f"{100 * fmean(scores(records, sort, one, factor, 'accuracy')):.1f}" for one in ("none", name))
    words = f"perplexity {_side([1 - ratio for ratio in ratios])}, exactness {_side(gains)}"
    return (f"perplexity × {_from_to(ratios, '.3g')}, exact {exact} % ({_from_to(gains, '+.1f')} points): "
            f"{words}").replace("-", "−")  # fmt: skip


def _from_to(values: Sequence[float], form: str) -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def _claimed(form: str, sort: str, ratios: Sequence[float], gains: Sequence[float]) -> str:
    """What the paper says of PI on such data, and whether every model here shows it."""
    likelier, exacter = max(ratios) < 1, min(gains) > 0
    if sort == "dilated":
        claim, shown = "PI succeeds, as the test is the training data dilated", likelier and exacter
    elif form == "blocks":
        claim, shown = "PI fails, as the test is not the training data dilated", min(ratios) > 1 and max(gains) < 0
    elif form == "text":
        claim, shown = "text is about self-similar, so that PI succeeds", likelier and exacter
    else:
        claim, shown = (
            "PI lowers the perplexity of arithmetic and does not raise its exactness",
            likelier and not exacter,
        )
    return f"Claimed: {claim}. {'Shown' if shown else 'Not shown'} here."


def _side(gains: Sequence[float]) -> str:
    if min(gains) > 0:
        return "better in every model"
    return "worse in every model" if max(gains) < 0 else "not better in every model, nor worse"


def _count(records: Sequence[Record]) -> str:
    return f"{len(records)} model{'s' * (len(records) != 1)}"


def _sizes(records: Sequence[Record]) -> str:
    return ", ".join(f"{size:g}" for size in sorted(set(kinds(records, "size"))))

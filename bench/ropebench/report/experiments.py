"""Tables of the experiments with small models (`ropebench.lens.experiment`), from their records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

from ropebench.lens.experiment.law import PAPER_CONSTANT, PAPER_SLOPE, Line, Point, fitted
from ropebench.report.cells import Record
from ropebench.report.style import order
from ropebench.report.tables import Table
from ropebench.stats import Interval

DEFAULT = "causal/mean_square/share"  # the first variant of `ropebench.lens.spectrum`
_SHORT = "trained with a handful of steps: these numbers only show that the command runs"
_FEW_STEPS = 50


def tables(records: Iterable[Record]) -> list[Table]:
    """Those of each experiment that has records, in the order block, igsm, pi."""
    made: dict[str, Callable[[list[Record]], list[Table]]] = {"block": block, "igsm": igsm, "pi": pi}
    kept = list(records)
    return [table for name, make in made.items() if (own := of(kept, name)) for table in make(own)]


def of(records: Iterable[Record], name: str) -> list[Record]:
    return [record for record in records if record["lens"]["name"] == name]


def setting(record: Record, key: str) -> Any:
    return record["lens"]["setting"].get(key)


def measured(record: Record) -> Record:
    found: Record = record["lens"]["measured"]
    return found


def kinds(records: Sequence[Record], key: str) -> list[Any]:
    """The values of a setting, in the order of the records."""
    return list(dict.fromkeys(setting(record, key) for record in records))


def trainings(records: Sequence[Record]) -> list[list[Record]]:
    """Models that were trained alike: a fit or a mean never mixes others."""
    found: dict[str, list[Record]] = {}
    for record in records:
        about = {key: value for key, value in setting(record, "shape").items() if key not in ("window", "vocabulary")}
        found.setdefault(repr((setting(record, "training"), about)), []).append(record)
    return list(found.values())


def points(records: Sequence[Record], variant: str = DEFAULT) -> list[Point]:
    """(size, seed, effective frequency) of each model."""
    return [
        Point(setting(r, "size"), setting(r, "seed"), measured(r)["spectrum"]["theta_eff"][variant]) for r in records
    ]


def _mean(values: Iterable[float]) -> float:
    """Of effective frequencies: on the log scale, as they are fitted."""
    return math.exp(fmean(map(math.log, values)))


def _span(values: Sequence[float], shown: Callable[[float], str]) -> str:
    """`mean (lowest–highest over seeds)`."""
    middle = shown(_mean(values))
    return middle if len(values) < 2 else f"{middle} ({shown(min(values))}–{shown(max(values))})"


def ends(found: Interval, digits: int = 3) -> str:
    """`value [low–high]`, or why there is no interval."""
    if found.value is None:
        return found.kind
    if found.low is None or found.high is None:
        return f"{found.value:.{digits}g} [{found.kind}]".replace("-", "−")
    joined = "–" if found.low >= 0 else " to "
    return f"{found.value:.{digits}g} [{found.low:.{digits}g}{joined}{found.high:.{digits}g}]".replace("-", "−")


def _width(found: Record) -> str:
    if found["value"] is None:
        return "none shown"
    low, high = found["low"], found["high"]
    said = f"{found['value']:.3g}" + (f" [{low:.3g}–{high:.3g}]" if low is not None else "")
    return f"> {said}" if found["open"] else said


def _percent(values: Sequence[float]) -> str:
    return f"{100 * fmean(values):.1f}" if values else ""


def _by_size(records: Sequence[Record]) -> list[tuple[float, list[Record]]]:
    sizes = sorted(set(kinds(records, "size")))
    return [(size, [r for r in records if setting(r, "size") == size]) for size in sizes]


def _theta(record: Record) -> float:
    return float(measured(record)["spectrum"]["theta_eff"][DEFAULT])


def _warnings(records: Sequence[Record]) -> tuple[str, ...]:
    return (_SHORT,) if any(setting(r, "training")["steps"] < _FEW_STEPS for r in records) else ()


def block(records: list[Record]) -> list[Table]:
    """A table per form, then one of all fits: every form, and every variant of the measure for the main one."""
    found, fits = [], list[tuple[str, ...]]()
    for alike in trainings(records):
        for form in kinds(alike, "form"):
            own = [record for record in alike if setting(record, "form") == form]
            found.append(_block(form, own))
            variants = measured(own[0])["spectrum"]["theta_eff"]
            for variant in variants if len(own) > 3 * len(kinds(own, "seed")) else [DEFAULT]:
                line = fitted(points(own, variant))
                if line is not None:
                    fits.append((form, variant, *_fit(line)))
    if fits:
        columns = (
            "data",
            "variant",
            "slope",
            "c (free slope)",
            "c (slope −1)",
            "off the line",
            "between seeds",
            "models",
        )
        notes = (
            f"paper: slope {PAPER_SLOPE:g}, c = {PAPER_CONSTANT}; its theory: c = π = {math.pi:.3f}".replace("-", "−"),
            "95 % t intervals over sizes, from their scatter or, where that is larger, what seeds imply",
            "off the line, between seeds: standard deviations of ln θ_eff",
        )
        found.append(Table("block · ln θ_eff = ln c + slope · ln B", columns, tuple(fits), None, notes))
    return found


def _fit(line: Line) -> tuple[str, ...]:
    spreads = ("" if value is None else f"{value:.2g}" for value in (line.off, line.seeds))
    return ends(line.slope), ends(line.constant), ends(line.at_minus_one), *spreads, str(line.points)


def _block(form: str, records: list[Record]) -> Table:
    columns = ("B", "seeds", "θ_eff", "θ_eff · B", "π/B", "W of the data", "concentration", "before training",
               "accuracy, %", "chance, %")  # fmt: skip
    rows = []
    for size, own in _by_size(records):
        thetas, first = [_theta(r) for r in own], measured(own[0])
        scale = [theta * size for theta in thetas]
        rows.append((
            f"{size:g}", str(len(own)), _span(thetas, lambda v: f"{v:.3g}"), _span(scale, lambda v: f"{v:.2f}"),
            f"{math.pi / size:.3g}", _width(first["width"]),
            f"{fmean(measured(r)['spectrum']['concentration'] for r in own):.2f}",
            f"{fmean(measured(r)['initial']['concentration'] for r in own):.2f}",
            _percent([measured(r)["held_out"]["accuracy"] for r in own]), f"{100 * first['chance']:.1f}",
        ))  # fmt: skip
    uneven = max(measured(r)["initial"]["unevenness"] for r in records)
    shares = [measured(r)["initial"]["shares"] for r in records]
    together = max(abs(len(shares[0]) * fmean(pair) - 1) for pair in zip(*shares, strict=True))
    notes = (
        "θ_eff: geometric mean over seeds (lowest–highest), radians per token; W: distance that holds "
        f"{100 * measured(records[0])['width']['share']:.0f} % of the mutual information, with a 95 % interval",
        f"before training a pair's share is off the uniform one by at most {100 * uneven:.0f} % in the worst model, "
        f"and by {100 * together:.0f} % in the mean over all {len(records)}: a small model has little to average over",
        *_warnings(records),
    )
    return Table(f"block · {form} · effective frequency by block length", columns, tuple(rows), None, notes)


def igsm(records: list[Record]) -> list[Table]:
    columns = ("operations", "seeds", "tokens of a problem", "θ_eff", "W of the data", "π/W", "nll", "answers, %")
    found = []
    for alike in trainings(records):
        rows = []
        for size, own in _by_size(alike):
            first, wide = measured(own[0]), measured(own[0])["width"]["value"]
            rows.append((
                f"{size:g}", str(len(own)), str(first["problem_tokens"]),
                _span([_theta(r) for r in own], lambda v: f"{v:.3g}"), _width(first["width"]),
                f"{math.pi / wide:.3g}" if wide else "", f"{fmean(measured(r)['held_out']['nll'] for r in own):.3f}",
                _percent([measured(r)["answers"]["accuracy"] for r in own]),
            ))  # fmt: skip
        line = fitted(points(alike))
        said = () if line is None else (f"slope of ln θ_eff over ln operations: {ends(line.slope)} (t over sizes)",)
        chance = f"answers by guessing: {100 * measured(alike[0])['chance']:.1f} %"
        title = "igsm · effective frequency by the number of operations"
        found.append(Table(title, columns, tuple(rows), None, (*said, chance, *_warnings(alike))))
    return found


def pi(records: list[Record]) -> list[Table]:
    """Per kind and sort of test: perplexity and exactness of each method, at each factor side by side."""
    found = []
    for alike in trainings(records):
        for form in kinds(alike, "form"):
            own = [record for record in alike if setting(record, "form") == form]
            found += [_pi(form, sort, own) for sort in dict.fromkeys(t["test"] for t in measured(own[0])["tests"])]
    return found


def scores(records: Sequence[Record], sort: str, method: str, factor: int, key: str) -> list[float]:
    """One number per seed; at factor 1 every method is the unmodified model."""
    name = method if factor > 1 else "none"
    return [
        float(test[key])
        for record in records for test in measured(record)["tests"]
        if (test["test"], test["method"], test["factor"]) == (sort, name, factor)
    ]  # fmt: skip


def names_of(records: Sequence[Record]) -> tuple[list[str], list[int]]:
    """Methods in the order of all tables, and factors."""
    tests = measured(records[0])["tests"]
    return sorted({t["method"] for t in tests}, key=order), sorted({t["factor"] for t in tests})


def _pi(form: str, sort: str, records: list[Record]) -> Table:
    names, factors = names_of(records)
    columns = ["method"]
    for factor in factors:
        columns += [f"×{factor} perplexity", f"×{factor} exact, %"]
    rows = []
    for name in names:
        row = [name]
        for factor in factors:
            worst = scores(records, sort, name, factor, "perplexity")
            right = scores(records, sort, name, factor, "accuracy")
            exact = _percent(right)
            if len(right) > 1:
                exact += f" ({100 * min(right):.0f}–{100 * max(right):.0f})"
            row += [_span(worst, lambda v: f"{v:.3g}"), exact]
        rows.append(tuple(row))
    looks = measured(records[0])["dependence"]
    chance = measured(records[0])["chance"]
    own, theta = looks[sort]["width"], _span([_theta(r) for r in records], lambda v: f"{v:.3g}")
    notes = (
        f"W of the training data {_width(looks['training']['width'])}, of this test's {_width(own)} tokens (π/W = "
        f"{_over(own)}), between pairs of tokens, their order in a form included; θ_eff {theta}",
        f"mean over {len(records)} seed(s) (lowest–highest); scored in the last half of the window"
        + ("" if chance is None else f"; by guessing {100 * chance:.1f} %"),
        *_warnings(records),
    )
    title = {"same": "longer, not dilated", "dilated": "longer, dilated"}[sort]
    return Table(f"pi · {form} · {title}", tuple(columns), tuple(rows), 3, notes)


def _over(found: Record) -> str:
    return f"{math.pi / found['value']:.3g}" if found["value"] else "unknown"

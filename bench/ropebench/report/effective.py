"""How far each method carries, and what it costs inside the window: effective lengths and the short-context tax.

The effective length is the longest measured one at which a method is still good enough, in two senses:

    relative   it keeps 85 % of what the unmodified model has inside its window (Modarressi et al. 2025, NoLiMa): of its
               score at the shortest length; of its perplexity at the longest length inside, since a likelihood improves
               with length: at most 1 ÷ 0.85 times that
    absolute   the score itself reaches a threshold, RULER's 85.6 % unless another is asked for

Its interval is that of the whole curve under a bootstrap over clusters: documents and haystacks are drawn with
replacement, the same ones at every length and for every method, and the effective length is taken anew each time. For
scores each redrawn cell also holds a made-up sample of 0 and one of 1 (Agresti and Coull), drawn like the others, so
that a few right answers are not taken for certainty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ropebench.errors import UsageError
from ropebench.report.cells import Block, Record, Samples
from ropebench.report.evidence import cluster_of, scored
from ropebench.report.paired import baseline_differences, compared_metric, marked, unit
from ropebench.report.ruler_summary import Family
from ropebench.report.tables import Table
from ropebench.resampling import RESAMPLES
from ropebench.ruler.scoring import EFFECTIVE, NUMBER_OF_TASKS
from ropebench.stats import LEVEL, MIN_CLUSTERS

KEPT = 0.85  # of the unmodified model's own score

Curve = dict[int, tuple[float, Any]]  # length → (mean, redrawn means or None)


@dataclass(frozen=True)
class Enough:
    """What a method has to keep to count as good enough, in percent: `share` of the unmodified model's own score, and
    `threshold` as a score by itself. Raises UsageError for what is no percentage."""

    share: float = 100 * KEPT
    threshold: float = EFFECTIVE

    def __post_init__(self) -> None:
        for name, value in (("share", self.share), ("threshold", self.threshold)):
            if not 0 < value <= 100:
                raise UsageError(f"--effective-{name} {value:g}: a percentage above 0 and up to 100, such as 85")

    @property
    def kept(self) -> float:
        return self.share / 100


ENOUGH = Enough()


@dataclass(frozen=True)
class Effective:
    """An effective length in tokens (0: not even the shortest) with the ends of its interval, None where there is
    none. `open` is set where no longer length was measured at which the method falls short."""

    tokens: int
    low: int | None
    high: int | None
    open: bool


def curves(block: Block, samples: Samples, metric: str, seed: int = 0) -> dict[str, Curve]:
    """By method, the mean of the sample metric at each length and what it becomes when the clusters are redrawn; with
    another `seed` they are drawn apart from those of another block."""
    cells: dict[tuple[str, int], dict[str, list[float]]] = {}
    for row in block.rows:
        if row["value"] is not None:
            members: dict[str, list[float]] = {}
            for one in scored(samples.get(row["cell_id"], ()), metric):
                members.setdefault(repr(cluster_of(one)), []).append(float(one["scores"][metric]))
            if members:
                cells[row["label"], row["condition_length"]] = members
    names = sorted({name for members in cells.values() for name in members})
    place = {name: at for at, name in enumerate(names)}
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=RESAMPLES) if names else None
    found: dict[str, Curve] = {}
    for (label, length), members in cells.items():
        sums, counts = np.zeros(len(names)), np.zeros(len(names))
        for name, values in members.items():
            sums[place[name]], counts[place[name]] = sum(values), len(values)
        again = None
        if drawn is not None and len(members) >= MIN_CLUSTERS:
            total, number = drawn @ sums, drawn @ counts
            if block.percent:
                size = counts.sum() / len(members)
                wrong, right = rng.poisson(1.0, (2, RESAMPLES)) * size
                total, number = total + right, number + wrong + right
            # Where none of a cell's clusters was drawn, the draw says nothing about it.
            again = np.where(number > 0, total / np.maximum(number, 1e-300), np.nan)
        found.setdefault(label, {})[length] = (float(sums.sum() / counts.sum()), again)
    return found


def effective(curve: Curve, enough: Callable[[Any], Any]) -> Effective | None:
    """The longest length of a curve at which `enough(value)` holds; it takes the mean, or the array of redrawn ones,
    and says whether each suffices."""
    if not curve:
        return None
    lengths = sorted(curve)
    tokens = max((length for length in lengths if enough(curve[length][0])), default=0)
    ends: tuple[int | None, int | None] = (None, None)
    if all(curve[length][1] is not None for length in lengths):
        reached = np.zeros(RESAMPLES, dtype=int)
        for length in lengths:
            reached[np.asarray(enough(curve[length][1]))] = length
        reached.sort()
        tail = (1 - LEVEL) / 2
        low, high = (int(reached[round(share * (RESAMPLES + 1)) - 1]) for share in (tail, 1 - tail))
        ends = (min(low, tokens), max(high, tokens))
    return Effective(tokens, *ends, open=tokens == lengths[-1])


def relative(
    block: Block, known: Mapping[str, Curve], label: str, logarithmic: bool, kept: float = KEPT
) -> Effective | None:
    """See above; `logarithmic`: the table shows exp of the curve. None without a value of the unmodified model inside
    its window."""
    base = known.get(block.baseline or "", {})
    inside = sorted(length for length in base if length <= block.trained_length)
    if not inside or label not in known:
        return None
    if block.first["direction"] == "higher":
        mark, marks = base[inside[0]]
        return effective(known[label], lambda value: value >= kept * (mark if np.ndim(value) == 0 else marks))
    # nll: at most 1 ÷ kept times the perplexity; another metric: at most 1 ÷ kept times the value
    mark, marks = base[inside[-1]]
    more: Callable[[Any], Any] = (lambda at: at - np.log(kept)) if logarithmic else (lambda at: at / kept)
    return effective(known[label], lambda value: value <= more(mark if np.ndim(value) == 0 else marks))


def absolute(known: Mapping[str, Curve], label: str, threshold: float = EFFECTIVE) -> Effective | None:
    """The longest length with at least `threshold` percent."""
    return effective(known[label], lambda value: value >= threshold / 100) if label in known else None


def of_family(family: Family, samples: Samples, threshold: float = EFFECTIVE) -> dict[str, Effective]:
    """By method, the longest length at which the mean of RULER's 13 tasks reaches `threshold` percent. The samples of
    each task are redrawn apart; lengths at which a task is missing are left out.

    The made-up samples draw every task towards one half, which averaging does not lessen while it does lessen the
    spread; so they widen the interval here and do not move it: the redrawn means are centred on the mean itself.
    """
    tasks = [curves(block, samples, block.first["metric"], seed) for seed, block in enumerate(family.blocks)]
    found: dict[str, Effective] = {}
    for label in family.labels:
        mean: Curve = {}
        for length in family.lengths:
            score = family.score(label, length)
            if score is not None:
                parts = [task.get(label, {}).get(length, (0.0, None))[1] for task in tasks]
                known = [part for part in parts if part is not None]
                redrawn = sum(known) / NUMBER_OF_TASKS if len(known) == NUMBER_OF_TASKS else None
                mean[length] = (score, None if redrawn is None else redrawn + score - np.nanmean(redrawn))
        reached = absolute({label: mean}, label, threshold)
        if reached is not None:
            found[label] = reached
    return found


def effective_text(block: Block, found: Effective | None, shortest: int | None = None) -> str:
    """`≥ 16384 (2×) [8192–16384]`; `shortest` measured length, where it is not the block's."""
    if found is None:
        return ""

    def one(tokens: int) -> str:
        return str(tokens) if tokens else f"< {shortest or block.lengths[0]}"

    if not found.tokens:
        value = one(0)
    else:
        value = f"{'≥ ' if found.open else ''}{found.tokens} ({block.multiple(found.tokens)})"
    if found.low is None or found.high is None:
        return f"{value} [n too small]"
    return f"{value} [{one(found.low)}{'–' + one(found.high) if found.high != found.low else ''}]"


def effective_table(
    block: Block, samples: Samples, records: Mapping[str, Record], enough: Enough = ENOUGH
) -> Table | None:
    """One line per method: how far it carries, and its tax at every length inside the window. None where nothing was
    measured beyond the window, where there is no baseline, or where the scores say nothing."""
    metric = compared_metric(block, records)
    inside = [length for length in block.lengths if length <= block.trained_length]
    if block.baseline is None or block.uninformative or not inside or block.lengths[-1] <= block.trained_length:
        return None
    known, differences = curves(block, samples, metric), baseline_differences(block, samples, metric)
    if not known:
        return None
    unsure = max(row["clusters"] for row in block.rows) < MIN_CLUSTERS
    if block.percent and unsure:
        return None
    columns = ["method", f"effective length ({enough.share:g} % of {block.baseline})"]
    columns += [f"effective length (≥ {enough.threshold:g} %)"] if block.percent else []
    columns += [f"tax at {length} ({block.multiple(length)})" for length in inside]
    rows = []
    for label in block.labels:
        near = relative(block, known, label, metric != block.first["metric"], enough.kept)
        line = [label, effective_text(block, near)]
        line += [effective_text(block, absolute(known, label, enough.threshold))] if block.percent else []
        rows.append((*line, *(marked(differences.get((label, length)), block.percent) for length in inside)))
    title = f"{block.first['model_id']} · {block.first['task_label']} · how far, and at what cost inside the window"
    return Table(" · ".join([title, *block.qualifiers]), tuple(columns), tuple(rows), None,
                 tuple(_notes(block, inside, metric, enough)))  # fmt: skip


def _notes(block: Block, inside: Sequence[int], metric: str, enough: Enough) -> list[str]:
    theirs = f"the {block.first['metric']} that {block.baseline} has"
    if block.first["direction"] == "higher":
        what = f"keeps {enough.share:g} % of {theirs} at {inside[0]} tokens"
    else:
        what = f"has at most 1 ÷ {enough.kept:g} times {theirs} at {inside[-1]} tokens"
    made_up = ", with a made-up sample of 0 and one of 1 in each cell" if block.percent else ""
    lost = "below" if block.first["direction"] == "higher" else "above"
    return [
        f"effective length: the longest measured one at which the method {what}; tokens (× trained window), "
        "≥: no longer one was measured",
        f"brackets: 95 % interval under {RESAMPLES} bootstraps of the whole curve over documents or "
        f"haystacks{made_up}; it can only be one of the measured lengths",
        f"tax: {metric} minus that of {block.baseline} on the same samples ({unit(block, metric)}; a loss is {lost} "
        "0), with the intervals and marks of the table above",
    ]

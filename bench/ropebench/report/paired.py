"""Methods against each other on identical samples: differences, and ranks with ties.

A rank is 1 + the number of methods shown to be better by a paired test at the 5 % level, so that methods which the
samples cannot tell apart may share it. No correction for the number of comparisons is made; reports say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ropebench.errors import UsageError
from ropebench.report.cells import Block, Record, Samples
from ropebench.report.tables import Table
from ropebench.stats import Difference, paired_difference, sample_metric, smallest_decisive_n


@dataclass(frozen=True)
class Ranking:
    """Methods at one length, best value first. `against[label]` is label − best on the sample metric.

    `testable` is False where so few samples could not have told any two methods apart: then ranks mean nothing.
    """

    length: int
    labels: tuple[str, ...]
    rank: Mapping[str, int]
    against: Mapping[str, Difference]
    testable: bool

    @property
    def best(self) -> str:
        return self.labels[0]

    @property
    def tied(self) -> tuple[str, ...]:
        """Methods not told apart from the best one, without it."""
        return tuple(label for label in self.labels[1:] if not self.against[label].decided)


def compared_metric(block: Block, records: Mapping[str, Record]) -> str:
    """The sample metric that stands behind the block's metric (nll behind perplexity)."""
    return sample_metric(records[block.first["cell_id"]], block.first["metric"])[0]


def difference(block: Block, samples: Samples, metric: str, label: str, other: str, length: int) -> Difference | None:
    """label − other at a length; None where either failed, was not run, or saw other samples."""
    one, two = block.cell(label, length), block.cell(other, length)
    if one is None or two is None or one["value"] is None or two["value"] is None:
        return None
    if one["task_samples_sha256"] != two["task_samples_sha256"]:
        return None
    try:
        return paired_difference(samples.get(one["cell_id"], ()), samples.get(two["cell_id"], ()), metric)
    except UsageError:
        return None


def baseline_differences(block: Block, samples: Samples, metric: str) -> dict[tuple[str, int], Difference]:
    """Each method minus the baseline, by label and length; empty without a baseline."""
    found = {}
    if block.baseline is not None:
        for label in block.labels:
            for length in block.lengths:
                if label != block.baseline:
                    value = difference(block, samples, metric, label, block.baseline, length)
                    if value is not None:
                        found[label, length] = value
    return found


def ranking(block: Block, samples: Samples, metric: str, length: int) -> Ranking | None:
    """The methods at one length, or None where fewer than two have comparable numbers.

    Methods whose samples differ from the others' are left out only if that leaves the ranking whole: where the
    samples disagree there is no ranking.
    """
    rows = [row for label in block.labels if (row := block.cell(label, length)) and row["value"] is not None]
    if len(rows) < 2 or length in block.disagreeing():
        return None
    sign = 1 if block.first["direction"] == "lower" else -1
    ordered = sorted(rows, key=lambda row: sign * row["value"])
    labels = tuple(row["label"] for row in ordered)
    against, ranks, testable = {}, {}, False
    for label in labels:
        better = 0
        for other in labels:
            if other == label:
                continue
            found = difference(block, samples, metric, label, other, length)
            if found is None:
                return None
            better += found.decided and sign * found.value > 0
            testable |= found.kind == "t" or (found.kind == "sign test" and found.clusters >= smallest_decisive_n())
            if other == labels[0]:
                against[label] = found
        ranks[label] = 1 + better
    return Ranking(length, labels, ranks, against, testable)


def tax(block: Block, differences: Mapping[tuple[str, int], Difference], label: str) -> tuple[int, Difference] | None:
    """The largest loss against the baseline at or below the trained window: (length, label − baseline)."""
    sign = 1 if block.first["direction"] == "lower" else -1
    inside = [
        (length, found)
        for (name, length), found in differences.items()
        if name == label and length <= block.trained_length
    ]
    return max(inside, key=lambda item: sign * item[1].value, default=None)


def by_cell(records: list[Record]) -> dict[str, Record]:
    """Records by cell_id (one per cell, as `store.newest_ok` gives them)."""
    return {record["cell_id"]: record for record in records}


def unit(block: Block, metric: str) -> str:
    """What a difference is counted in."""
    return "nats per token" if metric == "nll" else "points" if block.percent else metric


def difference_text(found: Difference | None, percent: bool = False) -> str:
    """`+0.021 [+0.012, +0.030]` for a t interval, `−20 (p = 0.25)` for the exact test; blank where not comparable."""
    if found is None:
        return ""
    digits, scale = (0, 100) if percent else (3, 1)

    def signed(value: float) -> str:
        return f"{scale * value:+.{digits}f}".replace("-", "−")

    if found.low is not None and found.high is not None:
        return f"{signed(found.value)} [{signed(found.low)}, {signed(found.high)}]"
    return f"{signed(found.value)} ({found.kind if found.p is None else f'p = {found.p:.2g}'})"


def difference_table(block: Block, samples: Samples, metric: str) -> Table | None:
    """Every method minus the baseline on identical samples, by length: the short-context tax at and below the trained
    window, the gain beyond it. None without a baseline or without any comparable pair.
    """
    found = baseline_differences(block, samples, metric)
    if not found:
        return None
    labels = [label for label in block.labels if label != block.baseline]
    rows = tuple(
        (label, *(difference_text(found.get((label, length)), block.percent) for length in block.lengths))
        for label in labels
    )
    beyond = [place for place, length in enumerate(block.lengths, 1) if length > block.trained_length]
    better = "below 0 is better" if block.first["direction"] == "lower" else "above 0 is better"
    title = f"{block.first['model_id']} · {block.first['task_label']} · {metric} minus {metric} of {block.baseline}"
    parts = [f"{title} ({unit(block, metric)}, {better})", *block.qualifiers]
    kinds = {value.kind for value in found.values()}
    tests = [text for kind, text in (("t", "95 % t interval of the paired mean"), ("sign test", "exact sign test"))
             if kind in kinds]  # fmt: skip
    note = f"paired on identical samples, {'; '.join(tests) or 'n too small'}; no correction for several comparisons"
    columns = ("method", *(f"{length} ({block.multiple(length)})" for length in block.lengths))
    return Table(" · ".join(parts), columns, rows, beyond[0] if beyond else None, (note,))

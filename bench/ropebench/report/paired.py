"""Methods against each other on identical samples: differences, and ranks with ties.

A rank is 1 + the number of methods shown to be better by a paired test, so that methods which the samples cannot tell
apart may share it. "Shown" is at the 5 % level after Holm's correction over the table: all pairs at a length for a
ranking, all methods and lengths for the differences to the baseline. Intervals are of each difference by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from math import fsum

from ropebench.comparison import (
    ADJUSTED,
    BONETT,
    MCNEMAR,
    PERMUTATION,
    SIGN_TEST,
    Difference,
    corrected,
)
from ropebench.errors import UsageError
from ropebench.report.cells import Block, Record, Row, Samples
from ropebench.report.evidence import in_common, paired_difference, sample_metric, scored
from ropebench.report.tables import Table
from ropebench.stats import BOOTSTRAP, TOO_SMALL


@dataclass(frozen=True)
class Ranking:
    """Methods at one length, best value first. `against[label]` is label − best on the sample metric.

    `pairs` were compared. `testable` is False where so few samples could not have told any two methods apart: then
    ranks mean nothing.
    """

    length: int
    labels: tuple[str, ...]
    rank: Mapping[str, int]
    against: Mapping[str, Difference]
    pairs: int
    testable: bool

    @property
    def best(self) -> str:
        return self.labels[0]

    @property
    def tied(self) -> tuple[str, ...]:
        """Methods not told apart from the best one, without it."""
        return tuple(label for label in self.labels[1:] if not self.against[label].decided)

    @property
    def clusters(self) -> int:
        """Independent documents or haystacks behind the comparison with the best."""
        return min(found.clusters for found in self.against.values())


def compared_metric(block: Block, records: Mapping[str, Record]) -> str:
    """The sample metric that stands behind the block's metric (nll behind perplexity)."""
    return sample_metric(records[block.first["cell_id"]], block.first["metric"])[0]


def paired_cells(one: Row | None, two: Row | None, samples: Samples, metric: str) -> Difference | None:
    """One cell minus another over the samples both have; None where either is missing or failed, or none is shared."""
    if one is None or two is None or not one["outcome_status"] == two["outcome_status"] == "ok":
        return None
    try:
        return paired_difference(
            samples.get(one["cell_id"], ()), samples.get(two["cell_id"], ()), metric, share=_share(one, metric)
        )
    except UsageError:
        return None


def _share(row: Row, metric: str) -> bool | None:
    """Whether the metric lies within 0–1, as far as the row says."""
    return (row["range_low"], row["range_high"]) == (0, 1) if row["metric"] == metric else None


def difference(block: Block, samples: Samples, metric: str, label: str, other: str, length: int) -> Difference | None:
    """label − other at a length; None where either has no value to compare: not run, failed, or uninformative."""
    one, two = block.cell(label, length), block.cell(other, length)
    if one is None or two is None or one["value"] is None or two["value"] is None:
        return None
    return paired_cells(one, two, samples, metric)


def baseline_differences(block: Block, samples: Samples, metric: str) -> dict[tuple[str, int], Difference]:
    """Each method minus the baseline, by label and length, Holm-corrected together; empty without a baseline."""
    found = {}
    if block.baseline is not None:
        for label in block.labels:
            for length in block.lengths:
                if label != block.baseline:
                    value = difference(block, samples, metric, label, block.baseline, length)
                    if value is not None:
                        found[label, length] = value
    return corrected(found)


def ranking(block: Block, samples: Samples, metric: str, length: int) -> Ranking | None:
    """The methods at one length, or None where fewer than two have comparable numbers.

    All are compared on the samples that all of them have; where there is none, there is no ranking: leaving out a
    method that saw others would make its absence look like a result.
    """
    rows = {label: row for label in block.labels if (row := block.cell(label, length)) and row["value"] is not None}
    if len(rows) < 2:
        return None
    shared = in_common([scored(samples.get(row["cell_id"], ()), metric) for row in rows.values()])
    if not shared[0]:
        return None
    common = {row["cell_id"]: kept for row, kept in zip(rows.values(), shared, strict=True)}
    means = {
        label: fsum(one["scores"][metric] for one in kept) / len(kept) for label, kept in zip(rows, shared, strict=True)
    }
    sign = 1 if block.first["direction"] == "lower" else -1
    labels = tuple(sorted(rows, key=lambda label: sign * means[label]))
    found: dict[tuple[str, str], Difference] = {}
    for better, worse in combinations(labels, 2):
        value = difference(block, common, metric, worse, better, length)
        if value is None:
            return None
        found[worse, better] = value
    found = corrected(found)
    found |= {(better, worse): negative(value) for (worse, better), value in found.items()}
    ranks = {
        label: 1 + sum(found[label, other].decided and sign * found[label, other].value > 0 for other in labels
                       if other != label)
        for label in labels
    }  # fmt: skip
    pairs = len(labels) * (len(labels) - 1) // 2
    testable = any(value.could_decide(pairs) for value in found.values())
    return Ranking(length, labels, ranks, {label: found[label, labels[0]] for label in labels[1:]}, pairs, testable)


def negative(found: Difference) -> Difference:
    """b − a from a − b."""
    low, high = (None if end is None else -end for end in (found.high, found.low))
    return replace(found, value=-found.value, low=low, high=high)


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
    """`+0.021 [+0.012, +0.030]`, with `p = 0.25` for the exact test; blank where not comparable."""
    if found is None:
        return ""
    digits, scale = (0, 100) if percent else (3, 1)

    def signed(value: float) -> str:
        return f"{scale * value:+.{digits}f}".replace("-", "−")

    known = found.low is not None and found.high is not None
    parts = [f"{signed(found.low or 0.0)}, {signed(found.high or 0.0)}"] if known else []
    if found.kind in (MCNEMAR, SIGN_TEST) and found.p is not None:
        parts.append(f"p = {found.p if found.adjusted is None else found.adjusted:.2g}")
    return f"{signed(found.value)} [{'; '.join(parts) or found.kind}]"


def marked(found: Difference | None, percent: bool = False) -> str:
    """`difference_text` as tables show it, with `*` where it is told from 0."""
    return difference_text(found, percent) + ("*" if found is not None and found.decided else "")


_TESTS = {
    MCNEMAR: "McNemar's exact test",
    SIGN_TEST: "exact sign test over haystacks",
    PERMUTATION: "permutation of signs over documents, haystacks or samples",
    "t": "t over documents or haystacks",
}
INTERVALS = {
    BONETT: "Bonett and Price for paired proportions",
    ADJUSTED: "t over haystacks or samples, adjusted by two made-up ones (half better, half worse)",
    BOOTSTRAP: "bootstrap-t over documents, haystacks or samples, no end inside that of t",
    "t": "t over documents or haystacks",
}


def comparison_note(found: Mapping[tuple[str, int], Difference]) -> str:
    """How the differences of a table were tested, and what their marks mean."""
    kinds = {value.kind for value in found.values()}
    tests = [text for kind, text in _TESTS.items() if kind in kinds]
    if not tests:
        few = sorted({value.clusters for value in found.values() if value.kind == TOO_SMALL})
        return f"paired on identical samples; not tested: n too small ({', '.join(map(str, few))} independent samples)"
    count = sum(value.p is not None for value in found.values())
    ends = [text for kind, text in INTERVALS.items() if any(value.interval == kind for value in found.values())]
    of_each = f" ({'; '.join(ends)})" if ends and ends != tests else ""
    return (
        f"paired on identical samples: {'; '.join(tests)}; brackets: 95 % interval of each difference by itself"
        f"{of_each}; * told from 0 at the 5 % level after Holm's correction over the {count} "
        f"comparison{'s'[: count > 1]} of this table"
    )


def difference_table(block: Block, samples: Samples, metric: str) -> Table | None:
    """Every method minus the baseline on identical samples, by length: the short-context tax at and below the trained
    window, the gain beyond it. None without a baseline or without any comparable pair.
    """
    found = baseline_differences(block, samples, metric)
    if not found:
        return None
    labels = [label for label in block.labels if label != block.baseline]
    rows = tuple(
        (label, *(marked(found.get((label, length)), block.percent) for length in block.lengths)) for label in labels
    )
    beyond = [place for place, length in enumerate(block.lengths, 1) if length > block.trained_length]
    better = "below 0 is better" if block.first["direction"] == "lower" else "above 0 is better"
    title = f"{block.first['model_id']} · {block.first['task_label']} · {metric} minus {metric} of {block.baseline}"
    parts = [f"{title} ({unit(block, metric)}, {better})", *([] if block.percent else [block.bos]), *block.qualifiers]
    columns = ("method", *(f"{length} ({block.multiple(length)})" for length in block.lengths))
    return Table(" · ".join(parts), columns, rows, beyond[0] if beyond else None, (comparison_note(found),))

"""One number over several tasks, for methods that were measured on the very same cells.

A score counts by how far it is above guessing: (score − chance) ÷ (1 − chance), so that tasks with different floors can
be averaged; first over the lengths of a task, then over tasks. A method with a missing or failed cell has no composite,
and it is said how many it has. Tasks that say nothing about the model, or have too few samples, are left out by name.
Spread is taken between clusters within a task, with two made-up ones added; tasks are independent of each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from ropebench.comparison import Difference, corrected
from ropebench.report.cells import Block, Samples
from ropebench.report.evidence import cluster_of, in_common, scored
from ropebench.report.tables import Table
from ropebench.stats import LEVEL, MIN_CLUSTERS, NO_SPREAD, TOO_SMALL

Cell = tuple[Block, int]  # a block and a length


@dataclass(frozen=True)
class Composite:
    """Methods by their composite, best first. `value` has each one's with its interval, `against` the differences to
    the best after Holm's correction over all pairs, and `rank` 1 + how many are shown to be better. `lacking` says of
    the others how many of the cells they have; `out` are the tasks left out."""

    tasks: tuple[str, ...]
    cells: int
    value: Mapping[str, Difference]
    against: Mapping[str, Difference]
    rank: Mapping[str, int]
    pairs: int
    lacking: Mapping[str, int]
    out: tuple[str, ...]


def composite(blocks: Iterable[Block], samples: Samples) -> Composite | None:
    """Of the score blocks of one model. None with fewer than two tasks or two methods that have them all."""
    scores = [block for block in blocks if block.percent and block.first["chance"] is not None]
    able = [
        block
        for block in scores
        if not block.uninformative
        and len(block.labels) > 1
        and max(row["clusters"] for row in block.rows) >= MIN_CLUSTERS
    ]
    out = tuple(block.first["task_label"] for block in scores if not any(block is one for one in able))
    cells: list[Cell] = [(block, length) for block in able for length in block.lengths]
    labels = list(dict.fromkeys(label for block in able for label in block.labels))
    have = {label: sum(_value(cell, label) is not None for cell in cells) for label in labels}
    whole = [label for label in labels if have[label] == len(cells)]
    if len(able) < 2 or len(whole) < 2:
        return None
    rows = {cell_at: _common(cell, whole, samples) for cell_at, cell in enumerate(cells)}
    if not all(rows.values()):
        return None
    value = {label: _over(cells, rows, label, None) for label in whole}
    order = sorted(whole, key=lambda label: -value[label].value)
    found = {(worse, better): _over(cells, rows, worse, better) for better, worse in combinations(order, 2)}
    tested = corrected(found)
    rank = {
        label: 1 + sum(one.decided and (one.value < 0) == (worse == label) and one.value != 0
                       for (worse, better), one in tested.items() if label in (worse, better))
        for label in order
    }  # fmt: skip
    return Composite(
        tuple(block.first["task_label"] for block in able), len(cells), {label: value[label] for label in order},
        {label: tested[label, order[0]] for label in order[1:]}, rank, len(found),
        {label: count for label, count in have.items() if label not in whole}, out,
    )  # fmt: skip


def _value(cell: Cell, label: str) -> float | None:
    row = cell[0].cell(label, cell[1])
    return None if row is None else row["value"]


def _common(cell: Cell, labels: Sequence[str], samples: Samples) -> dict[str, list[Any]] | None:
    """Each method's rows on the samples that all have; None where there are none."""
    block, length = cell
    found = [samples.get((block.cell(label, length) or {})["cell_id"], ()) for label in labels]
    kept = in_common([scored(rows, block.first["metric"]) for rows in found])
    return dict(zip(labels, kept, strict=True)) if kept[0] else None


def _over(cells: Sequence[Cell], rows: Mapping[int, Any], label: str, other: str | None) -> Difference:
    """The composite of a method, or minus that of another, with a t interval and test: variances of tasks add up, with
    Welch and Satterthwaite's degrees of freedom."""
    by_task: dict[int, list[int]] = {}
    for at, (block, _) in enumerate(cells):
        by_task.setdefault(id(block), []).append(at)
    value = variance = square = 0.0
    fewest, n = math.inf, 0
    for places in by_task.values():
        block = cells[places[0]][0]
        metric, chance = block.first["metric"], float(block.first["chance"])
        mean = 0.0
        rest: dict[str, float] = {}
        for at in places:
            ours = [row["scores"][metric] for row in rows[at][label]]
            theirs = [chance] * len(ours) if other is None else [row["scores"][metric] for row in rows[at][other]]
            gaps = [(a - b) / (1 - chance) / len(places) for a, b in zip(ours, theirs, strict=True)]
            middle = math.fsum(gaps) / len(gaps)
            mean, n = mean + middle, n + len(gaps)
            for gap, row in zip(gaps, rows[at][label], strict=True):
                name = repr(cluster_of(row))
                rest[name] = rest.get(name, 0.0) + (gap - middle) / len(gaps)
        k = len(rest)
        fewest = min(fewest, k)
        value += mean / len(by_task)
        # Two made-up clusters, half better and half worse, as in `comparison`: ten right of ten are no certainty.
        made_up = 2 * (0.5 / (1 - chance)) ** 2
        own = (k**2 * math.fsum(one * one for one in rest.values()) + made_up) / (k + 2) ** 2 / len(by_task) ** 2
        variance, square = variance + own, square + own**2 / max(k - 1, 1)
    clusters = int(fewest)
    if clusters < MIN_CLUSTERS or variance < 1e-24:
        kind = TOO_SMALL if clusters < MIN_CLUSTERS else NO_SPREAD
        return Difference(value, None, None, None, kind, n, clusters)
    from scipy.stats import t

    stderr, freedom = math.sqrt(variance), variance**2 / square
    half = float(t.ppf((1 + LEVEL) / 2, freedom)) * stderr
    p = None if other is None else float(2 * t.sf(abs(value) / stderr, freedom))
    return Difference(value, value - half, value + half, p, "t", n, clusters, stderr=stderr, interval="t")


def composite_table(blocks: Sequence[Block], samples: Samples) -> Table | None:
    """One line per method: composite, rank, and the distance to the best; None where there is nothing to average."""
    found = composite(blocks, samples)
    if found is None:
        return None
    ranks, body = list(found.rank.values()), []
    untested = not any(one.testable for one in found.against.values())
    for label, value in found.value.items():
        rank = "?" if untested else f"{found.rank[label]}{'=' if ranks.count(found.rank[label]) > 1 else ''}"
        body.append((label, _text(value, ".1f"), rank, _text(found.against.get(label), "+.1f")))
    body += [(label, f"({count} of {found.cells} cells)", "", "") for label, count in found.lacking.items()]
    notes = (
        f"mean over {len(found.tasks)} tasks of (score − chance) ÷ (1 − chance), each first averaged over its lengths, "
        f"on the samples that all methods have: {', '.join(found.tasks)}",
        "brackets: 95 % t intervals over clusters within tasks (with two made-up ones in each); rank: 1 + the methods "
        f"shown to be better (paired, 5 % level after Holm's correction over {found.pairs} "
        f"pair{'' if found.pairs == 1 else 's'}), = shared, ? not tested: n too small; * told from the best",
        *((f"left out, uninformative or too few samples: {', '.join(found.out)}",) if found.out else ()),
        *(("a method without all cells has no composite",) if found.lacking else ()),
    )
    title = f"{blocks[0].first['model_id']} · composite of {len(found.tasks)} tasks, % above chance"
    return Table(title, ("method", "composite", "rank", "minus the best"), tuple(body), None, notes)


def _text(found: Difference | None, form: str) -> str:
    if found is None:
        return ""
    low, high = ("" if end is None else format(100 * end, form) for end in (found.low, found.high))
    ends = f"{low}, {high}" if low else found.kind
    star = "*" if found.decided and found.p is not None else ""
    return f"{100 * found.value:{form}} [{ends}]".replace("-", "−") + star

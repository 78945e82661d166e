"""What a set of records says in plain words: which method, how far, at what cost, and how sure that is.

Sentences are plain text (the leaderboard escapes them for Markdown). A method is called better or worse only where a
paired test on identical samples says so, corrected for the number of pairs; otherwise it is "not told apart". Where
there are too few documents for a test, it is said on how many of them the order is the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ropebench.report.cells import Block, Record, Samples
from ropebench.report.paired import (
    Ranking,
    baseline_differences,
    compared_metric,
    difference_text,
    marked,
    ranking,
    tax,
    unit,
)
from ropebench.report.tables import Table, cell_text, number
from ropebench.stats import MIN_CLUSTERS, TOO_SMALL, Difference, smallest_decisive_n


def deciding(block: Block, samples: Samples, metric: str) -> Ranking | None:
    """The ranking at the longest length that has one."""
    for length in reversed(block.lengths):
        found = ranking(block, samples, metric, length)
        if found is not None:
            return found
    return None


def verdict(block: Block, samples: Samples, records: Mapping[str, Record]) -> list[str]:
    """One to three sentences about a block: which method, how far, what it costs inside the window."""
    metric = compared_metric(block, records)
    found = deciding(block, samples, metric)
    if block.uninformative:
        return [f"{block.title}: uninformative; the model is not shown to be above chance inside its window."]
    if found is None:
        return [f"{block.title}: nothing to rank (fewer than two methods with results on the same samples)."]
    lines = [_which(block, found, metric), _how_far(block, found)]
    cost = _cost(block, samples, found, metric)
    return [line for line in [*lines, cost] if line]


def _where(block: Block, length: int) -> str:
    return f"{length} tokens ({block.multiple(length)} the trained window)"


def _value(block: Block, label: str, length: int) -> str:
    row = block.cell(label, length)
    if row is None or row["value"] is None:
        return ""
    return number(row["value"], block.percent) + (" %" if block.percent else "")


def _named(block: Block, labels: Sequence[str], length: int) -> str:
    return ", ".join(f"{label} ({_value(block, label, length)})" for label in labels)


def _independent(block: Block, found: Ranking) -> str:
    """What was compared: `4 documents`, `50 samples`, `1 haystack with 5 samples`."""
    count, n = found.clusters, min(one.n for one in found.against.values())
    if not block.percent:
        return f"{count} document{'' if count == 1 else 's'}"
    if count < n:
        return f"{count} haystack{'' if count == 1 else 's'} with {n} samples"
    return f"{n} sample{'' if n == 1 else 's'}"


def behind(block: Block, found: Ranking) -> tuple[str, ...]:
    """Methods that the best one is shown to beat; without a test, those that it beats on every document, if several."""
    if found.testable:
        return tuple(label for label in found.labels[1:] if label not in found.tied)
    if block.percent or found.clusters < 2:
        return ()
    return tuple(label for label, other in found.against.items() if other.agreeing == other.clusters)


def _which(block: Block, found: Ranking, metric: str) -> str:
    first, length = block.first, found.length
    extreme = "lowest" if first["direction"] == "lower" else "highest"
    row = block.cell(found.best, length)
    name = " · ".join((first["task_label"], *block.qualifiers))
    cells = {label: block.cell(label, length) for label in found.labels}
    top = [label for label, cell in cells.items() if row and cell and cell["value"] == row["value"]]
    metric_name = first["metric"] if block.percent else f"{first['metric']} ({block.bos})"
    text = f"{name}: at {_where(block, length)} {metric_name} is {extreme} with {', '.join(top)} "
    text += f"({_value(block, found.best, length)})"
    worse = behind(block, found)
    open_ = [label for label in found.labels[1:] if label not in worse]
    gaps = "; ".join(f"{label} {difference_text(found.against[label], block.percent)}" for label in worse)
    if not found.testable:
        are = "is" if found.clusters == 1 else "are"
        text += f", but {_independent(block, found)} {are} too few to test any two methods."
        if worse:
            text += f" All {found.clusters} agree that it is better than {_named(block, worse, length)}"
            text += f"; against {', '.join(open_)} they do not." if open_ else "."
        return text
    text += "."
    on = f"these {_independent(block, found)}"
    if open_ and not worse:
        return text + f" On {on} no method is told apart from it: {_named(block, open_, length)}."
    if open_:
        text += f" Not told apart from it on {on}: {_named(block, open_, length)}."
    corrected = f"paired, corrected for {found.pairs} pairs" if found.pairs > 1 else "paired"
    return text + f" Worse on the same samples ({corrected}), in {unit(block, metric)}: {gaps}."


def _how_far(block: Block, found: Ranking) -> str:
    """Values at the window and beyond it, for the baseline and the best method."""
    inside = [length for length in block.lengths if length <= block.trained_length]
    beyond = [length for length in block.lengths if length > block.trained_length]
    if not inside or not beyond:
        return ""
    near, far = inside[-1], beyond[-1]
    said = []
    for label in dict.fromkeys([*([block.baseline] if block.baseline else []), found.best]):
        one, two = _value(block, label, near), _value(block, label, far)
        if one and two:
            said.append(f"{label} {one} → {two}")
    return f"From {near} to {far} tokens {block.first['metric']} goes: {'; '.join(said)}." if said else ""


def _cost(block: Block, samples: Samples, found: Ranking, metric: str) -> str:
    """The short-context tax of the best method and of those tied with it, at the length where it is largest."""
    tell = found.testable or (not block.percent and found.clusters > 1)
    differences = baseline_differences(block, samples, metric) if tell else {}
    inside = [length for length in block.lengths if length <= block.trained_length]
    parts, tested = [], False
    for label in found.labels:
        worst = tax(block, differences, label) if label not in behind(block, found) else None
        if worst is not None:
            length, value = worst
            tested |= value.testable
            doubt = "" if value.decided or not value.testable else " (not told from 0)"
            parts.append(f"{label} {cost_text(value, metric, block)} at {length}{doubt}")
    if not parts:
        return ""
    span = f"{inside[0]}–{inside[-1]}" if len(inside) > 1 else str(inside[0])
    how = f"largest loss against {block.baseline}" + ("" if tested else ", not tested: n too small")
    return f"Cost inside the window ({span} tokens, {how}): {'; '.join(parts)}."


def cost_text(found: Difference, metric: str, block: Block) -> str:
    """A difference with its unit; for NLL also as a change of perplexity."""
    text = f"{plain(difference_text(found, block.percent))} {unit(block, metric)}"
    if metric == "nll":
        text += f" = {100 * math.expm1(found.value):+.1f} % perplexity".replace("-", "−")
    return text


def plain(text: str) -> str:
    """A value without the word that stands for its missing interval, where that is said once for all."""
    return text.removesuffix(f" [{TOO_SMALL}]")


def in_short(blocks: Sequence[Block], samples: Samples, records: Mapping[str, Record]) -> Table | None:
    """Per task at the longest length compared: what to take, rather than what, and how sure that is."""
    rows = []
    for block in blocks:
        found = deciding(block, samples, compared_metric(block, records))
        if found is None and not block.uninformative:
            continue
        name = " · ".join((block.first["task_label"], *block.qualifiers))
        if found is None:
            rows.append((name, "", "nothing can be said", "", "uninformative: the model cannot do this in its window"))
            continue
        where = f"{found.length} ({block.multiple(found.length)})"
        rows.append((f"{name}: {block.measure}", where, *_advice(block, found), _how_sure(block, found)))
    columns = ("task", "tokens (× trained window)", "take", "rather than", "how sure")
    return Table("In short", columns, tuple(rows)) if rows else None


def _advice(block: Block, found: Ranking) -> tuple[str, str]:
    """What to take at the deciding length, and rather than what."""
    worse = behind(block, found)
    leaders = [label for label in found.labels if label not in worse]
    if not worse:
        nothing = "no method is told apart" if found.testable else "nothing can be said"
        return nothing, ""
    rather = _named(block, worse, found.length)
    if block.baseline in leaders:
        others = ": nothing is shown to be better" if len(leaders) > 1 else ""
        return _named(block, [block.baseline], found.length) + others, rather
    one_of = "one of " if len(leaders) > 1 else ""
    return one_of + _named(block, leaders, found.length), rather


def _how_sure(block: Block, found: Ranking) -> str:
    """On how many independent samples, and whether by a test."""
    number_of = _independent(block, found)
    if found.testable:
        pairs = f", corrected for {found.pairs} pairs" if found.pairs > 1 else ""
        return f"tested on {number_of} (paired, 5 % level{pairs})"
    needed = MIN_CLUSTERS if not block.percent else smallest_decisive_n(found.pairs)
    few = f"{number_of}: too few for a test (at least {needed})"
    return f"{few}; all {found.clusters} agree" if behind(block, found) else few


def glance(blocks: Sequence[Block], samples: Samples, records: Mapping[str, Record]) -> Table | None:
    """One row per method over the blocks of one model: the value at the deciding length, its rank, and the tax."""
    columns, filled = ["method"], []
    for block in blocks:
        metric = compared_metric(block, records)
        found = deciding(block, samples, metric)
        if found is None:
            continue
        differences = baseline_differences(block, samples, metric)
        name = " · ".join((block.first["task_label"], *block.qualifiers))
        sign = " %" if block.percent else ""
        few = "" if found.testable else f" [{TOO_SMALL}]"
        columns += [f"{name}: {block.measure}{sign} at {found.length}{few}", "rank"]
        columns.append(f"tax ({unit(block, metric)}){few}")
        filled.append((block, found, differences))
    if not filled:
        return None
    order: dict[str, None] = {}
    for block, _, _ in filled:
        order |= dict.fromkeys(block.labels)
    rows = []
    for label in order:
        line = [label]
        for block, found, differences in filled:
            cell = block.cell(label, found.length)
            worst = tax(block, differences, label)
            rank = _rank(found, label) if label in found.rank else ""
            tax_text = marked(worst[1], block.percent) if worst else ""
            line += [plain(cell_text(cell, block.percent)), rank, plain(tax_text)]
        rows.append(tuple(line))
    notes = (
        "rank: 1 + the number of methods shown to be better on the same samples (paired test, 5 % level after Holm's "
        "correction over all pairs); = marks shared ranks; ? marks too few samples to tell any two methods apart",
        "tax: the largest loss against the unmodified model at or below the trained window, on the same samples; * "
        "told from 0",
    )
    return Table("At a glance", tuple(columns), tuple(rows), None, notes)


def _rank(found: Ranking, label: str) -> str:
    if not found.testable:
        return "?"
    shared = list(found.rank.values()).count(found.rank[label]) > 1
    return f"{found.rank[label]}{'=' if shared else ''}"

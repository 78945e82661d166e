"""What a set of records says in plain words: which method, how far, at what cost, and how sure that is.

Sentences are plain text (the leaderboard escapes them for Markdown). A method is called better or worse only where a
paired test on identical samples says so, corrected for the number of pairs; otherwise it is "not told apart". Where
there are too few documents for a test, it is said on how many of them the order is the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ropebench.comparison import Difference
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
from ropebench.stats import TOO_SMALL


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


def named(block: Block, labels: Sequence[str], length: int) -> str:
    return ", ".join(f"{label} ({_value(block, label, length)})" for label in labels)


def independent(block: Block, found: Ranking) -> str:
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
    open_ = [label for label in found.labels[1:] if label not in worse and label not in top]
    gaps = "; ".join(f"{label} {difference_text(found.against[label], block.percent)}" for label in worse)
    if not found.testable:
        are = "is" if found.clusters == 1 else "are"
        text += f", but {independent(block, found)} {are} too few to test any two methods."
        if worse:
            text += f" All {found.clusters} agree that it is better than {named(block, worse, length)}"
            text += f"; against {', '.join(open_)} they do not." if open_ else "."
        return text
    text += "."
    on = f"these {independent(block, found)}"
    if not worse:
        others = f": {named(block, open_, length)}" if open_ else ""
        return text + f" On {on} no method is told apart from it{others}."
    if open_:
        text += f" Not told apart from it on {on}: {named(block, open_, length)}."
    corrected = f"paired, corrected for {found.pairs} pairs" if found.pairs > 1 else "paired"
    return text + f" Worse on the same samples ({corrected}), in {unit(block, metric)}: {gaps}."


def _how_far(block: Block, found: Ranking) -> str:
    """Values at the window and beyond it, for the baseline and the best method."""
    inside = [length for length in block.lengths if length <= block.trained_length]
    beyond = [length for length in block.lengths if length > block.trained_length]
    if not inside or not beyond:
        return ""
    near, far = inside[-1], beyond[-1]
    if block.percent and block.counts().get(near) != block.counts().get(far):  # other depths: no change to speak of
        return ""
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
    value = difference_text(found, block.percent).removesuffix(f" [{TOO_SMALL}]")
    text = f"{value} {unit(block, metric)}"
    if metric == "nll":
        text += f" = {100 * math.expm1(found.value):+.1f} % perplexity".replace("-", "−")
    return text


def glance(blocks: Sequence[Block], samples: Samples, records: Mapping[str, Record]) -> Table | None:
    """Two lines per task of one model: each method's value and rank at the deciding length, and its tax. Methods stand
    side by side without intervals (each task's own tables have them), so that it grows downwards with the tasks."""
    taken = [(block, metric, found) for block in blocks
             if (found := deciding(block, samples, metric := compared_metric(block, records))) is not None]  # fmt: skip
    if not taken:
        return None
    order = list(dict.fromkeys(label for block, *_ in taken for label in block.labels))
    rows = []
    for block, metric, found in taken:
        name = " · ".join((block.first["task_label"], *block.qualifiers))
        sign = ", %" if block.percent else ""
        values = [_ranked(block, found, label) for label in order]
        rows.append((f"{name}: {block.measure}{sign} at {found.length} ({block.multiple(found.length)})", *values))
        differences = baseline_differences(block, samples, metric)
        taxes = [tax(block, differences, label) for label in order]
        if any(taxes):
            texts = [_bare(marked(worst[1], block.percent)) if worst else "" for worst in taxes]
            rows.append((f"– its tax ({unit(block, metric)})", *texts))
    notes = (
        "value · rank: 1 + the number of methods shown to be better on the same samples (paired test, 5 % level "
        "after Holm's correction over all pairs); = marks shared ranks; ? marks too few samples to tell any two apart",
        "tax: the largest loss against the unmodified model at or below the trained window, on the same samples; * "
        "told from 0",
    )
    return Table("At a glance", ("task", *order), tuple(rows), None, notes)


def _ranked(block: Block, found: Ranking, label: str) -> str:
    cell = block.cell(label, found.length)
    value = _bare(cell_text(cell, block.percent))
    return f"{value} · {_rank(found, label)}" if value and label in found.rank else value


def _bare(text: str) -> str:
    """Without its interval, but with its mark."""
    value, bracket, rest = text.partition(" [")
    return value + ("*" if bracket and rest.endswith("*") else "")


def _rank(found: Ranking, label: str) -> str:
    if not found.testable:
        return "?"
    shared = list(found.rank.values()).count(found.rank[label]) > 1
    return f"{found.rank[label]}{'=' if shared else ''}"

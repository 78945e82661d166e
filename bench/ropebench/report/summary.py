"""What a set of records says in plain words: which method, how far, at what cost, and how sure that is.

Sentences are plain text (the leaderboard escapes them for Markdown). A method is called better or worse only where a
paired test on identical samples says so; otherwise it is "not told apart".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ropebench.report.cells import Block, Record, Row, Samples, quantization_of
from ropebench.report.paired import (
    Ranking,
    baseline_differences,
    compared_metric,
    difference_text,
    ranking,
    tax,
    unit,
)
from ropebench.report.tables import Table, cell_text, number
from ropebench.stats import Difference, smallest_decisive_n


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


def _which(block: Block, found: Ranking, metric: str) -> str:
    first, length = block.first, found.length
    extreme = "lowest" if first["direction"] == "lower" else "highest"
    row = block.cell(found.best, length)
    n = row["n"] if row else 0
    name = " · ".join((first["task_label"], *block.qualifiers))
    worse = [label for label in found.labels[1:] if label not in found.tied]
    cells = {label: block.cell(label, length) for label in found.labels}
    top = [label for label, cell in cells.items() if row and cell and cell["value"] == row["value"]]
    text = f"{name}: at {_where(block, length)} {first['metric']} is {extreme} with {', '.join(top)} "
    text += f"({_value(block, found.best, length)})"
    if not found.testable:
        return f"{text}, but {n} sample{'' if n == 1 else 's'} cannot tell any two methods apart."
    text += "."
    if found.tied and not worse:
        return text + f" On these {n} samples no method is told apart from it: {_named(block, found.tied, length)}."
    if found.tied:
        text += f" Not told apart from it on these {n} samples: {_named(block, found.tied, length)}."
    gaps = "; ".join(f"{label} {difference_text(found.against[label], block.percent)}" for label in worse)
    return text + f" Worse on the same samples (paired, each pair by itself), in {unit(block, metric)}: {gaps}."


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
    differences = baseline_differences(block, samples, metric) if found.testable else {}
    inside = [length for length in block.lengths if length <= block.trained_length]
    parts = []
    for label in (found.best, *found.tied):
        worst = tax(block, differences, label)
        if worst is not None:
            length, value = worst
            doubt = "" if value.decided else " (not told from 0)"
            parts.append(f"{label} {cost_text(value, metric, block)} at {length}{doubt}")
    if not parts:
        return ""
    span = f"{inside[0]}–{inside[-1]}" if len(inside) > 1 else str(inside[0])
    return f"Cost inside the window ({span} tokens, largest loss against {block.baseline}): {'; '.join(parts)}."


def cost_text(found: Difference, metric: str, block: Block) -> str:
    """A difference with its unit; for NLL also as a change of perplexity."""
    text = f"{difference_text(found, block.percent)} {unit(block, metric)}"
    if metric == "nll":
        text += f" = {100 * math.expm1(found.value):+.1f} % perplexity".replace("-", "−")
    return text


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
        columns += [f"{name}: {block.first['metric']}{sign} at {found.length}", "rank", f"tax ({unit(block, metric)})"]
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
            line += [cell_text(cell, block.percent), rank, difference_text(worst[1], block.percent) if worst else ""]
        rows.append(tuple(line))
    notes = (
        "rank: 1 + the number of methods shown to be better on the same samples (paired test, 5 %); = marks shared "
        "ranks; ? marks too few samples to tell any two methods apart",
        "tax: the largest loss against the unmodified model at or below the trained window, on the same samples",
    )
    return Table("At a glance", tuple(columns), tuple(rows), None, notes)


def _rank(found: Ranking, label: str) -> str:
    if not found.testable:
        return "?"
    shared = list(found.rank.values()).count(found.rank[label]) > 1
    return f"{found.rank[label]}{'=' if shared else ''}"


def limits(blocks: Sequence[Block], samples: Samples, records: Mapping[str, Record]) -> list[str]:
    """What the numbers do and do not show, from n, clusters, widths, corpora, seeds and failures."""
    lines: list[str] = []
    tests = 0
    for block in blocks:
        metric = compared_metric(block, records)
        done = [row for row in block.rows if row["value"] is not None]
        if done:
            lines.append(_score_limits(block, done) if block.percent else _width_limits(block, done, metric))
        for length in block.disagreeing():
            lines.append(f"{block.title}: at {length} the methods saw different samples; they are not compared there.")
        counted = [len([row for row in done if row["condition_length"] == length]) for length in block.lengths]
        tests += sum(count * (count - 1) // 2 for count in counted)
    rows = [row for block in blocks for row in block.rows]
    lines += _general(rows, tests)
    return lines


def _span(values: Sequence[int]) -> str:
    return str(min(values)) if min(values) == max(values) else f"{min(values)}–{max(values)}"


def _width_limits(block: Block, done: Sequence[Row], metric: str) -> str:
    clusters = [row["clusters"] for row in done]
    text = f"{block.title}: {_span(clusters)} documents of one corpus, seed {block.first['condition_seed']}."
    known = [row for row in done if row["low"] is not None]
    if known:
        widest = max(known, key=lambda row: row["high"] - row["low"])
        text += (
            f" A single value is uncertain by as much as {number(widest['low'])}–{number(widest['high'])} around "
            f"{number(widest['value'])} ({widest['label']} at {widest['condition_length']}), because documents differ; "
            "methods are therefore compared document by document, and a difference whose interval includes 0 may still "
            "exist."
        )
    if metric == "nll":
        text += (
            " Most tokens are predicted from nearby text, so a low perplexity does not show that distant text is used."
        )
    return text


def _score_limits(block: Block, done: Sequence[Row]) -> str:
    counts = sorted({row["n"] for row in done if row["n"]}, reverse=True)
    steps = ", ".join(f"{100 / n:.0f} points with n = {n}" for n in counts)
    text = f"{block.title}: {_span(counts)} samples per cell; one sample is {steps}."
    sure = next((row for row in done if row["value"] == 1 and row["low"] is not None and row["n"] == counts[0]), None)
    if sure is not None:
        text += f" {number(1, True)} % of {sure['n']} is compatible with {number(sure['low'], True)}–100 %."
    needed, clusters = smallest_decisive_n(), [row["clusters"] for row in done]
    if any(row["clusters"] < row["n"] for row in done):
        text += (
            f" The samples of a cell share {_span(clusters)} haystack{'' if max(clusters) == 1 else 's'}, so they are"
        )
        text += " less than so many independent ones and Wilson's intervals are too narrow."
    if max(clusters) < needed:
        text += (
            f" With fewer than {needed} independent samples the exact paired test cannot tell any two methods apart: "
            "this task ranks nothing here."
        )
    return text


def _general(rows: Sequence[Row], tests: int) -> list[str]:
    lines = []
    models = sorted({row["model_id"] for row in rows})
    if len(models) == 1:
        lines.append(f"One model ({models[0]}): nothing here says how the methods order on others.")
    weights = sorted({quantization for row in rows if (quantization := quantization_of(row))})
    if weights:
        listed = ", ".join(weights)
        lines.append(f"Quantised weights ({listed}): absolute values differ from those of the full-precision model.")
    seeds = sorted({row["condition_seed"] for row in rows})
    if len(seeds) == 1:
        lines.append(f"One seed ({seeds[0]}): the samples were drawn once.")
    if tests:
        lines.append(f"Up to {tests} paired tests at the 5 % level without correction for their number.")
    failed = sum(row["outcome_status"] != "ok" for row in rows)
    if failed:
        lines.append(f"{failed} of {len(rows)} cells failed: they stand in the tables by status and enter no mean.")
    dirty = sum(row.get("provenance_dirty") is True for row in rows)
    if dirty:
        lines.append(f"{dirty} of {len(rows)} cells were measured from a working tree with uncommitted changes.")
    return [*lines, "A blank cell was not run."]

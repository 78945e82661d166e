"""Does a method fit the text better without answering better? Likelihood against exact match on the same samples.

For every task whose metrics include `context_nll` (of the text around a problem) and `exact_match` (of its answer).
Each method is paired with the baseline on samples whose hashes agree:

    yes            context_nll is decidedly lower, and exact_match is not higher by any test
    no             exact_match is decidedly higher, or context_nll is decidedly higher
    undecided      neither is shown, or the samples are too few, or it is unknown whether the model can do the task
    uninformative  the model is not shown to be above chance inside its window

"Decidedly" is at the 5 % level after Holm's correction over the table. That correction must not make a "yes" easier, so
an exact_match that is higher before it, and not after it, leaves the matter undecided. And "not higher" is no proof of
"not higher": the interval says how large a gain the samples leave open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ropebench.comparison import Difference, corrected
from ropebench.report.cells import Block, Record, Row, Samples, blocks
from ropebench.report.gate import UNINFORMATIVE
from ropebench.report.paired import comparison_note, marked, paired_cells
from ropebench.report.tables import Table

LIKELIHOOD, SCORE = "context_nll", "exact_match"


@dataclass(frozen=True)
class Dissociation:
    """A method minus the baseline at one length, in likelihood and in score, and what follows."""

    likelihood: Difference
    score: Difference
    found: str


def dissociations(block: Block, samples: Samples, records: Mapping[str, Record]) -> dict[tuple[str, int], Dissociation]:
    """By method label and length, where both were measured on the baseline's samples; empty for other tasks."""
    metrics = {spec["name"] for spec in records[block.first["cell_id"]]["task"]["metrics"]}
    if block.baseline is None or not {LIKELIHOOD, SCORE} <= metrics:
        return {}
    pairs: dict[str, dict[tuple[str, int], Difference]] = {LIKELIHOOD: {}, SCORE: {}}
    for row in block.rows:
        place = row["label"], row["condition_length"]
        other = block.cell(block.baseline, row["condition_length"])
        for metric, known in pairs.items():
            value = paired_cells(row, other, samples, metric)
            if row["label"] != block.baseline and value is not None:
                known[place] = value
    likelihood, score = (corrected(known) for known in pairs.values())
    informative = block.first["informative"]
    return {
        place: Dissociation(likelihood[place], score[place], verdict(likelihood[place], score[place], informative))
        for place in likelihood
        if place in score
    }


def verdict(likelihood: Difference, score: Difference, informative: bool | None) -> str:
    """yes, no, undecided or uninformative (see above), from the differences to the baseline."""
    if informative is False:
        return UNINFORMATIVE
    # A score that could never be shown to be higher must not count as one that is not.
    if informative is None or not (likelihood.testable and score.could_decide(1)):
        return "undecided"
    if score.decided and score.value > 0:
        return "no"
    if likelihood.decided:
        if likelihood.value > 0:
            return "no"
        if score.value <= 0 or not replace(score, adjusted=None).decided:
            return "yes"
    return "undecided"


def dissociation_table(block: Block, samples: Samples, records: Mapping[str, Record]) -> Table | None:
    """One line per method and length; None where the task does not have both metrics, or nothing is comparable."""
    found = dissociations(block, samples, records)
    if not found:
        return None
    rows = []
    for (label, length), one in found.items():
        where = f"{length} ({block.multiple(length)})"
        score = UNINFORMATIVE if one.found == UNINFORMATIVE else marked(one.score, percent=True)
        rows.append((label, where, marked(one.likelihood), score, one.found))
    name = f"{block.first['model_id']} · {block.first['task_label']}"
    title = f"{name} · dissociation: text fitted better than by {block.baseline}, answers not better"
    columns = ("method", "length", f"{LIKELIHOOD}, {block.bos} (nats per token)", f"{SCORE} (points)", "dissociation")
    return Table(" · ".join([title, *block.qualifiers]), columns, tuple(rows), None, _notes(block, found))


def _notes(block: Block, found: Mapping[tuple[str, int], Dissociation]) -> tuple[str, ...]:
    lines = [
        f"differences to {block.baseline}; yes: {LIKELIHOOD} decidedly lower and {SCORE} not higher by any test; no: "
        f"{SCORE} decidedly higher, or {LIKELIHOOD} decidedly higher; the interval of {SCORE} says how large a gain "
        "these samples leave open",
        f"{LIKELIHOOD}: {comparison_note({place: one.likelihood for place, one in found.items()})}",
    ]
    if block.first["informative"] is not False:
        lines.append(f"{SCORE}: {comparison_note({place: one.score for place, one in found.items()})}")
    if block.first["informative"] is None:
        lines.append("undecided throughout: the unmodified model was not measured inside its window")
    return tuple(lines)


def with_dissociation(rows: Iterable[Row], samples: Samples, records: Mapping[str, Record]) -> list[Row]:
    """Flat rows with the key `dissociation`: yes, no, undecided, uninformative, or None where there is none to say."""
    rows = list(rows)
    known: dict[str, str] = {}
    for block in blocks(rows):
        for (label, length), one in dissociations(block, samples, records).items():
            cell = block.cell(label, length)
            if cell is not None:
                known[cell["cell_id"]] = one.found
    return [row | {"dissociation": known.get(row["cell_id"])} for row in rows]

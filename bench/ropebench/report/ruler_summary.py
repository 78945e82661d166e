"""RULER as one number per length: the mean of its 13 tasks, over lengths, and how far it stays above the threshold.

What is averaged is one model, condition, layout and prose: the tasks whose haystack is prose give the family its label,
`ruler[corpus]`, and the others, which have none or data of their own, belong to each. A mean with a missing task is
blank, and says how many there are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ropebench.report.cells import CONDITION_KEYS, MODEL_KEYS, Block, Row
from ropebench.report.style import order
from ropebench.report.tables import Table, number
from ropebench.ruler.scoring import EFFECTIVE, NUMBER_OF_TASKS, length_score, length_summary

FAMILY = "ruler/"
WEIGHTED = (4096, 8192, 16384, 32768, 65536, 131072)  # the lengths over which RULER's weighted means are defined


@dataclass(frozen=True)
class Family:
    """Blocks of RULER tasks that may be averaged: at most one per task. `doubtful` tasks were left out because they
    were run in several settings."""

    label: str
    blocks: tuple[Block, ...]
    doubtful: tuple[str, ...] = ()
    _scores: dict[tuple[str, int], dict[str, Row]] = field(default_factory=dict, repr=False)

    @property
    def first(self) -> Block:
        return self.blocks[0]

    @property
    def labels(self) -> list[str]:
        names = {label: block.name(label) for block in self.blocks for label in block.labels}
        return sorted(names, key=lambda label: (*order(names[label]), label))

    @property
    def lengths(self) -> list[int]:
        return sorted({length for block in self.blocks for length in block.lengths})

    def cells(self, label: str, length: int) -> dict[str, Row]:
        """Task → its cell with a value, for a method at a length."""
        found = {block.first["task_name"]: block.cell(label, length) for block in self.blocks}
        return {task: cell for task, cell in found.items() if cell is not None and cell["value"] is not None}

    def score(self, label: str, length: int) -> float | None:
        """The mean of the 13 tasks (0–1), or None while one is missing."""
        return length_score({task: cell["value"] for task, cell in self.cells(label, length).items()})

    def interval(self, label: str, length: int) -> tuple[float, float] | None:
        """95 % interval of the mean, from those of the 13 tasks, whose samples are drawn apart: distances to the ends
        add up in squares (the method of variance estimates recovery); None where one task has none."""
        cells = list(self.cells(label, length).values())
        score = self.score(label, length)
        if score is None or any(cell["low"] is None or cell["high"] is None for cell in cells):
            return None
        below = math.hypot(*(cell["value"] - cell["low"] for cell in cells)) / NUMBER_OF_TASKS
        above = math.hypot(*(cell["high"] - cell["value"] for cell in cells)) / NUMBER_OF_TASKS
        return score - below, score + above


def families(blocks: Iterable[Block]) -> list[Family]:
    """RULER's blocks sorted into families; those of one task alone are none."""
    grouped: dict[str, list[Block]] = {}
    for block in blocks:
        row = block.first
        if row["task_name"].startswith(FAMILY):
            keys = [f"model_{key}" for key in MODEL_KEYS] + [f"condition_{key}" for key in CONDITION_KEYS]
            key = json.dumps([*(row.get(name) for name in keys), _layout(row)])
            grouped.setdefault(key, []).append(block)
    found = []
    for members in grouped.values():
        corpora = sorted({str(b.first["task_corpus_label"]) for b in members if b.first.get("task_corpus_label")})
        for corpus in corpora or [""]:
            chosen = [block for block in members if (block.first.get("task_corpus_label") or corpus) == corpus]
            names = [block.first["task_name"] for block in chosen]
            once = tuple(block for block in chosen if names.count(block.first["task_name"]) == 1)
            if len(once) > 1:
                layout = _layout(members[0].first)
                label = "ruler" + (f":{layout}" if layout else "") + (f"[{corpus}]" if corpus else "")
                doubtful = tuple(sorted({name for name in names if names.count(name) > 1}))
                found.append(Family(label, once, doubtful))
    return found


def _layout(row: Row) -> str:
    """How needles lie, where it is not the default: two layouts are two benchmarks."""
    layout = json.loads(row.get("task_params") or "{}").get("layout", "balanced")
    return "" if layout == "balanced" else str(layout)


def family_table(family: Family, reached: Mapping[str, str] | None = None, threshold: float = EFFECTIVE) -> Table:
    """Per method and length the mean of the 13 tasks in percent; over lengths the mean, the weighted means, and the
    effective length: by the values themselves, or as `reached` has it by method, with its interval."""
    lengths, block = family.lengths, family.first
    columns = ("method", *(f"{length} ({block.multiple(length)})" for length in lengths), "mean", "weighted to long",
               "weighted to short", "effective length")  # fmt: skip
    over = {label: _over_lengths(family, label, reached, threshold) for label in family.labels}
    rows = tuple((label, *(_cell(family, label, at) for at in lengths), *over[label]) for label in family.labels)
    beyond = [place for place, length in enumerate(lengths, 1) if length > block.trained_length]
    title = f"{block.first['model_id']} · {family.label} · mean of {NUMBER_OF_TASKS} tasks, % (higher is better)"
    return Table(title, columns, rows, beyond[0] if beyond else None, tuple(_notes(family, threshold, bool(reached))))


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _cell(family: Family, label: str, length: int) -> str:
    score, there = family.score(label, length), len(family.cells(label, length))
    if score is None:
        return f"({there} of {NUMBER_OF_TASKS})" if there else ""
    bounds = family.interval(label, length)
    inside = "n too small" if bounds is None else "–".join(number(end, percent=True) for end in bounds)
    return f"{_percent(score)} [{inside}]"


def _over_lengths(family: Family, label: str, reached: Mapping[str, str] | None, threshold: float) -> list[str]:
    """Mean, weighted to long, weighted to short, effective length; a mean with a missing length is blank."""
    lengths = family.lengths
    known = {length: score for length in lengths if (score := family.score(label, length)) is not None}
    if not known:
        return ["", "", "", ""]
    mean = _percent(length_summary(known).mean) if len(known) == len(lengths) else ""
    weighted = ["", ""]
    if set(WEIGHTED) <= set(known):
        six = length_summary({length: known[length] for length in WEIGHTED})
        weighted = [_percent(six.increasing), _percent(six.decreasing)]
    far = (reached or {}).get(label) or effective_length(known, threshold)
    return [mean, *weighted, far]


def effective_length(scores: dict[int, float], threshold: float = EFFECTIVE) -> str:
    """The longest length whose score reaches the threshold, by the values themselves; `≥` where no longer one that
    falls short was measured, `<` where even the shortest does. `scores`: 0–1 by length."""
    found = length_summary({length: 100 * score for length, score in scores.items()}, threshold).effective_length
    if found is None:
        return f"< {min(scores)}"
    return f"{found}" if max(scores) > found else f"≥ {found}"


def _notes(family: Family, threshold: float, redrawn: bool) -> Sequence[str]:
    whose = ", RULER's threshold" if threshold == EFFECTIVE else ""
    ends = "; that of an effective length under bootstraps within each task, one of the measured lengths"
    lines = [
        f"effective length: the longest one at or above {threshold:g} %{whose}; ≥: no longer one was "
        "measured in full; <: not even the shortest",
        f"brackets: 95 % intervals of the mean, from those of the {NUMBER_OF_TASKS} tasks{ends if redrawn else ''}",
        "weighted means: weights 1 to 6 over RULER's six lengths, 4096 to 131072; blank unless all six are there",
    ]
    if any(0 < len(family.cells(label, length)) < NUMBER_OF_TASKS for label in family.labels
           for length in family.lengths):  # fmt: skip
        lines.append(f"(9 of {NUMBER_OF_TASKS}): so many tasks have a result; a mean with a missing task is blank")
    if family.doubtful:
        lines.append(f"run in several settings, so that it is not known which to average: {', '.join(family.doubtful)}")
    return lines

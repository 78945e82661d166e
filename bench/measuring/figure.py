"""One figure of the bench: what was measured, what it should reach, what it reached; as a table and as a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ropebench.record import SCHEMA, digest, now, provenance


class AnswersDiffer(Exception):
    """The two ways do not give the same answers, so that their ratio says nothing."""


@dataclass(frozen=True)
class Figure:
    """`reached` against `target` (None: nothing is promised), both in `unit`: "×" for a ratio, "s", "%" for a share of
    1, or a unit of its own. `sense` says which side of the target is good. `row` holds the numbers behind it, with
    their units in their names; `ratio` there is ours ÷ plain.
    """

    name: str
    what: str
    reached: float | None
    target: float | None = None
    sense: Literal["≤", "<", "≥"] = "≤"
    unit: str = "×"
    row: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        if self.target is None or self.reached is None:
            return None
        if self.sense == "≥":
            return self.reached >= self.target
        return self.reached < self.target if self.sense == "<" else self.reached <= self.target

    def numbers(self) -> dict[str, Any]:
        """What is stored."""
        wanted = {"reached": self.reached, "target": self.target, "sense": self.sense, "unit": self.unit}
        return {"name": self.name, "what": self.what, "ratio": None, **wanted, "met": self.met, **self.row}

    def record(self, run_id: str, device: str, target: str = "bench") -> dict[str, Any]:
        """A results line, with what every record has; `cell_id` is what was measured, `target` the make target."""
        cell_id, created = digest(self.what), now()
        return {
            "schema": SCHEMA,
            "kind": "bench",
            "record_id": digest([cell_id, run_id, created]),
            "cell_id": cell_id,
            "run_id": run_id,
            "created": created,
            "bench": self.numbers(),
            "provenance": provenance(("make", target), device),
        }


def detail(figure: Figure) -> str:
    """The numbers behind a figure, on one line."""
    numbers = {key: value for key, value in figure.row.items() if isinstance(value, int | float)}
    return "  ".join(f"{key}={value:.4g}" for key, value in numbers.items())


def shown(value: float | None, unit: str) -> str:
    """A number for the table, with three digits.

    >>> shown(0.0345, "%"), shown(8.72, "×"), shown(12345.6, "tokens/s")
    ('3.45 %', '8.72×', '12,346 tokens/s')
    """
    if value is None:
        return "not measured"
    number = value * 100 if unit == "%" else value
    text = f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
    return f"{text}{unit}" if unit == "×" else f"{text} {unit}".rstrip()


def table(figures: Sequence[Figure], failed: Sequence[tuple[str, str]] = ()) -> str:
    """The figures as aligned text: name, target, reached, met, what. `failed`: (name, reason) where none is given."""
    lines = [("", "target", "reached", "met", "what")]
    for one in figures:
        met = {True: "yes", False: "NO", None: "–"}[one.met]
        target = f"{one.sense} {shown(one.target, one.unit)}" if one.target is not None else "–"
        lines.append((one.name, target, shown(one.reached, one.unit), met, one.what))
    lines += [(name, "–", "no figure", "NO", reason) for name, reason in failed]
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    text = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[4]]) for line in lines
    ]
    return "\n".join([text[0], "─" * max(map(len, text)), *text[1:]])

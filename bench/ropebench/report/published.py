"""Published numbers beside measured ones.

A published number stands beside a measured cell only where weights, method, factor, task, length and protocol are the
same; for every other it is said what differs, and its value is not put beside ours. `reproduction_tables` sets what
`ropebench reproduce` measured against its source and says what was done another way. A deviation is ours − published,
in the metric's unit (percentage points for scores), and its interval is that of our cell less the published number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ropebench.published import Protocol, Reproduction, Row
from ropebench.published.match import Difference, Measured, differences, nearest, of_flat, said
from ropebench.report.cells import Record, Samples, blocks, cell_rows
from ropebench.report.ruler_summary import families
from ropebench.report.tables import Table, number
from ropebench.ruler.scoring import NUMBER_OF_TASKS

Json = dict[str, Any]


@dataclass(frozen=True)
class Beside:
    """A published number, the measured cell that comes nearest (None: the model was not measured), and what differs."""

    row: Row
    ours: Measured | None
    apart: tuple[Difference, ...]

    @property
    def matches(self) -> bool:
        return self.ours is not None and not self.apart


@dataclass(frozen=True)
class Deviation:
    """Ours − published, with the ends of our interval less the published number, and the share of it that this is."""

    value: float
    low: float | None
    high: float | None
    relative: float | None


def deviation(row: Row, ours: Measured) -> Deviation | None:
    """None where there is no measured value, or where a bound was published and no number."""
    if ours.value is None or row.bound:
        return None
    low, high = (None if end is None else end - row.value for end in (ours.low, ours.high))
    difference = ours.value - row.value
    return Deviation(difference, low, high, difference / row.value if row.value else None)


def measured(records: Iterable[Record], samples: Samples) -> list[Measured]:
    """What was measured, by each task's primary metric: all cells, and RULER's mean of 13 tasks (task `ruler`)."""
    rows = cell_rows(records, samples)
    return [*(_with_reason(row) for row in rows), *_ruler_means(rows)]


def _with_reason(row: Mapping[str, Any]) -> Measured:
    status = row["outcome_status"]
    reason = "" if row["value"] is not None else status if status != "ok" else row["interval"] or "no samples"
    return of_flat(row, reason)


def _ruler_means(rows: Iterable[Mapping[str, Any]]) -> list[Measured]:
    found = []
    for family in families(blocks(dict(row) for row in rows)):
        for label in family.labels:
            for length in family.lengths:
                cells = family.cells(label, length)
                if not cells:
                    continue
                one = next(iter(cells.values()))
                score, bounds = family.score(label, length), family.interval(label, length)
                lacking = "" if score is not None else f"{len(cells)} of the {NUMBER_OF_TASKS} tasks"
                mean = {"task_name": "ruler", "metric": "score", "value": score, "cell_id": ""}
                mean |= {"low": bounds and bounds[0], "high": bounds and bounds[1]}
                mean |= {"interval": "" if bounds else "n too small", "n": min(cell["n"] for cell in cells.values())}
                found.append(of_flat(one | mean, lacking, lacking))
    return found


def beside(rows: Iterable[Row], found: Sequence[Measured]) -> list[Beside]:
    """For each published number every measured cell of the very same thing, or else the one that comes nearest."""
    pairs: list[Beside] = []
    for row in rows:
        same = [one for one in found if not differences(row, one)]
        near = None if same else nearest(row, found)
        pairs += [Beside(row, one, ()) for one in same] or [
            Beside(row, near[0], tuple(near[1])) if near else Beside(row, None, ())
        ]
    return pairs


def as_rows(pairs: Iterable[Beside]) -> list[Json]:
    """Plain rows for JSON: scores 0–1; ours and the deviation only where all is the same, else null."""
    return [_plain(one.row, one.ours if one.matches else None, one.matches, one.apart, one.ours) for one in pairs]


def _plain(
    row: Row, ours: Measured | None, matches: bool, apart: Iterable[Difference], compared: Measured | None
) -> Json:
    off = deviation(row, ours) if ours else None
    return {
        "source": row.source,
        "where": row.where,
        "tag": row.tag,
        "model": row.weights or row.model,
        "method": row.label,
        "task": row.task,
        "protocol": row.protocol.says,
        "metric": row.protocol.metric,
        "length": row.length,
        "published": row.value,
        "bound": row.bound,
        "matches": matches,
        "differs": [asdict(one) for one in apart],
        "model_measured": compared is not None,
        "cell_id": (ours.cell_id or None) if ours else None,
        "value": ours.value if ours else None,
        "low": ours.low if ours else None,
        "high": ours.high if ours else None,
        "interval": ours.interval if ours else None,
        "deviation": asdict(off) if off else None,
    }


def beside_tables(pairs: Sequence[Beside]) -> list[Table]:
    """What may stand side by side, then what may not and why."""
    side = [one for one in pairs if one.matches]
    apart = [one for one in pairs if one.ours is not None and not one.matches]
    absent = sorted({one.row.weights or one.row.model for one in pairs if one.ours is None})
    notes = [f"{len(absent)} models with published numbers have no record here: {', '.join(absent)}"] if absent else []
    if side:
        body = tuple(
            (one.row.weights or one.row.model, one.ours.label, one.row.task, *_numbers(one.row, one.ours),
             one.row.cited) for one in side if one.ours
        )  # fmt: skip
        table = Table(
            "Published beside measured: same weights, method, task, length and protocol",
            ("model", "method", "task", *_NUMBERS, "source"), body, None, (_INTERVAL,),
        )  # fmt: skip
        return [table, *_apart_tables(apart, notes)]
    none = "no published number is of the same weights, method, task, length and protocol as a record here"
    return [*_apart_tables(apart, [none, *notes])]


def _apart_tables(apart: Iterable[Beside], notes: Sequence[str]) -> list[Table]:
    """One line for numbers of one table and method that are apart from ours for the same reason."""
    grouped: dict[tuple[str, ...], list[int]] = {}
    for one in apart:
        row, what = one.row, {difference.what: difference for difference in one.apart}
        # Of several reasons the first that makes the others idle: another task has another protocol anyway.
        first = next((what[key] for key in ("task", "method", "factor", "length") if key in what), None)
        reason = said(one.apart)
        if first is not None and first.what == "length":
            reason = "not measured at these lengths"
        elif first is not None:
            reason = said([first])
        key = (row.weights or row.model, row.label, row.task, reason, row.cited)
        grouped.setdefault(key, []).append(row.length)
    if not grouped:
        lines = tuple((note,) for note in notes)
        return [Table("Published, and not beside ours", ("why",), lines)] if notes else []
    body = tuple(
        (model, method, task, _lengths(lengths), why, cited)
        for (model, method, task, why, cited), lengths in grouped.items()
    )
    columns = ("model", "method", "task", "lengths", "why", "source")
    return [Table("Published, and not beside ours", columns, body, None, tuple(notes))]


def _lengths(lengths: Sequence[int]) -> str:
    ordered = sorted(set(lengths))
    return ", ".join(map(str, ordered)) if len(ordered) < 4 else f"{ordered[0]}–{ordered[-1]} ({len(ordered)})"


_NUMBERS = ("length", "published", "ours", "ours − published", "relative")
_INTERVAL = "brackets: 95 % interval of ours, and of ours − published with the published number taken as exact"


def _numbers(row: Row, ours: Measured | None) -> tuple[str, ...]:
    """Length, published, ours, deviation, relative deviation; of a bound, whether ours is within it."""
    percent = row.protocol.percent
    shown = f"{row.bound}{_shown(row.value, percent)}"
    if ours is None:
        return str(row.length), shown, "not measured", "", ""
    return str(row.length), shown, _ours(ours, percent), *_off(row, ours, percent)


def _off(row: Row, ours: Measured, percent: bool) -> tuple[str, str]:
    if row.bound and ours.value is not None:
        inside = ours.value > row.value if row.bound == ">" else ours.value < row.value
        return ("within the bound" if inside else "NOT within the bound"), ""
    off = deviation(row, ours)
    if off is None:
        return "", ""
    ends = (
        "" if off.low is None or off.high is None else f" [{_signed(off.low, percent)} to {_signed(off.high, percent)}]"
    )
    return _signed(off.value, percent) + ends, "" if off.relative is None else f"{100 * off.relative:+.2f} %"


def _ours(ours: Measured, percent: bool) -> str:
    if ours.value is None:
        return ours.why_no_value
    if ours.low is None or ours.high is None:
        return f"{_shown(ours.value, percent)} [{ours.interval}]"
    return f"{_shown(ours.value, percent)} [{_shown(ours.low, percent)}–{_shown(ours.high, percent)}]"


def _shown(value: float, percent: bool) -> str:
    return f"{100 * value:.1f}" if percent else number(value, digits=4)


def _signed(value: float, percent: bool) -> str:
    return f"{100 * value:+.1f}" if percent else f"{value:+.3g}"


def held_against(rep: Reproduction, found: Sequence[Measured]) -> list[Beside]:
    """Each published number of a reproduction with our cell of that method, task and length, whatever else differs;
    without one where that was not measured. A number of which either of two methods is meant comes once for each."""
    pairs = []
    for row in rep.rows:
        for method in row.methods:
            same = [one for one in found if (one.task, one.length, one.method) == (row.task, row.length, method)]
            pairs += [Beside(row, one, tuple(differences(row, one))) for one in same]
            if not same and len(row.methods) == 1:
                pairs.append(Beside(row, None, ()))
    return pairs


def reproduction_rows(rep: Reproduction, found: Sequence[Measured]) -> list[Json]:
    """Plain rows for JSON: as `as_rows`, but ours is given also where something differs, which `differs` says."""
    return [_plain(one.row, one.ours, one.matches, one.apart, one.ours) for one in held_against(rep, found)]


def reproduction_tables(rep: Reproduction, found: Sequence[Measured]) -> list[Table]:
    """One table per protocol: published, ours, the deviation; under it what differs or was not published."""
    tables, pairs = [], held_against(rep, found)
    for protocol in rep.protocols:
        mine = [one for one in pairs if one.row.protocol == protocol]
        used = {id(one.ours) for one in mine}
        extra = [one for one in found if one.task == protocol.task and id(one) not in used]
        if not extra and not any(one.ours for one in mine):
            continue
        lines = [
            (one.row.task, one.ours.label if one.ours else one.row.label, *_numbers(one.row, one.ours)) for one in mine
        ]
        lines += [(one.task, one.label, str(one.length), "", _ours(one, protocol.percent), "", "") for one in extra]
        columns = ("task", "method", *_NUMBERS)
        kind = "closest protocol" if protocol.unknown else "published protocol"
        title = f"{rep.name} · {protocol.task} · {protocol.metric} · {kind}: {protocol.says}"
        other = sorted({one.metric for one in (*extra, *(o.ours for o in mine if o.ours))} - {protocol.metric})
        notes = _notes(rep, protocol, mine) + ([f"ours is {', '.join(other)}"] if other else [])
        tables.append(Table(title, columns, tuple(lines), None, tuple(notes)))
    return tables


def _notes(rep: Reproduction, protocol: Protocol, mine: Sequence[Beside]) -> list[str]:
    cited = dict.fromkeys(one.row.cited for one in mine)
    notes = [f"published: {'; '.join(cited)}" if cited else f"published: {rep.source}; no number", _INTERVAL]
    differs = departures(mine)
    if protocol.corpus and not differs:
        notes.append(
            "the interval is about other documents of this kind; on the very documents that were published, a faithful "
            "reproduction comes much closer"
        )
    if protocol.unknown:
        notes.append(f"closest protocol; not published: {', '.join(protocol.unknown)}")
    return [*notes, *(f"DIFFERS from what was published at {_lengths(at)}: {text}" for text, at in differs.items())]


def departures(pairs: Iterable[Beside]) -> dict[str, list[int]]:
    """What was done, or is planned, another way than published, and at which lengths; unpublished settings apart."""
    found: dict[str, list[int]] = {}
    for one in pairs:
        known = [difference for difference in one.apart if difference.what != "settings"]
        if known:
            found.setdefault(said(known), []).append(one.row.length)
    return found

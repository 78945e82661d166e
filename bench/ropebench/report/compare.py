"""Two methods, models or runs against each other, cell by cell, on the samples that both have.

A side is every record of one method label (`yarn×2`), model (`model=NAME`) or run. Cells pair where everything else is
the same: model, task, condition and length for two methods; method, task, condition and length for two models; and all
of these for two runs. What is paired inside a cell are samples with the same prompt hash, so two models with different
tokenizers have nothing to compare, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import fsum
from typing import Any

from ropebench.comparison import Difference, corrected
from ropebench.errors import UsageError, unknown
from ropebench.power import POWER, detectable, needed
from ropebench.record import canonical
from ropebench.report.cells import MODEL_KEYS
from ropebench.report.evidence import in_common, metric_spec, paired_difference, sample_metric, scored
from ropebench.report.pooling import pooled
from ropebench.report.tables import Table, number

Record = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]
Measured = tuple[Record, Rows]  # a record and the sample rows behind it


@dataclass(frozen=True)
class Side:
    """One side: its name as shown, its kind (method, model or run), and its cells, one per cell_id."""

    name: str
    kind: str
    cells: tuple[Measured, ...]


@dataclass(frozen=True)
class Line:
    """One cell of A against the same cell of B. `a` and `b` are means over the common samples; `status` says why there
    is no difference. `smallest` could have been shown with power 80 %, `needs` is n for the difference asked about, and
    `floor` the largest difference between two measurements of the same cell."""

    model: str
    method: str
    task: str
    length: int
    metric: str
    direction: str
    share: bool
    n_a: int
    n_b: int
    status: str = "ok"
    a: float | None = None
    b: float | None = None
    difference: Difference | None = None
    smallest: float | None = None
    needs: int | None = None
    floor: float | None = None


def side(word: str, measured: Sequence[Measured]) -> Side:
    """What a word names among counting records. Raises UsageError for one that names nothing."""
    if word.startswith("model="):
        name = word.removeprefix("model=")
        models = {record["model"]["id"] for record, _ in measured}
        if name not in models:
            raise unknown("model", name, models)
        return Side(name, "model", tuple(one for one in measured if one[0]["model"]["id"] == name))
    labels = {record["method"]["label"]: record["method"]["name"] for record, _ in measured}
    plain = {label.replace("×", "x"): label for label in labels}
    alike = [label for label, name in labels.items() if name == word]
    found = word if word in labels else plain.get(word) or (alike[0] if len(alike) == 1 else None)
    if found is None:
        if alike:
            raise UsageError(f"{word!r} names several methods here: {', '.join(sorted(alike))}; give one of them")
        allowed = [*labels, *(f"model={record['model']['id']}" for record, _ in measured)]
        raise unknown("method, model or run", word, set(allowed), "or a run id, or a results folder")
    return Side(found, "method", tuple(one for one in measured if one[0]["method"]["label"] == found))


def compare(
    a: Side, b: Side, *, task: str | None = None, length: int | None = None, model: str | None = None,
    metric: str | None = None, detect: float | None = None, repeats: Mapping[str, float] | None = None,
) -> list[Line]:  # fmt: skip
    """A − B for every cell that both have, Holm-corrected over all of them. `detect`: a difference whose n is
    asked for, in points of 100 for scores, else in the metric's own unit. `repeats`: see `noise`.

    Raises UsageError where the sides are of different kinds, share no cell, or share no sample.
    """
    if a.kind != b.kind:
        raise UsageError(
            f"{a.name!r} is a {a.kind} and {b.name!r} a {b.kind}: give two methods, two models or two runs"
        )
    if a.name == b.name:
        raise UsageError(f"{a.name!r} on both sides: give two different {a.kind}s")
    ours, theirs = (_cells(one, task, length, model) for one in (a, b))
    both = [key for key in ours if key in theirs]
    if not both:
        raise UsageError(
            f"no cell that both have: {a.name} has {_listed(ours)}; {b.name} has {_listed(theirs)}; run both on the "
            "same tasks and lengths, or choose others with --task, --length and --model"
        )
    lines: list[tuple[Line, list[str]]] = []
    refused = []
    for key in both:
        try:
            line = _line(ours[key], theirs[key], metric)
        except UsageError as error:
            refused.append(str(error))
        else:
            cells = [cell_id for cell in (ours[key], theirs[key]) for cell_id in cell[0]["cell_id"].split("+")]
            lines += [] if line is None else [(line, cells)]
    if metric is not None and not lines and not refused:
        raise unknown("metric", metric, {spec["name"] for key in both for spec in ours[key][0]["task"]["metrics"]})
    if refused and not any(line.difference for line, _ in lines):
        raise UsageError(f"{a.name} and {b.name}: {refused[0]}")
    tested = corrected({place: line.difference for place, (line, _) in enumerate(lines) if line.difference})
    count = sum(found.testable for found in tested.values())
    told = []
    for place, (line, cells) in enumerate(lines):
        found = tested.get(place)
        if found is not None:
            asked = None if detect is None else detect / 100 if line.share else detect
            line = replace(
                line,
                difference=found,
                smallest=detectable(found, count),
                needs=None if asked is None else needed(found, asked, count),
                floor=max((repeats[one] for one in cells if repeats and one in repeats), default=None),
            )
        told.append(line)
    return told


def _cells(one: Side, task: str | None, length: int | None, model: str | None) -> dict[str, Measured]:
    """Cells by what must be the same on both sides; seeds pooled, the newest where several are left."""
    records, rows = pooled([record for record, _ in one.cells], {r["cell_id"]: s for r, s in one.cells})
    found: dict[str, Measured] = {}
    for record in sorted(records, key=lambda record: (record["outcome"]["status"] == "ok", record["created"])):
        about = record["task"]
        names = (about["name"], about["label"], about["name"].split("/")[0])
        if (task not in (None, *names) or length not in (None, record["condition"]["length"])
                or model not in (None, record["model"]["id"])):  # fmt: skip
            continue
        found[_key(one.kind, record)] = (record, rows[record["cell_id"]])
    return dict(sorted(found.items(), key=lambda item: _order(item[1][0])))


def _order(record: Record) -> tuple[Any, ...]:
    return (record["model"]["id"], record["task"]["label"], record["method"]["label"], record["condition"]["length"])


def _key(kind: str, record: Record) -> str:
    about, at = record["task"], record["condition"]
    key: list[Any] = [about["name"], about["label"], about.get("scorer"), about["params"], at["length"], at["bos"]]
    key.append(at["chat_template"])
    if kind == "method":
        key += [record["model"].get(name) for name in (*MODEL_KEYS, "quantization")] + [about["version"]]
    else:
        key.append(record["method"]["label"])
        key += [record["model"]["id"]] if kind == "run" else [about["version"]]
    return canonical(key)


def _listed(cells: Mapping[str, Measured]) -> str:
    found = sorted({f"{r['task']['label']} at {r['condition']['length']}" for r, _ in cells.values()})
    return ", ".join(found[:6]) + (f" and {len(found) - 6} more" if len(found) > 6 else "") if found else "none here"


def _line(one: Measured, two: Measured, metric: str | None) -> Line | None:
    """The uncorrected comparison; None where the task does not have the metric. Raises UsageError for other samples."""
    (record, rows), (other, others) = one, two
    shown = metric or record["task"]["metrics"][0]["name"]
    if not metric_spec(record, shown):
        return None
    name = sample_metric(record, shown)[0]
    spec = metric_spec(record, name)
    share = (spec.get("low"), spec.get("high")) == (0, 1)
    about = Line(
        record["model"]["id"], record["method"]["label"], record["task"]["label"], record["condition"]["length"], name,
        str(spec.get("direction", "lower")), share, len(scored(rows, name)), len(scored(others, name)),
    )  # fmt: skip
    for found in (record, other):
        if found["outcome"]["status"] != "ok":
            return replace(about, status=f"{found['method']['label']}: {found['outcome']['status']}")
    difference = paired_difference(rows, others, name, share=share)
    means = [fsum(row["scores"][name] for row in kept) / len(kept) for kept
             in in_common([scored(rows, name), scored(others, name)])]  # fmt: skip
    return replace(about, a=means[0], b=means[1], difference=difference)


def noise(measured: Iterable[Measured], metric: str | None = None) -> dict[str, float]:
    """By cell_id, how far two measurements of the same samples by the same cell lie apart: records of different series.
    Cells that were measured once are left out."""
    by_cell: dict[str, dict[Any, Measured]] = {}
    for record, rows in measured:
        if record["outcome"]["status"] == "ok":
            by_cell.setdefault(record["cell_id"], {})[record.get("series")] = (record, rows)
    found: dict[str, float] = {}
    for cell_id, series in by_cell.items():
        first, *others = series.values()
        shown = metric or first[0]["task"]["metrics"][0]["name"]
        name = sample_metric(first[0], shown)[0]
        for _, rows in others:
            try:
                apart = abs(paired_difference(first[1], rows, name).value)
            except UsageError:
                continue
            found[cell_id] = max(apart, found.get(cell_id, 0.0))
    return found


def compare_table(a: Side, b: Side, lines: Sequence[Line], detect: float | None = None) -> Table:
    """One line per cell; scores and their differences in percent and points."""
    several = len({line.model for line in lines}) > 1
    runs = a.kind != "method"
    columns = ["task", *(["model"] if several else []), *(["method"] if runs else []), "tokens", "metric", a.name,
               b.name, "difference [95 %]", "p", "samples", "could have shown"]  # fmt: skip
    columns += [] if detect is None else ["n needed"]
    floors = any(line.floor is not None for line in lines)
    columns += ["noise floor"] if floors else []
    body = []
    for line in lines:
        head = [line.task, *([line.model] if several else []), *([line.method] if runs else []), str(line.length)]
        body.append((*head, line.metric, *_values(line), *([] if detect is None else [_needs(line)]),
                     *([_size(line.floor, line.share)] if floors else [])))  # fmt: skip
    where = "" if several else f"{lines[0].model} · "
    return Table(f"{where}{a.name} minus {b.name}", tuple(columns), tuple(body), None, tuple(_notes(lines, detect)))


def _values(line: Line) -> list[str]:
    found = line.difference
    if found is None or line.a is None or line.b is None:
        return ["", "", line.status, "", f"{line.n_a} and {line.n_b}", ""]
    ends = f"{_signed(found.low, line.share)}, {_signed(found.high, line.share)}" if found.low is not None else None
    p = found.p if found.adjusted is None else found.adjusted
    value = f"{_signed(found.value, line.share)} [{ends or found.interval or found.kind}]"
    of = "" if line.n_a == line.n_b == found.n else f" in common of {line.n_a} and {line.n_b}"
    shared = f" in {found.clusters} cluster{'s'[: found.clusters > 1]}" if found.clusters < found.n else ""
    return [number(line.a, line.share, 4), number(line.b, line.share, 4), value + ("*" if found.decided else ""),
            "" if p is None else f"{p:.2g}", f"{found.n}{of}{shared}", _size(line.smallest, line.share)]  # fmt: skip


def _signed(value: float | None, share: bool) -> str:
    shown = (value or 0.0) * (100 if share else 1)
    return f"{shown:+.{1 if share else 3}f}".replace("-", "−")


def _size(value: float | None, share: bool) -> str:
    return "" if value is None else f"{value * (100 if share else 1):.{1 if share else 4}f}"


def _needs(line: Line) -> str:
    known = line.difference is not None and line.difference.stderr
    return str(line.needs) if line.needs is not None else "out of reach" if known else ""


def _notes(lines: Sequence[Line], detect: float | None) -> list[str]:
    from ropebench.report.paired import comparison_note

    found = {(str(place), 0): line.difference for place, line in enumerate(lines) if line.difference is not None}
    units = [f"{metric}: {'points of 100' if share else 'its own unit'}, {'above' if way == 'higher' else 'below'} 0 "
             "is better for the first" for metric, share, way
             in sorted({(line.metric, line.share, line.direction) for line in lines})]  # fmt: skip
    notes = [comparison_note(found), "; ".join(units)]
    if any(line.smallest is not None for line in lines):
        notes.append(
            f"could have shown: the smallest true difference that so many samples tell from 0 with a power of "
            f"{100 * POWER:.0f} %, at the spread that was seen and at the level of Holm's first step"
        )
    if detect is not None:
        notes.append(
            f"n needed: samples that would show a difference of {detect:g} (points for scores) with that power"
        )
    if any(line.floor is not None for line in lines):
        notes.append("noise floor: how far two measurements of one cell on the same samples lie apart")
    return notes


def as_objects(a: Side, b: Side, lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The lines as plain JSON values, shares within 0–1."""
    return [
        {"a_name": a.name, "b_name": b.name, "kind": a.kind}
        | {key: value for key, value in asdict(line).items() if key != "difference"}
        | {"difference": None if line.difference is None else asdict(line.difference)}
        | {"decided": line.difference is not None and line.difference.decided}
        for line in lines
    ]

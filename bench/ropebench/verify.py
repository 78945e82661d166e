"""Whether a results folder is what it says: each line's layout, its hashes, every number worked out again, cells that
contradict one another, and rotary tables that the methods of today would make otherwise.

What is found is named by file and line. A forgery that is consistent in itself, with rows, hashes and numbers made to
fit, cannot be seen here: measuring again (`ropebench run --rerun`) shows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ropebench import methods
from ropebench.errors import UsageError
from ropebench.geometry import Frequencies, RopeGeometry
from ropebench.method import Method
from ropebench.record import Json, digest
from ropebench.store import Found
from ropebench.validate import MALFORMED, ROWLESS, Problem, faults_of_layout, named, problems

RTOL = 1e-6  # relative, of a frequency: float32 keeps seven digits
SAME_SCORE = 1e-6
_MOST_OF_A_RUN = 2000  # records


@dataclass(frozen=True)
class Verdict:
    """What was looked at, and what was found: problems of which some are `fatal`."""

    records: int
    rows: int
    tables: int  # rotary tables that were computed again
    problems: tuple[Problem, ...]

    @property
    def fatal(self) -> list[Problem]:
        return [one for one in self.problems if one.fatal]

    @property
    def notes(self) -> list[Problem]:
        return [one for one in self.problems if not one.fatal]


def verdict(found: Found) -> Verdict:
    """Everything that speaks against the lines of a results folder, in the order of its files."""
    said = [Problem(*text.partition(": ")[::2]) for text in found.unread]
    said += [Problem(*text.partition(": ")[::2], fatal=False) for text in found.torn]
    runs = [(where, record) for where, record in found.records if record.get("kind") == "run"]
    places = {id(record): where for where, record in runs}
    rows = [row for _, row in found.rows]
    beside: dict[str, list[str]] = {}
    for where, row in found.rows:
        beside.setdefault(_series(row), []).append(where)

    def naming(record: Json) -> str:
        return f"{places[id(record)]}: {named(record)}"

    if runs:
        of = {naming(record): beside.get(_series(record), []) for _, record in runs}
        bare = {naming(record) for _, record in runs if _imported(record) and record["outcome"].get("status") == "ok"}
        for one in problems([record for _, record in runs], rows, naming):
            told = one.where in bare and ROWLESS in one.text  # another tool's own summary, and marked so
            said.append(_placed(replace(one, fatal=False) if told else one, of, found))
    said += _rows(found.rows)
    tables = 0
    for where, record in runs:
        try:
            if any(faults_of_layout(record)):
                continue  # said already
            said += _record_id(record, naming(record))
            compared, text = _table(record)
            tables += compared
            if text:
                said.append(Problem(naming(record), text, fatal=compared))
        except MALFORMED as error:
            text = f"its rotary table cannot be computed from what it tells ({type(error).__name__}: {error})"
            said.append(Problem(where, text))
    said += _between(runs)
    return Verdict(len(runs), len(rows), tables, tuple(dict.fromkeys(said)))


def _imported(record: Json) -> bool:
    made = record.get("provenance")
    return isinstance(made, dict) and bool(made.get("imported")) and isinstance(record.get("outcome"), dict)


def _series(line: Json) -> str:
    return f"{line['cell_id']} {line.get('series')}"


def _placed(problem: Problem, rows: Mapping[str, Sequence[str]], found: Found) -> Problem:
    """A problem with the lines of the sample rows that it is about."""
    if problem.where == "samples":  # those without a record
        known = {record["cell_id"] for _, record in found.records}
        where = next(place for place, row in found.rows if row["cell_id"] not in known)
        return Problem(where, problem.text, problem.fatal)
    lines = rows.get(problem.where, ())
    if "rows" not in problem.text or not lines:
        return problem
    span = lines[0] if len(lines) == 1 else f"{lines[0]} to {lines[-1]}"
    return Problem(problem.where, f"{problem.text} (rows: {span})", problem.fatal)


def _record_id(record: Json, where: str) -> Iterable[Problem]:
    condition = record["condition"]
    number: Iterable[Any] = [condition["n_scored"] + condition["n_skipped"]]
    if record["series"] is None:  # schema 1 had the record's place in its run
        number = range(_MOST_OF_A_RUN)
    own = [record["cell_id"], record["run_id"], record["created"]]
    ids = (own[:2] if record["provenance"].get("imported") else [*own, one] for one in number)
    if record["record_id"] not in map(digest, ids):
        yield Problem(where, "record_id is not the hash of its cell, run, time and number of samples")


def _rows(rows: Sequence[tuple[str, Json]]) -> Iterable[Problem]:
    """Sample rows that contradict one another: the same sample twice with another score, or a sample of a cell that is
    another prompt in another series (sample i depends on the seed and i alone)."""
    own: dict[tuple[str, str, int], tuple[str, Json]] = {}
    prompts: dict[tuple[str, int], tuple[str, str]] = {}
    for where, row in rows:
        sample = (row["cell_id"], str(row.get("series")), row["index"])
        before, other = own.setdefault(sample, (where, row))
        if other is not row and not _alike(other["scores"], row["scores"]):
            yield Problem(
                where, f"sample {row['index']} of cell {row['cell_id']} has other scores here than at {before}"
            )
        before, prompt = prompts.setdefault((row["cell_id"], row["index"]), (where, row["prompt_sha256"]))
        if prompt != row["prompt_sha256"]:
            text = f"sample {row['index']} of cell {row['cell_id']} is another prompt here than at {before}"
            yield Problem(where, text)


def _alike(one: Json, two: Json) -> bool:
    if one.keys() != two.keys():
        return False
    pairs = [(one[name], two[name]) for name in one]
    if not all(type(value) in (int, float) for pair in pairs for value in pair):
        return one == two
    return all(math.isclose(a, b, rel_tol=SAME_SCORE, abs_tol=SAME_SCORE) for a, b in pairs)


def _between(runs: Sequence[tuple[str, Json]]) -> Iterable[Problem]:
    """Records of one cell, measured in one series with as many samples, that tell different numbers."""
    seen: dict[tuple[Any, ...], tuple[str, Json]] = {}
    for where, record in runs:
        if any(faults_of_layout(record)) or record["outcome"]["status"] != "ok":
            continue
        condition, metrics = record["condition"], record["outcome"]["metrics"]
        same = (record["cell_id"], str(record["series"]), condition["n_scored"], condition["n_skipped"])
        before, other = seen.setdefault(same, (where, record))
        values = [{name: one["value"] for name, one in r["outcome"]["metrics"].items()} for r in (other, record)]
        if other is not record and not _alike(*values):
            yield Problem(where, f"contradicts {before}: the same cell and series, other numbers ({sorted(metrics)})")


def _built_in() -> dict[str, type[Method]]:
    found = [m for m in vars(methods).values() if isinstance(m, type) and issubclass(m, Method)]
    return {m.name: m for m in found if m.name}


def _table(record: Json) -> tuple[bool, str]:
    """Whether the record's rotary table was computed again, and what there is to say about it (empty: nothing)."""
    about, model = record["method"], record["model"]
    if about["inv_freq"] is None:
        return False, ""
    cls = _built_in().get(about["name"])
    if about["code"] is not None or cls is None:
        return False, f"its rotary table was not computed again: {about['name']} is no built-in method"
    if about["version"] != cls.version:
        text = f"{about['name']} is at version {cls.version} today, and this is of version {about['version']}"
        return False, f"its rotary table was not computed again: {text}"
    # A checkpoint that ships a scaling does so in its config, which is not in the record.
    from_config = about["name"] == "native" or model["base"] == "native"
    from_config |= about["name"] == "longrope" and not about["params"].get("long_factor")
    if from_config:
        return False, "its rotary table was not computed again: it starts from the checkpoint's own config"
    stored = np.asarray(about["inv_freq"], dtype=np.float64)
    if stored.shape != (model["rotary_dim"] // 2,):
        return True, f"inv_freq has shape {stored.shape}, and needs {model['rotary_dim'] // 2} frequencies"
    try:
        now = _today(cls, record)
    except UsageError as error:
        return True, f"its rotary table cannot be computed from what it tells: {error}"
    if now.same_as(Frequencies(stored, about["attention_factor"]), RTOL):
        return True, ""
    pairs = np.flatnonzero(~np.isclose(now.inv_freq, stored, rtol=RTOL, atol=0.0))
    if not len(pairs):
        text = f"attention_factor is {about['attention_factor']}, and {about['label']} gives {now.attention_factor}"
        return True, text
    first = int(pairs[0])
    return True, (f"{len(pairs)} of {len(stored)} frequencies are not those of {about['label']}: pair {first} is "
                  f"{stored[first]:.9g}, and it gives {now.inv_freq[first]:.9g}")  # fmt: skip


def _today(cls: type[Method], record: Json) -> Frequencies:
    """What the method computes today. A table that depends on the length is that of the cell's own."""
    model, about = record["model"], record["method"]
    geometry = RopeGeometry(model["rotary_dim"], model["theta"], model["trained_length"])
    method = cls(**about["params"])
    return method.frequencies(geometry, about["factor"] or 1.0, record["condition"]["length"])


def as_object(found: Verdict) -> Mapping[str, Any]:
    """The verdict as JSON."""
    counts = {"records": found.records, "rows": found.rows, "tables": found.tables}
    said = [{"where": one.where, "text": one.text, "fatal": one.fatal} for one in found.problems]
    return {**counts, "fatal": len(found.fatal), "problems": said}

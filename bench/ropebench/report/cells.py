"""Records as flat rows, and blocks of rows that belong in one table.

A flat row is one cell: plain JSON values, whose names are the record's own, `group_key` (`model_id`,
`condition_length`, `cost_peak_bytes`, `provenance_versions_torch` …). The rule is mechanical, so a new key of the
record needs no change here: scalars stay, `params` and `set_params` become canonical JSON text, other mappings are
flattened once more, and lists are left to the record. In place of `outcome_metrics` stand, for the metric shown:

    metric, direction, chance     which number this is (the primary metric unless another is asked for)
    value, stderr, n              as recorded (0–1 for scores; value is null where the cell failed or is uninformative)
    measured                      the recorded value, also of an uninformative cell: tables and plots never show it
    informative                   false where a gated task's unmodified model is not shown to be above chance inside its
                                  window, null where that was not measured (`gate`), true for every other task
    low, high                     95 % interval, null where there is none
    interval, clusters            its kind (or why there is none) and the number of independent documents or haystacks
    range_low, range_high         the metric's range; null for open
    common                        samples that all methods of the table have at this length, null without sample rows
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ropebench.errors import unknown
from ropebench.record import canonical
from ropebench.report.evidence import cell_interval, in_common, metric_spec
from ropebench.report.gate import UNINFORMATIVE, informative
from ropebench.report.style import baseline_of, order

Record = Mapping[str, Any]
Row = dict[str, Any]
Samples = Mapping[str, Sequence[Mapping[str, Any]]]  # cell_id → its sample rows

MODEL_KEYS = ("id", "revision", "dtype", "attention", "base")
TASK_KEYS = ("name", "version", "code", "label", "scorer", "params", "corpus_label", "corpus_revision")
CONDITION_KEYS = ("bos", "chat_template")  # several seeds are one table: `pooling`


def samples_by_cell(records: Iterable[Record], rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Sample rows sorted to the records they explain: cell_id → rows by index.

    Rows beyond a record's `n_requested` are left out: a run that was cut off while it added samples leaves some behind,
    and they are not in the record's numbers.
    """
    wanted = {record["cell_id"]: record["condition"]["n_requested"] for record in records}
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["index"] < wanted.get(row["cell_id"], 0):
            found.setdefault(row["cell_id"], []).append(row)
    return {cell_id: sorted(members, key=lambda row: row["index"]) for cell_id, members in found.items()}


def cell_rows(records: Iterable[Record], samples: Samples | None = None, metric: str | None = None) -> list[Row]:
    """One flat row per record. `samples` gives intervals that know about clusters.

    A score of a gated task has no value where it is uninformative; a likelihood, which has no chance level, keeps it.
    Raises UsageError for a metric that none of the records' tasks has.
    """
    records = [record for record in records if record.get("kind", "run") == "run"]
    if metric is not None:
        known = {spec["name"] for record in records for spec in record["task"]["metrics"]}
        if metric not in known:
            raise unknown("metric", metric, known)
        records = [record for record in records if metric_spec(record, metric)]
    rows = [_flat(record, (samples or {}).get(record["cell_id"], ()), metric) for record in records]
    groups: dict[tuple[str, ...], list[tuple[Record, Sequence[Mapping[str, Any]]]]] = {}
    for row, record in zip(rows, records, strict=True):
        groups.setdefault(_block_key(row), []).append((record, (samples or {}).get(record["cell_id"], ())))
    gates = {key: informative(members) for key, members in groups.items()}
    shared = _shared(rows, samples or {})
    return [
        _gated(row, gates[_block_key(row)]) | {"common": shared.get((_block_key(row), row["condition_length"]))}
        for row in rows
    ]


def _shared(rows: Sequence[Row], samples: Samples) -> dict[tuple[tuple[str, ...], int], int]:
    """By table and length, how many samples all cells that are ok have in common."""
    cells: dict[tuple[tuple[str, ...], int], list[Row]] = {}
    for row in rows:
        if row["outcome_status"] == "ok" and row["cell_id"] in samples:
            cells.setdefault((_block_key(row), row["condition_length"]), []).append(row)
    found = {}
    for place, members in cells.items():
        kept = [[one for one in samples[row["cell_id"]] if not one.get("skip")] for row in members]
        alike = len({row["task_samples_sha256"] for row in members}) == 1
        found[place] = len(kept[0]) if alike else len(in_common(kept)[0])
    return found


def _gated(row: Row, passed: bool | None) -> Row:
    row |= {"informative": passed, "measured": row["value"]}
    if passed is False and row["chance"] is not None and row["value"] is not None:
        row |= {"value": None, "low": None, "high": None, "interval": UNINFORMATIVE}
    return row


def _flat(record: Record, rows: Sequence[Mapping[str, Any]], metric: str | None) -> Row:
    flat: Row = {}
    for group, value in record.items():
        if isinstance(value, Mapping):
            _flatten(flat, group, value)
        elif not isinstance(value, list):
            flat[group] = value
    name = metric or record["outcome"].get("primary") or record["task"]["metrics"][0]["name"]
    spec = metric_spec(record, name)
    recorded = (record["outcome"].get("metrics") or {}).get(name) or {}
    found = cell_interval(record, rows, name)
    return flat | {
        "metric": name,
        "direction": spec.get("direction", "higher"),
        "chance": spec.get("chance"),
        "range_low": spec.get("low"),
        "range_high": spec.get("high"),
        "value": recorded.get("value"),
        "stderr": recorded.get("stderr"),
        "n": int(recorded.get("n") or 0),
        "low": found.low,
        "high": found.high,
        "interval": found.kind,
        "clusters": found.clusters,
    }


def _flatten(flat: Row, prefix: str, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        name = f"{prefix}_{key}"
        if key in ("params", "set_params"):
            flat[name] = canonical(value)
        elif isinstance(value, Mapping):
            if name != "outcome_metrics":
                _flatten(flat, name, value)
        elif not isinstance(value, list):
            flat[name] = value


@dataclass(frozen=True)
class Block:
    """Rows of one model, task and condition: what one table or plot shows.

    `qualifiers` are the settings in which it differs from other blocks of the same model and task (`seed=1`).
    `labels` are its row labels, the baseline first; `lengths` ascend, in tokens.
    """

    rows: tuple[Row, ...]
    qualifiers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    _cells: dict[tuple[str, int], Row] = field(default_factory=dict, repr=False)

    @property
    def first(self) -> Row:
        return self.rows[0]

    @property
    def labels(self) -> list[str]:
        names = {row["label"]: row["method_name"] for row in self.rows}
        return sorted(names, key=lambda label: (*order(names[label]), label))

    @property
    def lengths(self) -> list[int]:
        return sorted({row["condition_length"] for row in self.rows})

    @property
    def trained_length(self) -> int:
        return int(self.first["model_trained_length"])

    @property
    def baseline(self) -> str | None:
        """The label of the unmodified model's row, if it was run."""
        names = {row["method_name"]: row["label"] for row in self.rows}
        return names.get(baseline_of(names) or "")

    @property
    def percent(self) -> bool:
        """Whether values are shares of 1, shown as percentages."""
        return bool((self.first["range_low"], self.first["range_high"]) == (0, 1))

    @property
    def uninformative(self) -> bool:
        """Whether the model was not shown to be above chance inside its window, so that no score here says anything."""
        return any(row["interval"] == UNINFORMATIVE for row in self.rows)

    @property
    def bos(self) -> str:
        """Whether a BOS token was fed: `no BOS`, `with BOS`; the rule where cells differ or none was run."""
        used = {row.get("condition_bos_used") for row in self.rows if row["outcome_status"] == "ok"}
        rule = f"BOS {self.first['condition_bos']}"
        return "with BOS" if used == {True} else "no BOS" if used == {False} else rule

    @property
    def measure(self) -> str:
        """The metric as tables and plots name it. A likelihood depends on its first token, so its BOS rule is said."""
        return str(self.first["metric"]) if self.percent else f"{self.first['metric']}, {self.bos}"

    @property
    def title(self) -> str:
        return " · ".join([self.first["model_id"], self.first["task_label"], self.measure, *self.qualifiers])

    def cell(self, label: str, length: int) -> Row | None:
        """The row of a method at a length, or None where it was not run."""
        return self._cells.get((label, length))

    def of(self, label: str) -> list[Row]:
        """The rows of a method."""
        return [row for row in self.rows if row["label"] == label]

    def name(self, label: str) -> str:
        """The method's name behind a row label."""
        return str(self.of(label)[0]["method_name"])

    def counts(self) -> dict[int, int]:
        """The most samples that any method has at each length."""
        found: dict[int, int] = {}
        for row in self.rows:
            if row["value"] is not None:
                found[row["condition_length"]] = max(row["n"], found.get(row["condition_length"], 0))
        return found

    def disagreeing(self) -> list[int]:
        """Lengths at which not all methods saw the same samples; they are compared on those in common, if any."""
        seen: dict[int, set[Any]] = {}
        for row in self.rows:
            if row["outcome_status"] == "ok":
                seen.setdefault(row["condition_length"], set()).add(row["task_samples_sha256"])
        return sorted(length for length, hashes in seen.items() if len(hashes) > 1)

    def common(self, length: int) -> int:
        """How many samples all methods share at a length; 0 also where the sample rows are not there."""
        return max((row.get("common") or 0 for row in self.rows if row["condition_length"] == length), default=0)

    def multiple(self, length: int) -> str:
        """A length as a multiple of the trained window: `2×`."""
        return f"{length / self.trained_length:.3g}×"


def blocks(rows: Iterable[Row]) -> list[Block]:
    """Flat rows sorted into blocks; within a block one row per method label and length (the newest, ok first)."""
    grouped: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        grouped.setdefault(_block_key(row), []).append(row)
    ordered = sorted(grouped.items(), key=lambda item: item[0])
    # Likelihood before scores: it is measured on every token and tells methods apart at small n.
    ordered.sort(key=lambda item: (item[1][0]["model_id"], item[1][0]["range_high"] is not None))
    return [_block(members, _qualifiers(key, [other for other, _ in ordered])) for key, members in ordered]


def _block_key(row: Row) -> tuple[str, ...]:
    groups = {"model": MODEL_KEYS, "task": TASK_KEYS, "condition": CONDITION_KEYS}
    names = [f"{group}_{key}" for group, keys in groups.items() for key in keys]
    # The task's label comes before its version and parameters so that related tables stand together.
    names.sort(key=lambda name: (name != "model_id", name != "task_name", name != "task_label"))  # stable
    return (*(canonical([name, row.get(name)]) for name in names), canonical(["metric", row["metric"]]))


def _qualifiers(key: tuple[str, ...], keys: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The settings in which a block's key differs from others of the same model and task label."""
    siblings = [other for other in keys if other[:3] == key[:3]]
    found = []
    for place, part in enumerate(key[:-1]):
        if all(other[place] == part for other in siblings):
            continue
        name, value = json.loads(part)
        if name == "task_params":
            others = [json.loads(json.loads(other[place])[1]) for other in siblings]
            for param, given in sorted(json.loads(value).items()):
                if any(other.get(param) != given for other in others):
                    found.append(f"{param}={given}")
        else:
            found.append(f"{name.removeprefix('condition_').removeprefix('model_')}={value}")
    return tuple(found)


def _version(row: Row) -> tuple[int, str]:
    """What tells two methods of one name apart: the version, and a plug-in file's hash."""
    return row["method_version"], row.get("method_code") or ""


def quantizations(rows: Iterable[Row]) -> list[str]:
    """The formats of quantised weights, empty for full precision. Records made before the key was filled show it by
    their source, a GGUF file; where another record of the same weights has the key, that one counts."""
    named: dict[tuple[Any, Any], str] = {}
    for row in rows:
        source, weights = str(row.get("model_source") or ""), (row["model_id"], row.get("model_revision"))
        if row.get("model_quantization"):
            named[weights] = str(row["model_quantization"])
        elif source.startswith("gguf-package:"):
            named.setdefault(weights, "GGUF file")
    return sorted(set(named.values()))


def _block(members: list[Row], qualifiers: tuple[str, ...]) -> Block:
    versions: dict[str, set[tuple[int, str]]] = {}
    for row in members:
        versions.setdefault(row["method_label"], set()).add(_version(row))
    cells: dict[tuple[str, int], Row] = {}
    hidden: dict[str, int] = {}
    # Later entries win: a failure never hides a number, and of two numbers the newest counts.
    for row in sorted(members, key=lambda row: (row["outcome_status"] == "ok", row["created"], row["record_id"])):
        several = len(versions[row["method_label"]]) > 1
        version, code = _version(row)
        label = row["method_label"] + (f" v{version}{f' {code[:6]}' if code else ''}" if several else "")
        place = (label, row["condition_length"])
        if place in cells:
            hidden[label] = hidden.get(label, 0) + 1
        cells[place] = {**row, "label": label}
    kept = sorted(cells.values(), key=lambda row: (*order(row["method_name"]), row["label"], row["condition_length"]))
    notes = [
        f"{label}: {count} older record{'s' if count > 1 else ''} with other frequencies, samples or files not shown"
        for label, count in sorted(hidden.items())
    ]
    return Block(tuple(kept), qualifiers, tuple(notes), cells)

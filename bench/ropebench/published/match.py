"""Whether a published number and a measured one are of the same thing, and if not, what differs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ropebench.published import Protocol, Row
from ropebench.ruler.scoring import NUMBER_OF_TASKS

if TYPE_CHECKING:
    from ropebench.cell import Cell

UNMODIFIED = ("none", "native")


@dataclass(frozen=True)
class Measured:
    """A measured cell, or one that is planned, as far as a published number can differ from it.

    `method` has its parameters in it where they are not the default ones (`yarn:beta_fast=16.0`). `bos` is the rule;
    `incomplete` says what a mean over tasks lacks. Value and interval are None where there are none.
    """

    model: str
    source: str
    quantization: str | None
    dtype: str
    base: str
    method: str
    factor: float | None
    task: str
    params: Mapping[str, Any]
    corpus: str | None
    corpus_label: str | None
    length: int
    n: int
    bos: str
    metric: str
    incomplete: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    interval: str = ""
    cell_id: str = ""
    why_no_value: str = ""

    @property
    def label(self) -> str:
        """Method and factor: `yarn×4`."""
        return self.method + (f"×{self.factor:g}" if self.factor is not None else "")


@dataclass(frozen=True)
class Difference:
    """A setting in which they differ: what was published, what is ours."""

    what: str
    published: str
    ours: str


def of_cell(cell: Cell) -> Measured:
    """A planned cell."""
    corpus = cell.corpus
    return Measured(
        cell.card.id, cell.card.spec.source, cell.card.spec.quantization or None, cell.dtype, cell.base,
        cell.method_label.rpartition("×")[0] if cell.factor is not None else cell.method_label, cell.factor,
        cell.task.name, cell.task.params, corpus.source if corpus else None, corpus.label if corpus else None,
        cell.length, cell.n, cell.bos, cell.task.primary.name, cell_id=cell.id,
    )  # fmt: skip


def planned(cells: Iterable[Cell]) -> list[Measured]:
    """Planned cells, and RULER's mean of 13 tasks (task `ruler`) where some of its tasks are among them."""
    ones = [of_cell(cell) for cell in cells]
    members: dict[tuple[str, int], list[Measured]] = {}
    for one in ones:
        if one.task.startswith("ruler/"):
            members.setdefault((one.label, one.length), []).append(one)
    for same in members.values():
        lacking = "" if len(same) == NUMBER_OF_TASKS else f"{len(same)} of the {NUMBER_OF_TASKS} tasks"
        n = min(one.n for one in same)
        ones.append(replace(same[0], task="ruler", metric="score", n=n, incomplete=lacking, cell_id=""))
    return ones


def of_flat(row: Mapping[str, Any], why_no_value: str = "", incomplete: str = "") -> Measured:
    """A cell's flat row (`ropebench.report.cells`)."""
    factor, label = row["method_factor"], str(row["method_label"])
    return Measured(
        row["model_id"], str(row.get("model_source") or ""), row.get("model_quantization"), row["model_dtype"],
        row.get("model_base") or "unscaled", label.rpartition("×")[0] if factor is not None else label, factor,
        row["task_name"], json.loads(row.get("task_params") or "{}"), row.get("task_corpus_source"),
        row.get("task_corpus_label"), row["condition_length"], row["n"], row["condition_bos"], row["metric"],
        incomplete, row["value"], row["low"], row["high"], row["interval"], row["cell_id"], why_no_value,
    )  # fmt: skip


def same_model(row: Row, measured: Measured) -> bool:
    """Whether both name the same weights: by ropebench's alias, or by their id on the hub."""
    return measured.model in (row.model, row.weights) or (row.weights is not None and measured.source == row.weights)


def differences(row: Row, measured: Measured) -> list[Difference]:
    """Everything in which a measured number is not what was published; empty where the two may stand side by side."""
    return [*_subject(row, measured), *_procedure(row.protocol, measured)]


def _subject(row: Row, ours: Measured) -> Iterable[Difference]:
    """What was measured: weights, method, task, length."""
    if not same_model(row, ours):
        yield Difference("model", row.weights or row.model, ours.model)
    if row.training:
        yield Difference("weights", row.training, "as shipped")
    if ours.quantization:
        yield Difference("weights", "full precision", ours.quantization)
    scaled = ours.method not in UNMODIFIED
    if ours.method not in row.methods:
        yield Difference("method", row.label, ours.label)
    elif scaled and row.factor is not None and row.factor != ours.factor:
        yield Difference("factor", row.label, ours.label)
    elif scaled and row.factor is None and ours.factor is not None:
        yield Difference("settings", "factor not published", f"factor {ours.factor:g}")
    if scaled and ours.base != "unscaled":
        yield Difference("base", "the trained table", "the table that the checkpoint ships")
    if row.task != ours.task:
        yield Difference("task", row.task, ours.task)
    elif ours.incomplete:
        yield Difference("task", row.protocol.says, ours.incomplete)
    if row.length != ours.length:
        yield Difference("length", f"{row.length} tokens", f"{ours.length} tokens")


def _procedure(protocol: Protocol, ours: Measured) -> Iterable[Difference]:
    """How it was measured: the settings that the protocol states, and those that it leaves open."""
    for key, value in protocol.params.items():
        have = ours.params.get(key)
        if have != value:
            yield Difference("protocol", f"{key}={value}", f"{key}={have}")
    if protocol.corpus and ours.corpus not in protocol.corpus:
        yield Difference("documents", protocol.corpus[0], ours.corpus_label or "none")
    if protocol.n is not None and ours.n != protocol.n:
        kind = "documents" if protocol.corpus else "samples"
        yield Difference("n", f"{protocol.n} {kind}", f"{ours.n} {kind}")
    if protocol.bos and ours.bos == "never":
        yield Difference("BOS", "BOS where the tokenizer has one", "no BOS")
    if protocol.dtype is not None and ours.dtype != protocol.dtype:
        yield Difference("dtype", protocol.dtype, ours.dtype)
    if protocol.metric != ours.metric and not protocol.unknown:
        yield Difference("metric", protocol.metric, ours.metric)
    for one in protocol.unlike:
        yield Difference("procedure", one, "ropebench's own")
    if protocol.unknown:
        yield Difference("settings", f"not published: {', '.join(protocol.unknown)}", "ropebench's choice")


def nearest(row: Row, measured: Iterable[Measured]) -> tuple[Measured, list[Difference]] | None:
    """The measured cell of the same weights that differs least, and in what; None where the model was not measured.
    Another task counts for more than another method, that for more than another factor, length, and all the rest."""
    found = [(one, differences(row, one)) for one in measured if same_model(row, one)]

    def far(pair: tuple[Measured, list[Difference]]) -> tuple[bool, bool, bool, bool, int]:
        one, apart = pair
        what = {difference.what for difference in apart}
        return one.task != row.task, "method" in what, "factor" in what, "length" in what, len(apart)

    return min(found, key=far, default=None)


def said(apart: Iterable[Difference]) -> str:
    """Differences in one line: `published: 10 documents, stride=256; yours: 4 documents, stride=None`."""
    apart = list(apart)
    left = ", ".join(dict.fromkeys(one.published for one in apart))
    right = ", ".join(dict.fromkeys(one.ours for one in apart))
    return f"published: {left}; yours: {right}"

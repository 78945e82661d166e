"""Published numbers: where they come from is said, and they stand beside ours only where they are of the same thing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from report_records import cell, share, stored
from ropebench import cli
from ropebench.aliases import aliases
from ropebench.errors import UsageError
from ropebench.listing import listing
from ropebench.published import SHOWN, Protocol, Row, published, reproductions
from ropebench.published.match import Measured, differences, nearest, said
from ropebench.registry import Registry
from ropebench.report.published import Beside, as_rows, beside, beside_tables, deviation, measured, reproduction_tables
from ropebench.report.tables import as_text

ROWS = published()
PROTOCOL = Protocol(
    "first-ten", "proofpile", "perplexity", "10 documents, cut", corpus=("hub:some/documents",),
    params={"protocol": "truncated", "min_doc_tokens": 131072}, n=10, bos=True, dtype="bfloat16",
)  # fmt: skip
ROW = Row(
    "A paper", "Table 1", "P", PROTOCOL, "proofpile", "olmo-1b", "allenai/OLMo-1B-0724-hf", ("yarn",), 10.0, "", 4096,
    4.5,
)  # fmt: skip
OURS = Measured(
    "olmo-1b", "allenai/OLMo-1B-0724-hf", None, "bfloat16", "unscaled", "yarn", 10.0, "proofpile",
    {"protocol": "truncated", "min_doc_tokens": 131072, "stride": 256}, "hub:some/documents", "documents@1", 4096, 10,
    "auto", "perplexity", "", 4.6, 4.2, 5.1, "t, 95 %", "cell",
)  # fmt: skip


# The data


def test_every_number_says_source_place_protocol_and_how_it_was_read() -> None:
    assert len(ROWS) > 700
    for row in ROWS:
        assert row.source, row
        assert row.where, row
        assert row.protocol.says, row
        assert row.tag in SHOWN, row
        assert row.methods, row
        assert row.value > 0 or row.protocol.percent, row
        assert row.length >= 1024, row
        assert row.value <= 1 or not row.protocol.percent, row


def test_names_that_are_ours_are_the_ones_we_have() -> None:
    tasks = {entry.name for entry in Registry.load().of("task")}
    families = {name.split("/")[0] for name in tasks}
    known = aliases()
    for row in ROWS:
        assert row.task in tasks | families, row
        if row.model in known and row.weights:
            assert known[row.model].source == row.weights, row


def test_no_number_is_given_twice() -> None:
    seen = [
        (r.source, r.where, r.weights or r.model, r.methods, r.factor, r.training, r.task, r.protocol.name, r.length)
        for r in ROWS
    ]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("model, method, length, value", [
    ("olmo-1b", "yarn", 4096, 4.643070), ("olmo-1b", "mrrope_uni", 4096, 4.665052),
    ("olmo-1b", "mrrope_uni", 40960, 3.153678), ("llama2-7b-chat", "yarn", 40960, 3.995247),
    ("llama2-7b-chat", "mrrope_uni", 16384, 4.148018), ("yarn-llama2-7b-128k", "native", 131072, 2.3720),
    ("yarn-llama2-7b-64k", "native", 8192, 3.5065),
])  # fmt: skip
def test_anchors(model: str, method: str, length: int, value: float) -> None:
    found = [row.value for row in ROWS if (row.model, row.length) == (model, length) and method in row.methods
             and row.protocol.name == "first-ten"]  # fmt: skip
    assert found == [value]


SERIES = """
source = "A paper"
tag = "{tag}"
[protocols.p]
task = "proofpile"
metric = "perplexity"
says = "ten documents"
[[series]]
where = "Table 1"
protocol = "p"
model = "m"
methods = ["yarn"]
factor = 4
values = {values}
"""


def file(folder: Path, tag: str = "P", values: str = "{ 4096 = 5.5 }", more: str = "") -> str:
    path = folder / "more.toml"
    path.write_text(SERIES.format(tag=tag, values=values) + more, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("tag, shown", [("P", 1), ("S", 1), ("M", 0), ("C", 0)])
def test_numbers_from_memory_are_never_shown(tmp_path: Path, tag: str, shown: int) -> None:
    more = published([file(tmp_path, tag)])
    assert len(more) - len(ROWS) == shown
    rows = listing("published", more=[str(tmp_path / "more.toml")])
    assert sum(row["source"] == "A paper" for row in rows) == shown
    if tag == "S":
        assert "quoted by another source" in more[-1].cited


@pytest.mark.parametrize("changes, words", [
    ({"tag": "X"}, "unknown tag"), ({"values": '{ 4096 = "about 5" }'}, "must be LENGTH = NUMBER"),
    ({"values": "{ short = 5 }"}, "must be LENGTH = NUMBER"), ({"values": "{}"}, "needs values"),
    ({"more": '[reproduce.again]\nsweep = "demo"\nmodel = "m"\nprotocols = ["q"]\n'}, "unknown protocol"),
])  # fmt: skip
def test_a_file_of_another_form(tmp_path: Path, changes: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        published([file(tmp_path, **changes)])
    with pytest.raises(UsageError, match=r"'not-here\.toml' cannot be read"):
        published([str(tmp_path / "not-here.toml")])


def test_they_are_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["list", "published", "--json", "--published", file(tmp_path, "S", '{ 4096 = ">5" }')]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sum(len(row["values"]) for row in rows) == len(ROWS) + 1
    (mine,) = [row for row in rows if row["source"] == "A paper"]
    assert (mine["values"], mine["confidence"]) == ({"4096": ">5"}, "quoted by another source")
    assert cli.main(["list", "published"]) == 0
    assert "4.64307" in capsys.readouterr().out


# A match, and each kind of mismatch


def test_the_same_thing_has_no_differences() -> None:
    assert differences(ROW, OURS) == []
    folder_under_the_same_name = dataclasses.replace(OURS, source="folder")
    hub_id_without_alias = dataclasses.replace(OURS, model="allenai/OLMo-1B-0724-hf")
    assert differences(ROW, folder_under_the_same_name) == differences(ROW, hub_id_without_alias) == []
    either = dataclasses.replace(ROW, methods=("yarn", "yarn_paper"))
    assert differences(either, dataclasses.replace(OURS, method="yarn_paper")) == []
    baseline = dataclasses.replace(ROW, methods=("native", "none"), factor=None)
    assert differences(baseline, dataclasses.replace(OURS, method="none", factor=None)) == []


MISMATCHES: list[tuple[dict[str, Any], str, str, str]] = [
    ({"model": "olmo", "source": "folder"}, "model", "allenai/OLMo-1B-0724-hf", "olmo"),
    ({"quantization": "GGUF Q4_1"}, "weights", "full precision", "GGUF Q4_1"),
    ({"method": "yarn_paper"}, "method", "yarn×10", "yarn_paper×10"),
    ({"method": "yarn:beta_fast=16.0"}, "method", "yarn×10", "yarn:beta_fast=16.0×10"),
    ({"factor": 4.0}, "factor", "yarn×10", "yarn×4"),
    ({"base": "native"}, "base", "the trained table", "the table that the checkpoint ships"),
    ({"task": "niah"}, "task", "proofpile", "niah"),
    ({"length": 8192}, "length", "4096 tokens", "8192 tokens"),
    ({"params": {**OURS.params, "protocol": "sliding"}}, "protocol", "protocol=truncated", "protocol=sliding"),
    ({"params": {**OURS.params, "min_doc_tokens": 4096}}, "protocol", "min_doc_tokens=131072", "min_doc_tokens=4096"),
    ({"corpus": "folder x", "corpus_label": "x"}, "documents", "hub:some/documents", "x"),
    ({"n": 4}, "n", "10 documents", "4 documents"),
    ({"bos": "never"}, "BOS", "BOS where the tokenizer has one", "no BOS"),
    ({"dtype": "float32"}, "dtype", "bfloat16", "float32"),
    ({"metric": "nll"}, "metric", "perplexity", "nll"),
]  # fmt: skip


@pytest.mark.parametrize("changes, what, theirs, ours", MISMATCHES)
def test_a_mismatch_is_said(changes: dict[str, Any], what: str, theirs: str, ours: str) -> None:
    (one,) = differences(ROW, dataclasses.replace(OURS, **changes))
    assert (one.what, one.published, one.ours) == (what, theirs, ours)


@pytest.mark.parametrize("row, protocol, what, theirs", [
    ({"training": "trained further at 32K"}, {}, "weights", "trained further at 32K"),
    ({"factor": None}, {}, "settings", "factor not published"),
    ({}, {"unknown": ("seed", "n")}, "settings", "not published: seed, n"),
    ({}, {"unlike": ("windows weighted equally",)}, "procedure", "windows weighted equally"),
])  # fmt: skip
def test_what_was_not_published_or_is_done_another_way_is_a_mismatch(
    row: dict[str, Any], protocol: dict[str, Any], what: str, theirs: str
) -> None:
    other = dataclasses.replace(ROW, **row, protocol=dataclasses.replace(PROTOCOL, **protocol))
    (one,) = differences(other, OURS)
    assert (one.what, one.published) == (what, theirs)


def test_the_nearest_cell_is_the_one_that_differs_least() -> None:
    far = dataclasses.replace(OURS, task="niah")
    near = dataclasses.replace(OURS, n=4, dtype="float32")
    baseline = dataclasses.replace(OURS, method="none", factor=None)
    found = nearest(ROW, [far, baseline, near])
    assert found is not None
    assert found[0] is near
    assert said(found[1]) == "published: 10 documents, bfloat16; yours: 4 documents, float32"
    stretched = dataclasses.replace(near, factor=4.0)
    assert (nearest(ROW, [baseline, stretched]) or [None])[0] is stretched  # the same method tells more than none
    assert nearest(ROW, [dataclasses.replace(OURS, model="other", source="else/where")]) is None


# What is shown


def test_the_deviation_is_ours_less_theirs_with_our_interval() -> None:
    off = deviation(ROW, OURS)
    assert off is not None
    assert (off.value, off.low, off.high) == pytest.approx((0.1, -0.3, 0.6))
    assert off.relative == pytest.approx(0.1 / 4.5)
    without = deviation(ROW, dataclasses.replace(OURS, low=None, high=None))
    assert without is not None
    assert (without.low, without.high) == (None, None)
    assert deviation(ROW, dataclasses.replace(OURS, value=None)) is None
    assert deviation(dataclasses.replace(ROW, bound=">"), OURS) is None


def test_only_a_match_stands_beside_ours() -> None:
    text = "\n".join(map(as_text, beside_tables(beside([ROW], [OURS]))))
    assert "4096    4.500      4.600 [4.200–5.100]  +0.1 [-0.3 to +0.6]  +2.22 %   A paper: Table 1" in text
    other = beside([ROW], [dataclasses.replace(OURS, n=4)])
    text = "\n".join(map(as_text, beside_tables(other)))
    assert "published: 10 documents; yours: 4 documents" in text
    assert "4.6" not in text
    assert as_rows(other)[0]["value"] is None
    assert as_rows(other)[0]["matches"] is False
    absent = beside([ROW], [])
    assert "1 models with published numbers have no record here: allenai/OLMo-1B-0724-hf" in "\n".join(
        map(as_text, beside_tables(absent))
    )


def test_a_number_of_either_of_two_methods_stands_beside_both() -> None:
    either = dataclasses.replace(ROW, methods=("yarn", "yarn_paper"))
    both = [OURS, dataclasses.replace(OURS, method="yarn_paper", value=4.7)]
    assert [one.ours for one in beside([either], both)] == both


@pytest.mark.parametrize("value, words", [(200.0, "within the bound"), (4.6, "NOT within the bound")])
def test_a_bound_is_no_number(value: float, words: str) -> None:
    bound = dataclasses.replace(ROW, value=100.0, bound=">")
    pairs = [Beside(bound, dataclasses.replace(OURS, value=value, low=None, high=None, interval="n too small"), ())]
    (table,) = beside_tables(pairs)
    assert table.rows[0][3:7] == ("4096", ">100.0", f"{value:.4g}{'.0' if value == 200 else '00'} [n too small]", words)


def test_scores_are_shown_in_percent_and_their_deviation_in_points() -> None:
    score = dataclasses.replace(PROTOCOL, percent=True, metric="score")
    row = dataclasses.replace(ROW, protocol=score, value=0.955)
    (table,) = beside_tables([Beside(row, dataclasses.replace(OURS, value=0.9, low=0.85, high=0.95), ())])
    assert table.rows[0][4:7] == ("95.5", "90.0 [85.0–95.0]", "-5.5 [-10.5 to -0.5]")


def test_stored_records_become_measured_cells(records: list[Any], samples: Any) -> None:
    found = measured(records, samples)
    assert len(found) == len(records)
    failed = [one for one in found if one.value is None]
    assert {one.why_no_value for one in failed} == {"out_of_memory"}
    yarn = next(one for one in found if one.method == "yarn")
    assert yarn.label == f"yarn×{yarn.factor:g}"


def test_ruler_s_mean_needs_all_thirteen_tasks() -> None:
    metrics = [{"name": "recall", "direction": "higher", "low": 0.0, "high": 1.0, "chance": 0.0, "derived": None}]
    some = [cell(f"ruler/{name}", "none", 4096, {"recall": share(8, 10)}, metrics=metrics) for name in range(13)]
    whole = [one for one in measured(*stored(*some)) if one.task == "ruler"]
    assert [(one.value, one.n, one.incomplete) for one in whole] == [(pytest.approx(0.8), 10, "")]
    (part,) = [one for one in measured(*stored(*some[:5])) if one.task == "ruler"]
    assert (part.value, part.incomplete) == (None, "5 of the 13 tasks")


def test_a_closest_protocol_is_called_so_and_lists_what_is_not_known() -> None:
    rep = reproductions()["mrrope-llama3-8b"]
    needle = Measured(
        "llama3-8b", "meta-llama/Meta-Llama-3-8B-Instruct", None, "bfloat16", "unscaled", "mrrope_pro", 16.0, "niah",
        {}, None, None, 8192, 55, "auto", "recall", "", 0.9, 0.8, 0.95, "Wilson", "a",
    )  # fmt: skip
    loss = dataclasses.replace(needle, task="proofpile", value=3.63, low=3.5, high=3.8, metric="perplexity")
    ppl, niah = reproduction_tables(rep, [needle, loss])
    assert "published protocol" in ppl.title
    assert "closest protocol" in niah.title
    assert any("closest protocol; not published: needle, haystack" in note for note in niah.notes)
    assert any(note.startswith("DIFFERS") and "n" in note for note in ppl.notes)  # 55 documents, other parameters
    assert any("quoted by another source" in note for note in ppl.notes)

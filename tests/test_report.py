"""Tables from hand-made records (`report_records`: a model named fixture-model, all values made up)."""

from __future__ import annotations

import copy
import csv
import io
import json
import math

import pytest

from report_records import block, pick
from ropebench.errors import UsageError
from ropebench.report import summary, tables
from ropebench.report.cells import blocks, cell_rows, quantizations, samples_by_cell
from ropebench.report.frames import records_frame, samples_frame, scores_by_length
from ropebench.report.paired import by_cell, difference_table

PERPLEXITY = """\
fixture-model · proofpile[fixture-docs] · perplexity, no BOS (lower is better)
method  1024 (0.5×) n=8   2048 (1×) n=8     │  4096 (2×) n=8
───────────────────────────────────────────────────────────────
none    9.97 [8.17–12.2]  9.03 [7.39–11.0]  │  30.0 [26.0–34.5]
pi×2    25.8 [20.6–32.2]  23.3 [18.7–29.2]  │  24.5 [16.3–36.9]
yarn×2  10.1 [8.27–12.4]  9.16 [7.53–11.1]  │  8.37 [7.05–9.94]
  corpus fixture-docs · scorer nll · seed 0 · BOS auto (not added) · chat template off · float32 · sdpa attention \
· cpu · trained on 2048 tokens
  95 % intervals: exp of the t interval of the mean NLL over documents
"""

RECALL = """\
fixture-model · niah:number[fixture-docs] · recall, % (higher is better)
method  1024 (0.5×) n=5  │  4096 (2×) n=3     mean
──────────────────────────────────────────────────
none    100 [57–100]     │  0 [n too small]   50
pi×2    20 [4–62]        │  out_of_memory
yarn×2  80 [38–96]       │  67 [n too small]  73
  corpus fixture-docs · scorer substring · seed 0 · BOS auto (not added) · chat template off · float32 \
· sdpa attention · cpu · trained on 2048 tokens
  95 % intervals: Wilson; n too small: fewer than 5 independent documents, haystacks or samples
  lengths have different numbers of samples (5 at 1024, 3 at 4096), so other depths too: a rise or fall from one \
length to the next, and the mean over lengths, may come from that; compare methods within a length
  pi×2 at 4096: out_of_memory (OutOfMemoryError: made up for tests)
"""


def test_table_text(records, samples):
    found = blocks(cell_rows(records, samples))
    assert [tables.as_text(tables.table(one)) for one in found] == [PERPLEXITY, RECALL]


def test_table_markdown(records, samples):
    text = tables.as_markdown(tables.table(block(records, samples, "niah")))
    assert text.splitlines()[:7] == [
        "### fixture-model · niah:number[fixture-docs] · recall, % (higher is better)",
        "",
        "| method | 1024 (0.5×) n=5 | 4096 (2×) n=3 | mean |",
        "|---|---|---|---|",
        "| none | 100 [57–100] | 0 [n too small] | 50 |",
        "| pi×2 | 20 [4–62] | out_of_memory |  |",
        "| yarn×2 | 80 [38–96] | 67 [n too small] | 73 |",
    ]


def test_difference_table(records, samples):
    found = difference_table(block(records, samples, "proofpile"), samples, "nll")
    assert found.columns == ("method", "1024 (0.5×)", "2048 (1×)", "4096 (2×)")
    assert found.rows == (
        ("pi×2", "+0.950 [+0.905, +0.995]*", "+0.950 [+0.905, +0.995]*", "−0.200 [−0.522, +0.122]"),
        ("yarn×2", "+0.015 [+0.011, +0.019]*", "+0.015 [+0.011, +0.019]*", "−1.275 [−1.314, −1.236]*"),
    )


def test_n_stands_in_the_cell_where_it_differs(records, samples):
    short = pick(records, "proofpile", "pi", 2048)
    short["outcome"]["metrics"]["perplexity"]["n"] = 3
    found = tables.table(block(records, samples, "proofpile"))
    assert found.columns[2] == "2048 (1×)"
    assert [row[2].split("] ")[1] for row in found.rows] == ["n=8", "n=3", "n=8"]


def test_a_cell_that_was_not_run_is_blank(records, samples):
    records.remove(pick(records, "niah", "none", 1024))
    found = tables.table(block(records, samples, "niah"))
    assert found.rows[0] == ("none", "", "0 [n too small]", "")


def test_fault_14_the_table_prints_the_attention_factor(records, samples):
    """FAULTS 14: LongRoPE from 4096 to 131072 tokens scales cos and sin by √(1 + ln 32 ÷ ln 4096)."""
    assert tables.table(block(records, samples, "proofpile")).columns[1] == "1024 (0.5×) n=8"  # all 1: no column
    for record in records:
        if record["method"]["name"] == "yarn":
            long = record["condition"]["length"] > 2048
            record["method"]["attention_factor"] = math.sqrt(1 + math.log(32) / math.log(4096)) if long else 1.0
    found = tables.table(block(records, samples, "proofpile"))
    assert found.columns[:3] == ("method", "attention factor", "1024 (0.5×) n=8")
    assert [row[1] for row in found.rows] == ["1", "1", "1–1.1902"]
    assert found.columns[found.divider] == "4096 (2×) n=8"
    dumped = csv.DictReader(io.StringIO(tables.as_csv(cell_rows(records, samples))))
    assert {row["method_attention_factor"][:9] for row in dumped if row["method_name"] == "yarn"} == {
        "1.0",
        "1.1902380",
    }


def test_fault_04_a_table_that_depends_on_the_length_says_which_one_was_used(records, samples):
    """FAULTS 04: with a cache, a dynamic method could mix keys rotated under several tables."""
    said = "It is set once per sample, before the pass, for the whole sample: generation keeps the one for prompt plus"
    for record in records:
        record["method"]["length_dependent"] = record["method"]["name"] == "yarn"
    for task in ("proofpile", "niah"):
        notes = [note for note in tables.table(block(records, samples, task)).notes if said in note]
        assert len(notes) == 1
        assert notes[0].startswith("yarn×2: the table depends on the length.")
    rows = csv.DictReader(io.StringIO(tables.as_csv(cell_rows(records, samples))))
    assert {row["method_length_dependent"] for row in rows if row["method_name"] == "yarn"} == {"True"}


@pytest.mark.parametrize(
    "used, said", [([False] * 3, "no BOS"), ([True] * 3, "with BOS"), ([True, False, True], "BOS auto")]
)
def test_every_likelihood_says_whether_a_bos_was_fed(records, samples, used, said):
    for number, record in enumerate(records):
        record["condition"]["bos_used"] = used[number % 3]
    shown, scores = (block(records, samples, task) for task in ("proofpile", "niah"))
    assert tables.title(shown) == f"fixture-model · proofpile[fixture-docs] · perplexity, {said} (lower is better)"
    assert said in shown.title
    assert said in difference_table(shown, samples, "nll").title
    assert said in summary.glance([shown], samples, by_cell(records)).rows[0][0]
    assert f"perplexity ({said}) is lowest" in summary.verdict(shown, samples, by_cell(records))[0]
    assert "BOS" not in tables.title(scores)


def test_settings_that_differ_make_tables_of_their_own(records, samples):
    again = copy.deepcopy(records)
    for record in again:
        record["condition"]["bos"] = "always"
        record["cell_id"] += "-bos"
    found = blocks(cell_rows(records + again))
    assert [one.qualifiers for one in found] == [("bos=always",), ("bos=auto",)] * 2
    assert tables.table(found[1]).title.endswith("(lower is better) · bos=auto")


def test_a_differing_task_parameter_names_itself(records):
    again = copy.deepcopy(pick(records, "niah", "none", 1024))
    again["task"]["params"] = {"depths": 5, "draws": 1}
    other = copy.deepcopy(again)
    other["task"]["params"] = {"depths": 11, "draws": 1}
    assert sorted(one.qualifiers for one in blocks(cell_rows([again, other]))) == [("depths=11",), ("depths=5",)]


def test_versions_of_a_method_are_rows_of_their_own(records):
    newer = copy.deepcopy(pick(records, "proofpile", "yarn", 2048))
    newer["method"]["version"] = 2
    found = blocks(cell_rows([*records, newer]))[0]
    assert found.labels == ["none", "pi×2", "yarn×2 v1", "yarn×2 v2"]


def test_of_two_records_of_one_place_the_newest_number_is_shown_and_the_other_mentioned(records):
    old = pick(records, "proofpile", "yarn", 2048)
    newer = copy.deepcopy(old) | {"cell_id": "other frequencies", "created": "2026-02-01T00:00:00Z"}
    newer["outcome"]["metrics"]["perplexity"]["value"] = 5.0
    failed = copy.deepcopy(old) | {"cell_id": "failed", "created": "2026-03-01T00:00:00Z"}
    failed["outcome"] = {"status": "error", "error": None, "metrics": {}, "primary": "perplexity"}
    found = blocks(cell_rows([failed, newer, *records]))[0]
    assert found.cell("yarn×2", 2048)["value"] == 5.0
    assert found.notes == ("yarn×2: 2 older records with other frequencies, samples or files not shown",)


def test_notes_on_clusters_skips_and_sliding_windows(records, samples):
    for record in records:
        record["model"]["sliding_window"] = 2048
    pick(records, "niah", "yarn", 1024)["condition"]["n_skipped"] = 2
    for rows in samples.values():
        for row in rows:
            row["meta"]["cluster"] = row["index"] // 2
    notes = tables.table(block(records, samples, "niah")).notes
    assert notes[1].startswith("no intervals; n too small: fewer than 5 independent")
    assert notes[1].endswith("samples share documents or haystacks (3 samples in 2, 5 samples in 3)")
    assert "yarn×2 at 1024: 2 samples skipped (they do not fit)" in notes
    assert "layers with a sliding window of 2048 tokens see nothing beyond it, whatever the method" in notes


@pytest.mark.parametrize(
    "value, text",
    [(27.94, "27.9"), (9.996, "10.0"), (9.87, "9.87"), (123456.0, "123000"), (2.5e7, "2.50e+07"), (0.0, "0.00")],
)
def test_numbers_have_three_digits(value, text):
    assert tables.number(value) == text


def test_weights_are_called_by_their_format_where_any_record_of_them_has_it(records, samples):
    for number, record in enumerate(records):
        record["model"] |= {"source": "gguf-package:x", "quantization": "GGUF Q4_1" if number == 0 else None}
    rows = cell_rows(records, samples)
    assert quantizations(rows) == ["GGUF Q4_1"]
    assert quantizations(rows[1:]) == ["GGUF file"]
    assert "GGUF Q4_1 weights" in tables.table(block(records, samples, "proofpile")).notes[0]


def test_csv_keeps_numbers_and_defuses_formulas(records, samples):
    pick(records, "niah", "pi", 4096)["outcome"]["error"]["message"] = '=HYPERLINK("x")'
    records[0]["model"]["id"] = "@evil"
    pick(records, "proofpile", "yarn", 4096)["outcome"]["metrics"]["perplexity"]["value"] = -1.5
    rows = list(csv.DictReader(io.StringIO(tables.as_csv(cell_rows(records, samples)))))
    assert tuple(rows[0]) == tables.COLUMNS
    assert [r["outcome_error_message"] for r in rows if r["outcome_status"] != "ok"] == ['\'=HYPERLINK("x")']
    assert "'@evil" in {r["model_id"] for r in rows}
    assert "-1.5" in {r["value"] for r in rows}
    failed = next(r for r in rows if r["outcome_status"] == "out_of_memory")
    assert (failed["value"], failed["low"], failed["n"]) == ("", "", "0")


def test_json_holds_full_precision_and_null(records, samples):
    found = json.loads(tables.as_json(cell_rows(records, samples)))
    one = next(r for r in found if r["cell_id"] == "fixture-proofpile-none-1024")
    assert one["value"] == pytest.approx(math.exp(2.3), rel=1e-15)
    assert (one["interval"], one["n"], one["clusters"], one["model_quantization"]) == ("exp t", 8, 8, None)


def test_another_metric_can_be_shown(records, samples):
    rows = cell_rows(records, samples, metric="nll")
    assert {row["task_name"] for row in rows} == {"proofpile"}
    assert rows[0]["value"] == pytest.approx(2.3)
    with pytest.raises(UsageError, match="did you mean 'recall'"):
        cell_rows(records, samples, metric="recal")


@pytest.mark.parametrize(
    "text, safe",
    [
        ("a|b", "a\\|b"),
        ("<img src=x>", "&lt;img src=x&gt;"),
        ("[x](javascript:y)", "[x]\\(javascript:y)"),
        ("yarn_paper _x_ **b**", "yarn_paper \\_x\\_ \\*\\*b\\*\\*"),
        ("two\nlines", "two lines"),
        ("a\\|b", "a\\\\\\|b"),
    ],
)
def test_markdown_is_escaped(text, safe):
    assert tables.escape(text) == safe


def test_samples_that_no_record_counts_are_left_out(records, samples):
    record = pick(records, "proofpile", "yarn", 2048)
    extra = samples[record["cell_id"]][0] | {"index": 8}
    other = extra | {"cell_id": "a cell without a record"}
    rows = [row for members in samples.values() for row in reversed(members)]
    assert samples_by_cell(records, [extra, other, *rows]) == samples


def test_frame_has_one_row_per_cell_and_keeps_failures(records, samples):
    frame = records_frame(records, samples)
    assert len(frame) == len(records) == 15
    failed = frame[frame["outcome_status"] == "out_of_memory"].iloc[0]
    assert math.isnan(failed["value"])
    assert {"model_id", "condition_length", "task_corpus_label", "provenance_versions_python"} <= set(frame)
    assert not {"method_inv_freq", "outcome_metrics"} & set(frame)


def test_scores_by_length_is_blank_where_a_cell_is_missing(records, samples):
    pivot = scores_by_length(records_frame(records, samples), "fixture-model", "niah:number[fixture-docs]", mean=True)
    assert list(pivot.index) == ["none", "pi×2", "yarn×2"]
    assert list(pivot.columns) == [1024, 4096, "mean"]
    assert pivot.loc["pi×2"].isna().tolist() == [False, True, True]
    assert pivot.loc["yarn×2", "mean"] == pytest.approx((0.8 + 2 / 3) / 2)
    with pytest.raises(UsageError, match="fixture-model"):
        scores_by_length(records_frame(records), "fixture-modle", "niah:number[fixture-docs]")


def test_samples_frame(samples):
    frame = samples_frame(samples["fixture-niah-yarn-1024"])
    assert frame["score_recall"].tolist() == [1, 1, 1, 1, 0]
    assert frame["meta_depth"].tolist() == [0.02, 0.26, 0.5, 0.74, 0.98]

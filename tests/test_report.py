"""Tables, plots and the leaderboard from hand-made records.

The records in tests/data/records are fixtures: a model named fixture-model, all values made up.
"""

from __future__ import annotations

import copy
import csv
import io
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ropebench.errors import UsageError
from ropebench.report import figures, heatmap, leaderboard, plots, summary, tables
from ropebench.report.cells import Block, blocks, cell_rows, samples_by_cell
from ropebench.report.frames import records_frame, samples_frame, scores_by_length
from ropebench.report.paired import by_cell, difference_table, ranking
from ropebench.report.style import STYLES, style, styles

ROOT = Path(__file__).parents[1]
FIXTURES = Path(__file__).parent / "data" / "records"

Json = dict[str, Any]


def lines(name: str) -> list[Json]:
    return [json.loads(line) for line in (FIXTURES / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def records() -> list[Json]:
    return lines("fixture.jsonl")


@pytest.fixture
def samples() -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for row in lines("fixture.samples.jsonl"):
        found.setdefault(row["cell_id"], []).append(row)
    return found


def pick(records: list[Json], task: str, method: str, length: int) -> Json:
    return next(
        r for r in records
        if (r["task"]["name"], r["method"]["name"], r["condition"]["length"]) == (task, method, length)
    )  # fmt: skip


def block(records: list[Json], samples: dict[str, list[Json]], task: str) -> Block:
    return next(b for b in blocks(cell_rows(records, samples)) if b.first["task_name"] == task)


PERPLEXITY = """\
fixture-model · proofpile[fixture-docs] · perplexity (lower is better)
method  1024 (0.5×) n=4   2048 (1×) n=4     │  4096 (2×) n=4
───────────────────────────────────────────────────────────────
none    9.97 [6.61–15.0]  9.03 [5.98–13.6]  │  30.0 [22.4–40.1]
pi×2    25.8 [16.3–40.8]  23.3 [14.7–36.9]  │  24.5 [14.6–41.3]
yarn×2  10.1 [6.69–15.3]  9.16 [6.12–13.7]  │  8.37 [5.88–11.9]
  corpus fixture-docs · scorer nll · seed 0 · BOS auto (not added) · chat template off · float32 · sdpa attention \
· cpu · trained on 2048 tokens
  95 % intervals: exp of the t interval of the mean NLL over documents
"""

RECALL = """\
fixture-model · niah:number[fixture-docs] · recall, % (higher is better)
method  1024 (0.5×) n=5  │  4096 (2×) n=3  mean
───────────────────────────────────────────────
none    100 [57–100]     │  0 [0–56]       50
pi×2    20 [4–62]        │  out_of_memory
yarn×2  80 [38–96]       │  67 [21–94]     73
  corpus fixture-docs · scorer substring · seed 0 · BOS auto (not added) · chat template off · float32 \
· sdpa attention · cpu · trained on 2048 tokens
  95 % intervals: Wilson
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
        "| none | 100 [57–100] | 0 [0–56] | 50 |",
        "| pi×2 | 20 [4–62] | out_of_memory |  |",
        "| yarn×2 | 80 [38–96] | 67 [21–94] | 73 |",
    ]


def test_difference_table(records, samples):
    found = difference_table(block(records, samples, "proofpile"), samples, "nll")
    assert found.columns == ("method", "1024 (0.5×)", "2048 (1×)", "4096 (2×)")
    assert found.rows == (
        ("pi×2", "+0.950 [+0.858, +1.042]", "+0.950 [+0.858, +1.042]", "−0.200 [−0.491, +0.091]"),
        ("yarn×2", "+0.015 [+0.006, +0.024]", "+0.015 [+0.006, +0.024]", "−1.275 [−1.355, −1.195]"),
    )


def test_n_stands_in_the_cell_where_it_differs(records, samples):
    short = pick(records, "proofpile", "pi", 2048)
    short["outcome"]["metrics"]["perplexity"]["n"] = 3
    found = tables.table(block(records, samples, "proofpile"))
    assert found.columns[2] == "2048 (1×)"
    assert [row[2].split("] ")[1] for row in found.rows] == ["n=4", "n=3", "n=4"]


def test_a_cell_that_was_not_run_is_blank(records, samples):
    records.remove(pick(records, "niah", "none", 1024))
    found = tables.table(block(records, samples, "niah"))
    assert found.rows[0] == ("none", "", "0 [0–56]", "")


def test_settings_that_differ_make_tables_of_their_own(records, samples):
    again = copy.deepcopy(records)
    for record in again:
        record["condition"]["seed"] = 1
        record["cell_id"] += "-seed1"
    found = blocks(cell_rows(records + again))
    assert [one.qualifiers for one in found] == [("seed=0",), ("seed=1",)] * 2
    assert tables.table(found[1]).title.endswith("(lower is better) · seed=1")


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


def test_methods_that_saw_other_samples_are_flagged_and_not_ranked(records, samples):
    assert ranking(block(records, samples, "proofpile"), samples, "nll", 4096) is not None
    pick(records, "proofpile", "yarn", 4096)["task"]["samples_sha256"] = "other"
    found = block(records, samples, "proofpile")
    assert found.disagreeing() == [4096]
    assert (
        "NOT COMPARABLE at 4096: the methods saw different samples (none, pi×2 ≠ yarn×2)" in tables.table(found).notes
    )
    assert ranking(found, samples, "nll", 4096) is None
    assert difference_table(found, samples, "nll").rows[1][3] == ""
    assert "at 2048 tokens" in summary.verdict(found, samples, by_cell(records))[0]


def test_notes_on_clusters_skips_and_sliding_windows(records, samples):
    for record in records:
        record["model"]["sliding_window"] = 2048
    pick(records, "niah", "yarn", 1024)["condition"]["n_skipped"] = 2
    for rows in samples.values():
        for row in rows:
            row["meta"]["cluster"] = row["index"] // 2
    notes = tables.table(block(records, samples, "niah")).notes
    assert "(3 samples in 2, 5 samples in 3), which Wilson's interval does not know: it is too narrow" in notes[1]
    assert "yarn×2 at 1024: 2 samples skipped (they do not fit)" in notes
    assert "layers with a sliding window of 2048 tokens see nothing beyond it, whatever the method" in notes


def test_ranks_are_shared_where_the_paired_interval_holds_zero(records, samples):
    found = ranking(block(records, samples, "proofpile"), samples, "nll", 4096)
    assert found.labels == ("yarn×2", "pi×2", "none")
    assert found.rank == {"yarn×2": 1, "pi×2": 2, "none": 2}
    assert found.tied == ()
    inside = ranking(block(records, samples, "proofpile"), samples, "nll", 2048)
    assert inside.rank == {"none": 1, "yarn×2": 2, "pi×2": 3}


def test_few_needles_rank_nothing(records, samples):
    found = ranking(block(records, samples, "niah"), samples, "recall", 1024)
    assert not found.testable
    assert set(found.rank.values()) == {1}
    said = summary.verdict(block(records, samples, "niah"), samples, by_cell(records))
    assert said[0].endswith("recall is highest with yarn×2 (67 %), but 3 samples cannot tell any two methods apart.")
    assert not any("Cost" in line for line in said)


def test_verdict(records, samples):
    assert summary.verdict(block(records, samples, "proofpile"), samples, by_cell(records)) == [
        "proofpile[fixture-docs]: at 4096 tokens (2× the trained window) perplexity is lowest with yarn×2 (8.37). "
        "Worse on the same samples (paired, each pair by itself), in nats per token: pi×2 +1.075 [+0.836, +1.314]; "
        "none +1.275 [+1.195, +1.355].",
        "From 2048 to 4096 tokens perplexity goes: none 9.03 → 30.0; yarn×2 9.16 → 8.37.",
        "Cost inside the window (1024–2048 tokens, largest loss against none): yarn×2 +0.015 [+0.006, +0.024] "
        "nats per token = +1.5 % perplexity at 1024.",
    ]


@pytest.mark.parametrize(
    "value, text",
    [(27.94, "27.9"), (9.996, "10.0"), (9.87, "9.87"), (123456.0, "123000"), (2.5e7, "2.50e+07"), (0.0, "0.00")],
)
def test_numbers_have_three_digits(value, text):
    assert tables.number(value) == text


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
    assert (one["interval"], one["n"], one["clusters"], one["model_quantization"]) == ("exp t", 4, 4, None)


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
    extra = samples[record["cell_id"]][0] | {"index": 4}
    other = extra | {"cell_id": "a cell without a record"}
    rows = [row for members in samples.values() for row in reversed(members)]
    assert samples_by_cell(records, [extra, other, *rows]) == samples


def test_needles_of_one_haystack_are_said_to_share_it(records, samples):
    for rows in samples.values():
        for row in rows:
            row["meta"]["cluster"] = "the only one"
    said = " ".join(summary.limits([block(records, samples, "niah")], samples, by_cell(records)))
    assert "The samples of a cell share 1 haystack, so they are less than so many independent ones" in said


def test_documents_of_several_lengths_are_listed_once_per_corpus(records, samples, tmp_path):
    for record in records:
        if record["condition"]["length"] == 4096:
            del record["task"]["corpus"]["documents"][1:]
    leaderboard.build(records, samples, tmp_path)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert text.count("- fixture-docs: source made up for tests") == 1
    assert "; 4 documents: document 0 (sha256 " in text


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


def test_every_method_has_its_own_look_and_keeps_it():
    looks = [(look.colour, look.line, look.marker) for look in STYLES.values()]
    assert len(set(looks)) == len(looks)
    stranger = style("my_rope")
    assert stranger == style("my_rope") != style("your_rope")
    assert stranger.colour not in {look.colour for look in STYLES.values()}
    two = styles(["yarn×2", "yarn×4", "pi×2"])
    assert two["yarn×2"].colour == two["yarn×4"].colour
    assert two["yarn×2"].line != two["yarn×4"].line


def test_depths_that_were_not_measured_are_absent(records, samples):
    found = block(records, samples, "niah")
    bins = heatmap.depth_bins(found, samples)
    means = heatmap.depth_means(found, samples, "yarn×2", bins)
    assert bins == 5
    assert {place for place in means if place[1] == 4096} == {(0, 4096), (2, 4096), (4, 4096)}
    assert means[4, 1024] == (0.0, 1)


def test_position_curve_is_weighted_by_tokens(samples):
    rows = {"c": [{"nll_bins": {"size": 256, "sum": [300.0, 512.0], "count": [100, 256]}},
                  {"nll_bins": {"size": 256, "sum": [100.0, 256.0], "count": [100, 256]}}]}  # fmt: skip
    assert plots.position_curve(rows, {"x": "c"}, 512) == {"x": [(128.0, 2.0), (384.0, 1.5)]}


def test_plots_are_written_and_the_same_twice(records, samples, tmp_path):
    planned = figures.plan(blocks(cell_rows(records, samples)), samples, by_cell(records))
    assert [one.kind for one in planned] == ["value", "difference", "position", "value", "depth"]
    first, second = (
        [path for one in planned for path in figures.draw(one, samples, tmp_path / folder)] for folder in ("a", "b")
    )
    assert [path.suffix for path in first] == [".png", ".svg"] * 5
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes(), one.name
    assert first[0].read_bytes().startswith(b"\x89PNG")


def test_frequencies_plot(tmp_path):
    default = [2 * math.pi * 100.0 ** (k / 4) for k in range(4)]
    rows = [
        {"label": "none", "wavelength": default, "lambda": [1.0] * 4},
        {"label": "pi×2", "wavelength": [2 * w for w in default], "lambda": [2.0, 1.0, 1.0, 1.0]},
    ]
    paths = plots.plot_frequencies(rows, 64, tmp_path / "frequencies")
    assert [path.name for path in paths] == ["frequencies.png", "frequencies.svg"]
    assert all(path.stat().st_size > 5000 for path in paths)


def test_leaderboard_is_built_from_records_and_checked(records, samples, tmp_path):
    assert leaderboard.check(records, samples, tmp_path)[:2] == ["README.md", "leaderboard.csv"]
    paths = leaderboard.build(records, samples, tmp_path)
    assert leaderboard.check(records, samples, tmp_path) == []
    assert leaderboard.check(list(reversed(records)), samples, tmp_path) == []
    assert {path.name for path in paths} == {path.name for path in tmp_path.iterdir()}

    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    order = [text.index(part) for part in ("## Summary", "## Results", "## What these numbers", "## Provenance")]
    assert order == sorted(order)
    assert set(re.findall(r"\]\(([^)]*\.png)\)", text)) == {path.name for path in paths if path.suffix == ".png"}
    for said in (
        "one sample is 20 points with n = 5, 33 points with n = 3",
        "100 % of 5 is compatible with 57–100 %",
        "1 of 15 cells failed",
        "4 documents of one corpus, seed 0",
        "licence CC0-1.0",
        "`ffffffffffff`: 15 cells",
        "ropebench run --model fixture-model",
    ):
        assert said in text, said

    pick(records, "proofpile", "none", 1024)["outcome"]["metrics"]["perplexity"]["value"] = 9.0
    paths[2].unlink()
    assert leaderboard.check(records, samples, tmp_path) == ["README.md", "leaderboard.csv", paths[2].name]


def test_leaderboard_needs_records(tmp_path):
    with pytest.raises(UsageError, match="ropebench run"):
        leaderboard.build([], {}, tmp_path)


def test_a_strange_name_breaks_neither_page_nor_files(records, samples, tmp_path):
    for record in records:
        record["model"]["id"] = "../<b>x|y"
        record["task"]["label"] = "a/b"
    paths = leaderboard.build(records, samples, tmp_path / "out")
    assert {path.parent for path in paths} == {tmp_path / "out"}
    assert len(set(paths)) == len(paths)  # both tasks have one label now; their plots still have names of their own
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "<b>" not in text
    assert "../&lt;b&gt;x\\|y" in text


def test_one_record_is_enough_for_a_page(records, tmp_path):
    leaderboard.build([pick(records, "niah", "pi", 4096)], {}, tmp_path)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "nothing to rank" in text
    assert "out_of_memory" in text


def test_results_readme_explains_every_key(records, samples):
    text = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", text))
    record, row = records[0], next(iter(samples.values()))[0]
    keys = set(record) | set(row) | {"depth", "size", "sum", "count", "value", "stderr", "n", "sha256", "licence"}
    for group in ("model", "method", "task", "condition", "outcome", "cost", "provenance"):
        keys |= set(record[group])
    assert keys - named == set()


@pytest.mark.parametrize(
    "module, absent",
    [
        ("ropebench.report", "pandas matplotlib torch transformers scipy"),
        ("ropebench.stats", "pandas matplotlib torch transformers scipy"),
        ("ropebench.report.tables", "pandas matplotlib torch transformers scipy"),
        ("ropebench.report.leaderboard", "pandas matplotlib torch transformers"),
        ("ropebench.report.frames", "matplotlib torch transformers"),
        ("ropebench.report.heatmap", "torch transformers"),
    ],
)
def test_reports_load_no_more_than_they_need(module, absent):
    code = f"import sys, {module}; print(*[name for name in {absent.split()} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""

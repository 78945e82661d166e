"""Plots and the leaderboard from hand-made records (`report_records`), and what reports may load."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from report_records import block, pick
from ropebench.errors import UsageError
from ropebench.report import figures, heatmap, leaderboard, plots, reach
from ropebench.report.cells import blocks, cell_rows
from ropebench.report.effective import Effective, Enough
from ropebench.report.paired import baseline_differences, by_cell
from ropebench.report.style import STYLES, style, styles

ROOT = Path(__file__).parents[1]


def test_documents_of_several_lengths_are_listed_once_per_corpus(records, samples, tmp_path, no_drawing):
    for record in records:
        if record["condition"]["length"] == 4096:
            del record["task"]["corpus"]["documents"][1:]
    leaderboard.build(records, samples, tmp_path)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert text.count("- fixture-docs: source made up for tests") == 1
    assert "; 8 documents: document 0 (sha256 " in text


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
    edges = heatmap.depth_edges(found, samples)
    means = heatmap.depth_means(found, samples, "yarn×2", edges)
    assert edges == pytest.approx([0, 0.14, 0.38, 0.62, 0.86, 1])  # halfway between 2, 26, 50, 74 and 98 %
    assert {place for place in means if place[1] == 4096} == {(0, 4096), (2, 4096), (4, 4096)}
    assert means[4, 1024] == (0.0, 1)


def test_a_needle_that_moved_to_a_sentence_end_stays_in_the_row_it_was_aimed_at(records, samples):
    """Aimed at 0, 25, 50, 75 and 100 %; in a short text the real depths are as far off as 84 %."""
    real = [0.0, 0.21, 0.56, 0.84, 1.0]
    for rows in samples.values():
        for row, depth in zip(rows, real, strict=False):
            if "depth" in row["meta"]:
                row["meta"] |= {"depth": depth, "depth_wanted": row["index"] / 4}
    found = block(records, samples, "niah")
    edges = heatmap.depth_edges(found, samples)
    assert edges == [0, 0.125, 0.375, 0.625, 0.875, 1]
    means = heatmap.depth_means(found, samples, "yarn×2", edges)
    assert [means[at, 1024] for at in range(5)] == [(1.0, 1)] * 4 + [(0.0, 1)]


def test_depths_all_over_the_text_go_into_equal_rows_by_where_they_are(records, samples):
    rows = [{"index": k, "meta": {"depth": (k * 0.618) % 1}, "scores": {"recall": float(k % 2)}} for k in range(24)]
    samples["fixture-niah-yarn-1024"] = rows
    found = block(records, samples, "niah")
    edges = heatmap.depth_edges(found, samples)
    assert edges == pytest.approx([k / 6 for k in range(7)])  # four samples to a row
    means = heatmap.depth_means(found, samples, "yarn×2", edges)
    assert sum(count for (_, length), (_, count) in means.items() if length == 1024) == 24
    top = [k % 2 for k in range(24) if (k * 0.618) % 1 < 1 / 6]
    assert means[0, 1024] == (pytest.approx(sum(top) / len(top)), len(top))


def test_differences_by_depth_are_taken_sample_by_sample(records, samples):
    found = block(records, samples, "niah")
    edges = heatmap.depth_edges(found, samples)
    known = heatmap.depth_differences(found, samples, "yarn×2", "none", edges)
    assert [known[at, 1024] for at in range(5)] == [(0.0, 1)] * 4 + [(-1.0, 1)]
    assert [known[at, 4096] for at in (0, 2, 4)] == [(1.0, 1), (1.0, 1), (0.0, 1)]
    samples["fixture-niah-yarn-1024"][4]["prompt_sha256"] = "another text"
    assert (4, 1024) not in heatmap.depth_differences(found, samples, "yarn×2", "none", edges)
    assert heatmap.depth_differences(found, samples, "pi×2", "none", edges)[0, 1024] == (0.0, 1)


def test_cost_and_reach_of_a_likelihood(records, samples):
    """yarn costs 0.015 nats inside the window and gains 1.275 at 4096; pi costs 0.95 and gains 0.2."""
    found = block(records, samples, "proofpile")
    at = reach.reaches(found, baseline_differences(found, samples, "nll"), samples, "nll")
    assert {label: (one.cost, one.gain, one.far.tokens) for label, one in at.items()} == {
        "none": (0, 0, 2048),
        "pi×2": (pytest.approx(0.95), pytest.approx(0.2), 0),
        "yarn×2": (pytest.approx(0.015), pytest.approx(1.275), 4096),
    }
    assert at["yarn×2"].low < 1.275 < at["yarn×2"].high
    assert at["yarn×2"].cost_low < 0.015 < at["yarn×2"].cost_high
    assert (at["yarn×2"].far.low, at["yarn×2"].far.high, at["yarn×2"].far.open) == (4096, 4096, True)
    inside = [record for record in records if record["condition"]["length"] <= 2048]
    found = block(inside, samples, "proofpile")
    assert reach.reaches(found, baseline_differences(found, samples, "nll"), samples, "nll") == {}


def test_reach_of_a_score_is_the_effective_length_of_the_table(records, samples):
    """85 % of the unmodified model's 100 % at 1024 tokens: yarn has 80 % there, and 67 % at 4096; 60 % are less."""
    found = block(records, samples, "niah")
    differences = baseline_differences(found, samples, "recall")
    at = reach.reaches(found, differences, samples, "recall")
    assert {label: one.far.tokens for label, one in at.items()} == {"none": 1024, "pi×2": 0, "yarn×2": 0}
    at = reach.reaches(found, differences, samples, "recall", Enough(share=60))
    assert {label: one.far.tokens for label, one in at.items()} == {"none": 1024, "pi×2": 0, "yarn×2": 4096}
    assert {one.gain for one in at.values()} == {None}


def test_methods_that_hide_one_another_are_shown_again():
    def at(cost, gain):
        return reach.Reach(cost, None, None, Effective(4096, None, None, True), gain)

    far = {"a": at(0.03, 1.09), "b": at(0.031, 1.08)}
    assert reach.leading(far | {"pi": at(1.7, -0.6)}) == ["a", "b"]
    assert reach.leading({"a": far["a"], "pi": at(1.7, -0.6)}) == ["a", "pi"]


def test_points_at_the_trained_window_stand_before_its_line():
    apart = plots.Apart(7, 0.06)
    assert all(apart.at(8192, place) < apart.beyond(8192) for place in range(7))
    assert apart.beyond(8192) < min(apart.at(16384, place) for place in range(7))


def test_the_window_is_in_the_plot_wherever_the_lengths_lie():
    for lengths in ([2048], [128, 256], [256, 1024]):
        with plots.figure(7.2, 4.2) as (_, axes):
            plots.length_axis(axes, lengths, 512, plots.Apart(1, 0.03))
            low, high = axes.get_xlim()
        assert low < min(*lengths, 512) < max(*lengths, 512) < high  # its name outside leaves the axes no room


def test_position_curve_is_weighted_by_tokens(samples):
    rows = {"c": [{"nll_bins": {"size": 256, "sum": [300.0, 512.0], "count": [100, 256]}},
                  {"nll_bins": {"size": 256, "sum": [100.0, 256.0], "count": [100, 256]}}]}  # fmt: skip
    assert plots.position_curve(rows, {"x": "c"}, 512) == {"x": [(128.0, 2.0), (384.0, 1.5)]}


def test_plots_are_written_and_the_same_twice(records, samples, tmp_path):
    planned = figures.plan(blocks(cell_rows(records, samples)), samples, by_cell(records))
    assert [one.kind for one in planned] == [
        "frequencies", "value", "difference", "position", "reach", "value", "reach", "depth", "depth_difference",
    ]  # fmt: skip
    first, second = (
        [path for one in planned for path in figures.draw(one, samples, tmp_path / folder)] for folder in ("a", "b")
    )
    assert [path.suffix for path in first] == [".png", ".svg"] * len(planned)
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes(), one.name
    assert first[0].read_bytes().startswith(b"\x89PNG")


def test_titles_stay_inside_narrow_figures_and_one_length_is_a_line_per_method(records, samples, tmp_path):
    """A map of one method at one length is 4.4 inches wide; its title once ran out of it."""
    for line in plots.wrapped("a long name " * 12 + "\nsecond", 4.4).splitlines():
        assert len(line) <= 62
    one = [record for record in records if record["condition"]["length"] == 1024]
    planned = figures.plan(blocks(cell_rows(one, samples)), samples, by_cell(one))
    sizes = {}
    for shown in planned:
        if shown.kind == "value":
            png = figures.draw(shown, samples, tmp_path)[0].read_bytes()
            sizes[shown.block.first["metric"]] = int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
    assert sizes == {"perplexity": (960, 336), "recall": (960, 336)}  # three methods: 0.28 inches each, and 1.4


def test_frequencies_plot(tmp_path):
    default = [2 * math.pi * 100.0 ** (k / 4) for k in range(4)]
    rows = [
        {"label": "none", "wavelength": default, "lambda": [1.0] * 4},
        {"label": "pi×2", "wavelength": [2 * w for w in default], "lambda": [2.0, 1.0, 1.0, 1.0]},
    ]
    paths = plots.plot_frequencies(rows, 64, tmp_path / "frequencies")
    assert [path.name for path in paths] == ["frequencies.png", "frequencies.svg"]
    assert all(path.stat().st_size > 5000 for path in paths)


def test_leaderboard_is_built_from_records_and_checked(records, samples, tmp_path, no_drawing):
    assert leaderboard.check(records, samples, tmp_path)[:3] == ["README.md", "leaderboard.csv", "index.html"]
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
        "8 documents of one corpus, seed 0",
        "licence CC0-1.0",
        "commit ffffffffffff: 15 cells",
        "ropebench run --model fixture-model",
    ):
        assert said in text, said

    pick(records, "proofpile", "none", 1024)["outcome"]["metrics"]["perplexity"]["value"] = 9.0
    paths[3].unlink()
    assert leaderboard.check(records, samples, tmp_path) == [
        "README.md",
        "leaderboard.csv",
        "index.html",
        paths[3].name,
    ]


def test_leaderboard_needs_records(tmp_path):
    with pytest.raises(UsageError, match="ropebench run"):
        leaderboard.build([], {}, tmp_path)


def test_a_strange_name_breaks_neither_page_nor_files(records, samples, tmp_path, no_drawing):
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

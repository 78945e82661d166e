"""RULER's mean of 13, its weighted means and effective length, and what is blank where something is missing."""

from __future__ import annotations

from typing import Any

import pytest

from report_records import cell, share, stored
from ropebench.report import figures
from ropebench.report.advice import in_short, outside
from ropebench.report.cells import blocks, cell_rows
from ropebench.report.effective import Enough
from ropebench.report.paired import by_cell
from ropebench.report.ruler_plot import ruler_by_task
from ropebench.report.ruler_summary import effective_length, families, family_table
from ropebench.report.sections import family_tables

SCORE = [{"name": "score", "direction": "higher", "low": 0.0, "high": 1.0, "chance": 0.0, "derived": None}]
PROSE = ["niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multivalue", "niah_multiquery"]
TASKS = [*PROSE, "niah_single_1", "niah_multikey_2", "niah_multikey_3", "vt", "cwe", "fwe", "qa_1", "qa_2"]
SIX = (4096, 8192, 16384, 32768, 65536, 131072)


def one(task: str, method: str, length: int, right: int, of: int = 20, corpus: str = "essays", **more: Any) -> Any:
    prose = {"corpus": {"label": corpus}, "label": f"ruler/{task}[{corpus}]"} if task in PROSE else {}
    about = {"label": f"ruler/{task}", "params": {"layout": "balanced"}} | prose | more
    return cell(f"ruler/{task}", method, length, {"score": share(right, of)}, metrics=SCORE, **about)


def shown(*cells: Any) -> Any:
    return [family_table(family) for family in families(blocks(cell_rows(*stored(*cells))))]


def test_the_mean_of_thirteen_and_how_far_it_reaches():
    """none: 20 of 20 in all tasks at 4096, 10 of 20 at 8192; yarn: 20 of 20 but one task with 7, (12 + 0.35) ÷ 13."""
    cells = []
    for task in TASKS:
        cells += [one(task, "none", 4096, 20), one(task, "none", 8192, 10)]
        cells += [one(task, "yarn", 4096, 20), one(task, "yarn", 8192, 7 if task == "vt" else 20)]
    (table,) = shown(*cells)
    assert table.title == "fixture-model · ruler[essays] · mean of 13 tasks, % (higher is better)"
    assert table.columns == (
        "method", "4096 (2×)", "8192 (4×)", "mean", "weighted to long", "weighted to short", "effective length",
    )  # fmt: skip
    assert [[cell.partition(" [")[0] for cell in row] for row in table.rows] == [
        ["none", "100.0", "50.0", "75.0", "", "", "4096"],
        ["yarn×2", "100.0", "95.0", "97.5", "", "", "≥ 8192"],
    ]


def test_the_effective_length_of_the_mean_has_an_interval():
    """20 of 20 in all tasks at 4096; at 8192 the mean of 17 or 18 of 20 is 86.2 %: the next draw may fall short."""
    cells = [one(task, "none", 4096, 20) for task in TASKS]
    cells += [one(task, "none", 8192, 17 + (place < 3)) for place, task in enumerate(TASKS)]
    cells += [one(task, "yarn", length, 20) for task in TASKS for length in (4096, 8192)]
    records, samples = stored(*cells)
    found = blocks(cell_rows(records, samples))
    (table,) = family_tables(found, samples)
    assert [row[-1] for row in table.rows] == ["≥ 8192 (4×) [4096–8192]", "≥ 8192 (4×) [8192]"]
    (table,) = family_tables(found, samples, Enough(threshold=88))
    assert table.rows[0][-1] == "4096 (2×) [4096–8192]"
    assert "at or above 88 %;" in table.notes[0]


def test_a_missing_task_leaves_the_means_blank_and_is_counted():
    cells = [one(task, "none", 4096, 20) for task in TASKS] + [one(task, "none", 8192, 20) for task in TASKS[:9]]
    (table,) = shown(*cells)
    assert [cell.partition(" [")[0] for cell in table.rows[0]] == [
        "none", "100.0", "(9 of 13)", "", "", "", "≥ 4096",
    ]  # fmt: skip
    assert any("a mean with a missing task is blank" in note for note in table.notes)


def test_a_failed_task_is_a_missing_one():
    cells = [one(task, "none", 4096, 20) for task in TASKS]
    cells[3][0]["outcome"] = {"status": "out_of_memory", "error": None, "metrics": {}, "primary": "score"}
    assert shown(*cells)[0].rows[0][1] == "(12 of 13)"


def test_weighted_means_stand_only_over_the_six_lengths():
    """20, 18, 16, 14, 12, 10 of 20: weights 1 … 6 give (100 + 180 + 240 + 280 + 300 + 300) ÷ 21, and 6 … 1 the rest."""
    right = dict(zip(SIX, (20, 18, 16, 14, 12, 10), strict=True))
    cells = [one(task, "none", length, right[length]) for task in TASKS for length in SIX]
    row = shown(*cells)[0].rows[0]
    assert row[7:] == ("75.0", "66.7", "83.3", "8192")
    assert shown(*[made for made in cells if made[0]["condition"]["length"] != 32768])[0].rows[0][6:] == (
        "76.0", "", "", "8192",
    )  # fmt: skip


def test_the_interval_of_the_mean_adds_up_in_squares():
    """13 tasks with Wilson's 29.9–70.1 around 50: ± 20.1 · √13 ÷ 13 = 5.6 points."""
    cell_text = shown(*[one(task, "none", 4096, 10) for task in TASKS])[0].rows[0][1]
    assert cell_text == "50.0 [44–56]"
    assert shown(*[one(task, "none", 4096, 2, of=4) for task in TASKS])[0].rows[0][1] == "50.0 [n too small]"


def test_prose_and_layout_are_never_mixed():
    cells = [one(task, "none", 4096, 20) for task in TASKS]
    cells += [one(task, "none", 4096, 10, corpus="python-docs") for task in PROSE]
    nvidia = [one(task, "none", 4096, 0, params={"layout": "nvidia"}) for task in TASKS]
    for record, rows in nvidia:
        record["cell_id"] += " nvidia"
        for row in rows:
            row["cell_id"] = record["cell_id"]
    tables = shown(*cells, *nvidia)
    assert [(table.title.split(" · ")[1], table.rows[0][1].partition(" [")[0]) for table in tables] == [
        ("ruler[essays]", "100.0"),
        ("ruler[python-docs]", f"{100 * (8 + 2.5) / 13:.1f}"),
        ("ruler:nvidia[essays]", "0.0"),
    ]


def test_a_task_run_in_two_settings_is_left_out_and_named():
    cells = [one(task, "none", 4096, 20) for task in TASKS]
    again = one("vt", "none", 4096, 0, version=2)
    again[0]["cell_id"] += " version 2"
    (table,) = shown(*cells, again)
    assert table.rows[0][1] == "(12 of 13)"
    assert table.notes[-1].endswith("it is not known which to average: ruler/vt")


def test_one_task_alone_is_no_family():
    assert shown(one("vt", "none", 4096, 20), one("vt", "yarn", 4096, 20)) == []


def test_the_family_stands_for_its_tasks_in_the_summary(tmp_path):
    """yarn beats none by 15 of 20 in 12 tasks and by nothing in one: worse in 12 of 13."""
    cells = [one(task, "none", 4096, 5) for task in TASKS]
    cells += [one(task, "yarn", 4096, 5 if task == "vt" else 20) for task in TASKS]
    alone = cell("copying", "none", 4096, {"exact_match": share(5, 20)})
    records, samples = stored(*cells, alone)
    found = blocks(cell_rows(records, samples))
    assert in_short(found, samples, by_cell(records)).rows[0] == (
        "ruler[essays]: mean of 13 tasks",
        "4096 (2×)",
        "yarn×2 (94.2 %)",
        "none (25.0 %; worse in 12)",
        "tested in each of 13 tasks (paired, 5 % level, corrected for 13 comparisons)",
    )
    assert [block.first["task_name"] for block in outside(found)] == ["copying"]
    planned = figures.plan(found, samples, by_cell(records))
    kinds = [one.kind for one in planned]
    assert sorted(kinds) == ["frequencies", "ruler", "value"]
    assert [path.suffix for path in figures.draw(planned[kinds.index("ruler")], samples, tmp_path)] == [".png", ".svg"]


def test_half_a_family_stands_for_nothing():
    records, samples = stored(*[one(task, method, 4096, 5) for task in TASKS[:6] for method in ("none", "yarn")])
    found = blocks(cell_rows(records, samples))
    assert len(outside(found)) == 6
    assert family_tables(found, samples) == []  # all of it would be blank
    assert len(in_short(found, samples, by_cell(records)).rows) == 6


@pytest.mark.parametrize(
    "scores, said",
    [
        ({4096: 0.9, 8192: 0.856, 16384: 0.855}, "8192"),
        ({4096: 0.9, 8192: 0.86}, "≥ 8192"),
        ({4096: 0.85, 8192: 0.2}, "< 4096"),
    ],
)
def test_effective_length_is_the_longest_at_the_threshold(scores, said):
    """85.6 % counts, as in RULER; beyond the longest length measured nothing is known."""
    assert effective_length(scores) == said


def test_a_figure_of_two_tasks_is_as_wide_as_they_are(tmp_path):
    """Two plots and the legend, not an empty row of five."""
    wide = {}
    for number in (2, 6):
        tasks = [one(task, method, 4096, 5) for task in TASKS[:number] for method in ("none", "yarn")]
        (family,) = families(blocks(cell_rows(*stored(*tasks))))
        picture = ruler_by_task(family, tmp_path / str(number))[0].read_bytes()
        wide[number] = int.from_bytes(picture[16:20], "big")  # where a PNG says how many pixels it is wide
    assert wide[2] < 0.7 * wide[6]

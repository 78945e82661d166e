"""The composite: centred at chance, over the same cells only, ranks with ties."""

from __future__ import annotations

import pytest

from report_records import cell, share, stored
from ropebench.report.cells import blocks, cell_rows
from ropebench.report.composite import composite, composite_table


def choice(chance):
    return [{"name": "score", "direction": "higher", "low": 0.0, "high": 1.0, "chance": chance, "derived": None}]


def measured(of=40, chances=(0.0, 0.5), **right):
    """Two tasks at one length, right answers by method and task; None: not run."""
    made = [cell(f"task{k}", method, 1024, {"score": share(count, of)}, metrics=choice(chances[k]))
            for method, counts in right.items() for k, count in enumerate(counts) if count is not None]  # fmt: skip
    records, samples = stored(*made)
    return blocks(cell_rows(records, samples)), samples


def test_scores_count_from_chance():
    """20 of 40 is 50 % of a task without chance, and nothing where a coin does as well: (0.5 + 0) ÷ 2."""
    found = composite(*measured(none=[20, 20], yarn=[40, 40]))
    assert found.value["none"].value == pytest.approx(0.25)
    assert found.value["yarn×2"].value == pytest.approx(1.0)
    assert found.rank == {"yarn×2": 1, "none": 2}
    assert found.against["none"].value == pytest.approx(-0.75)
    assert found.against["none"].decided


def test_the_interval_is_that_of_independent_tasks():
    """Each task a share of 1/2 of 40 and two made-up samples half a point off: its mean has variance 10.5 ÷ 42²; the
    second counts double; squares add up."""
    found = composite(*measured(none=[20, 20], yarn=[20, 20]))
    assert found.value["none"].stderr == pytest.approx(((1 + 4) * 10.5) ** 0.5 / 42 / 2)


def test_ten_right_answers_of_ten_are_no_certainty():
    value = composite(*measured(10, none=[10, 10], yarn=[10, 10])).value["none"]
    assert value.low < 0.9
    assert value.value == 1.0


def test_methods_that_samples_do_not_tell_apart_share_a_rank():
    found = composite(*measured(none=[30, 30], yarn=[31, 30], pi=[5, 22]))
    assert found.rank == {"yarn×2": 1, "none": 1, "pi×2": 3}
    table = composite_table(*measured(none=[30, 30], yarn=[31, 30], pi=[5, 22]))
    assert [row[2] for row in table.rows] == ["1=", "1=", "3"]


def test_a_method_with_a_missing_cell_is_named_and_not_averaged():
    table = composite_table(*measured(none=[30, 30], yarn=[31, 30], pi=[40, None]))
    assert table.rows[-1] == ("pi×2", "(1 of 2 cells)", "", "")
    assert "a method without all cells has no composite" in table.notes


def test_tasks_with_too_few_samples_are_left_out_by_name():
    few = [cell("task2", method, 1024, {"score": share(1, 4)}, metrics=choice(0.0)) for method in ("none", "yarn")]
    found, samples = measured(none=[30, 30], yarn=[31, 30])
    records, more = stored(*few)
    found, samples = [*found, *blocks(cell_rows(records, more))], samples | more
    assert composite(found, samples).tasks == ("task0", "task1")
    assert "left out, uninformative or too few samples: task2" in composite_table(found, samples).notes
    assert composite(*measured(4, none=[1, 2], yarn=[4, 4])) is None


def test_one_task_is_no_composite():
    assert composite(*measured(none=[30], yarn=[20])) is None

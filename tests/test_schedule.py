"""Which worker gets which cells: longest first, lengths of a pass together, a dead worker's again; no ray, no model."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from fakes import Coins, Pages, cell
from ropebench.methods import PositionInterpolation
from ropebench.schedule import RETRIES, Schedule, Unit, lower_bound, makespan, units

ROOT = Path(__file__).parents[1]


def test_lengths_that_share_a_pass_stay_together_and_others_are_free() -> None:
    plain = [cell(task, length=length) for task in (Pages(), Coins()) for length in (64, 32)]
    scaled = [dataclasses.replace(one, method=PositionInterpolation(), factor=4.0) for one in plain]
    cells = [*plain, *scaled]
    weights = {one.id: float(one.length) for one in cells}
    found = units(cells, weights, lambda one: isinstance(one.task, Coins))
    assert [unit.cells for unit in found] == [
        (plain[0].id, plain[1].id), (plain[2].id,), (plain[3].id,),
        (scaled[0].id, scaled[1].id), (scaled[2].id,), (scaled[3].id,),
    ]  # fmt: skip
    assert [unit.cost for unit in found] == [96, 64, 32, 96, 64, 32]


def test_the_longest_goes_first_and_each_once() -> None:
    schedule = Schedule([Unit(("b",), 2), Unit(("c",), 1), Unit(("a",), 3)])
    assert [schedule.take(worker).cells for worker in (1, 2)] == [("a",), ("b",)]
    schedule.finished(1)
    assert schedule.take(1).cells == ("c",)
    assert schedule.take(3) is None
    assert not schedule.over
    schedule.finished(1)
    schedule.finished(2)
    assert schedule.over


def test_a_dead_workers_cells_come_again_before_all_others_and_are_then_given_up() -> None:
    """First together, then one by one, so that the cell that kills workers does not take the others with it."""
    schedule = Schedule([Unit(("a", "b", "done"), 3), Unit(("c",), 9)])
    assert schedule.take(0).cells == ("c",)
    assert schedule.take(1).cells == ("a", "b", "done")
    assert schedule.died(1, ("a", "b")) == ()
    assert schedule.take(2) == Unit(("a", "b"), 3, 1)
    assert schedule.died(2, ("a", "b")) == ()
    assert schedule.take(3) == Unit(("a",), 3, 2)
    assert schedule.take(4) == Unit(("b",), 3, 2)
    assert schedule.died(3, ("a",)) == ("a",)
    schedule.finished(4)
    assert schedule.died(99, ("x",)) == ()  # it had nothing
    schedule.finished(0)
    assert schedule.over
    assert RETRIES == 2


def test_a_worker_that_died_when_all_its_cells_were_recorded_leaves_nothing() -> None:
    schedule = Schedule([Unit(("a",), 1)])
    schedule.take(0)
    assert schedule.died(0, ()) == ()
    assert schedule.over


@pytest.mark.parametrize(
    "costs, workers, span, bound",
    [
        ([5], 3, 5, 5),
        ([3, 3, 2, 2, 2], 2, 7, 6),  # the known worst case of this rule: 7/6
        ([1] * 10, 4, 3, 2.5),
        ([], 2, 0, 0),
        ([4, 4, 4], 2, 8, 8),  # two of three must share a worker
    ],
)
def test_spans_that_were_worked_out_by_hand(costs: list[float], workers: int, span: float, bound: float) -> None:
    assert makespan(costs, workers) == span
    assert lower_bound(costs, workers) == bound


def test_what_is_planned_by_an_estimate_takes_as_long_as_it_takes() -> None:
    assert makespan([1, 2, 3], 1, planned=[3, 2, 1]) == 6
    assert makespan([1, 1, 4], 2, planned=[9, 8, 1]) == 5  # the long one was thought short, and came last


def test_sixty_four_workers_on_recorded_costs_are_near_the_lower_bound() -> None:
    """All measured cells of results/, as a comparison of ten models would have them."""
    costs = [
        record["cost"]["seconds"]
        for file in sorted((ROOT / "results").glob("*Z-*.jsonl"))
        if not file.name.endswith(".samples.jsonl")
        for record in map(json.loads, file.read_text().splitlines())
        if record["kind"] == "run" and record["cost"]["seconds"]
    ]
    assert len(costs) >= 100
    for times in (1, 3, 10, 30):
        assert makespan(costs * times, 64) <= 1.1 * lower_bound(costs * times, 64)

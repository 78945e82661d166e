"""Samples of two measurements of one cell never meet in one record, and a record's cost says what it covers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import Coins, FakeEngine, Few, Letters, Pages, cell, loaded, writer
from ropebench.record import SCHEMA, canonical
from ropebench.run import Stored, run_cells
from ropebench.store import newest_ok, read, samples

Json = dict[str, Any]


class Other(FakeEngine):
    """Another machine, or another version: every answer and every likelihood comes out differently."""

    def nll(self, ids: Sequence[int], *rest: Any) -> Any:
        return np.asarray(super().nll(ids, *rest)) + np.float32(1.0)

    def generate(self, ids: Sequence[int], *rest: Any) -> tuple[str, tuple[int, ...]]:
        text, _ = super().generate(ids, *rest)
        return str(1 - int(text)), (1 - int(text),)


def run(folder: Path, cells: Sequence[Any], engine: FakeEngine | None = None, rerun: bool = False) -> None:
    stored = Stored() if rerun else Stored.read(folder)
    pending = [one for one in cells if not stored.done(one)]
    run_cells(pending, loaded(), stored, writer(folder), engine=engine or FakeEngine())


def cut(folder: Path, cells: Sequence[Any], at: int, kind: type[FakeEngine] = FakeEngine, **how: Any) -> None:
    """A run that is interrupted before its pass number `at`."""

    def stop(call: int) -> None:
        if call == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(folder, cells, kind(stop), **how)


def scores(folder: Path, one: Any) -> list[float]:
    return [next(iter(row["scores"].values())) for row in samples(folder, one.id)]


def record(folder: Path) -> Json:
    (only,) = newest_ok(read(folder))
    return only


@pytest.mark.parametrize("task", [Coins(), Pages()], ids=["text", "likelihood"])
def test_a_rerun_that_is_cut_off_leaves_the_old_scores_alone(tmp_path: Path, task: Any) -> None:
    one = cell(task, n=6)
    run(tmp_path, [one])
    before, old = record(tmp_path), scores(tmp_path, one)
    cut(tmp_path, [one], at=3, kind=Other, rerun=True)
    assert scores(tmp_path, one) == old
    assert record(tmp_path) == before
    assert len([line for file in tmp_path.glob("*.samples.jsonl") for line in file.read_text().splitlines()]) == 9
    run(tmp_path, [one])  # the cell is done: nothing is measured, nothing is mixed
    assert record(tmp_path) == before


def test_more_samples_go_on_with_the_counting_ones_not_with_those_of_a_rerun(tmp_path: Path) -> None:
    one, more = cell(Coins(), n=4), cell(Coins(), n=8)
    run(tmp_path / "whole", [more])
    run(tmp_path / "cut", [one])
    cut(tmp_path / "cut", [more], at=6, kind=Other, rerun=True)  # has measured more samples than are stored
    run(tmp_path / "cut", [more])
    assert scores(tmp_path / "cut", more) == scores(tmp_path / "whole", more)
    assert record(tmp_path / "cut")["series"] == read(tmp_path / "cut")[0]["run_id"]


def test_a_rerun_that_finishes_counts_whole(tmp_path: Path) -> None:
    one = cell(Coins(), n=4)
    run(tmp_path, [one])
    old = scores(tmp_path, one)
    run(tmp_path, [one], Other(), rerun=True)
    assert scores(tmp_path, one) == [1 - score for score in old]
    assert record(tmp_path)["outcome"]["metrics"]["right"]["value"] == 1 - sum(old) / 4
    more = cell(Coins(), n=6)
    run(tmp_path, [more], Other())
    assert len({row["series"] for row in samples(tmp_path)}) == 1


def test_a_rerun_with_fewer_samples_does_not_lend_its_scores_to_the_larger_record(tmp_path: Path) -> None:
    run(tmp_path, [cell(Coins(), n=6)])
    old = scores(tmp_path, cell(Coins()))
    run(tmp_path, [cell(Coins(), n=3)], Other(), rerun=True)
    assert record(tmp_path)["condition"]["n_scored"] == 6
    assert scores(tmp_path, cell(Coins())) == old


def test_a_rerun_of_what_has_no_record_yet_starts_anew(tmp_path: Path) -> None:
    one = cell(Coins(), n=6)
    cut(tmp_path / "cut", [one], at=4)
    cut(tmp_path / "cut", [one], at=2, kind=Other, rerun=True)
    run(tmp_path / "cut", [one], Other())
    run(tmp_path / "whole", [one], Other())
    assert scores(tmp_path / "cut", one) == scores(tmp_path / "whole", one)
    assert record(tmp_path / "cut")["outcome"] == record(tmp_path / "whole")["outcome"]


def test_a_failed_rerun_hides_nothing_and_lends_nothing(tmp_path: Path) -> None:
    one = cell(Coins(), n=4)
    run(tmp_path, [one])
    before, old = record(tmp_path), scores(tmp_path, one)

    def fail(call: int) -> None:
        if call == 2:
            raise RuntimeError("no luck")

    run(tmp_path, [one], Other(fail), rerun=True)
    assert [r["outcome"]["status"] for r in read(tmp_path)] == ["ok", "error"]
    assert (record(tmp_path), scores(tmp_path, one)) == (before, old)


def test_rows_of_schema_1_are_one_series_that_goes_on(tmp_path: Path) -> None:
    one, more = cell(Coins(), n=4), cell(Coins(), n=6)
    run(tmp_path / "new", [one])
    old_record, old_rows = read(tmp_path / "new"), samples(tmp_path / "new")
    to = writer(tmp_path / "old", "20000101T000000Z-000000")
    for line in (*old_record, *old_rows):
        line = {k: v for k, v in line.items() if k != "series"} | {"schema": 1, "run_id": to.run_id}
        if line["kind"] == "sample":
            del line["cost"]
            to.sample(line)
        else:
            to.record(line)
    assert Stored.read(tmp_path / "old").done(one)
    run(tmp_path / "old", [more])
    run(tmp_path / "new", [more])
    assert scores(tmp_path / "old", more) == scores(tmp_path / "new", more)
    assert {row["series"] for row in samples(tmp_path / "old")} == {None}
    cost = record(tmp_path / "old")["cost"]
    assert (cost["tokens"], cost["runs"], cost["partial"]) == (2 * 32, 2, True)  # older samples do not tell theirs


def test_the_cost_of_a_cell_that_was_gone_on_with_covers_all_its_runs(tmp_path: Path) -> None:
    one = cell(Coins(), n=6)
    cut(tmp_path / "cut", [one], at=2)
    cut(tmp_path / "cut", [one], at=3)
    run(tmp_path / "cut", [one])
    run(tmp_path / "whole", [one])
    cost, whole = record(tmp_path / "cut")["cost"], record(tmp_path / "whole")["cost"]
    assert cost["tokens"] == whole["tokens"] == 6 * 32
    assert (cost["runs"], cost["partial"]) == (3, False)
    assert (whole["runs"], whole["partial"]) == (1, False)
    assert cost["seconds"] > sum(row["cost"]["seconds"] for row in samples(tmp_path / "cut")) > 0
    assert cost["tokens_per_second"] == cost["tokens"] / cost["seconds"]


def test_a_skipped_sample_costs_nothing_and_is_known_to(tmp_path: Path) -> None:
    cut(tmp_path, [cell(Few(), n=3)], at=1)  # after the skipped one
    run(tmp_path, [cell(Few(), n=3)])
    assert [row["cost"]["tokens"] for row in samples(tmp_path)] == [32, 0, 32]
    assert record(tmp_path)["cost"]["partial"] is False


@pytest.mark.parametrize("tokenizer, bos, first, used", [
    (Letters(bos=0), "auto", 2 + ord("t"), False), (Letters(bos=0), "always", 0, True),
    (Letters(bos=0, adds_bos=True), "auto", 0, True), (Letters(bos=0, adds_bos=True), "never", 2 + ord("t"), False),
    (Letters(bos=None), "auto", 2 + ord("t"), False),
])  # fmt: skip
def test_the_record_says_which_id_came_first(tmp_path: Path, tokenizer: Any, bos: str, first: int, used: bool) -> None:
    run_cells([cell(Said(), bos=bos)], loaded(tokenizer), Stored(), writer(tmp_path), engine=FakeEngine())
    condition = record(tmp_path)["condition"]
    assert (condition["first_id"], condition["bos_used"]) == (first, used)


def test_a_bos_that_the_chat_template_brings_is_seen(tmp_path: Path) -> None:
    # The template begins with the BOS token itself, whatever the tokenizer adds: SmolLM2's does.
    tokenizer = Templated(bos=0)
    run_cells([cell(Said(), chat=True)], loaded(tokenizer), Stored(), writer(tmp_path), engine=FakeEngine())
    condition = record(tmp_path)["condition"]
    assert (condition["first_id"], condition["bos_used"]) == (0, True)


def test_a_cell_that_fed_nothing_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: Any) -> Any:
        raise RuntimeError("no samples today")

    monkeypatch.setattr(Coins, "examples", nothing)
    run(tmp_path, [cell(Coins())])
    made = read(tmp_path)[0]
    assert (made["condition"]["first_id"], made["condition"]["bos_used"]) == (None, None)
    assert (made["cost"]["tokens"], made["cost"]["runs"], made["schema"]) == (0, 0, SCHEMA)
    assert canonical(made)


class Said(Coins):
    """As Coins, with prompts that the encoder makes."""

    name = "said"

    def examples(self, length: int, encoder: Any, seed: int, corpus: Any = None) -> Any:
        from ropebench.task import Example

        for i in range(99):
            yield Example(encoder.prompt(f"toss {i}: "), ("0",), 1, meta={"cluster": str(i)})


class Templated(Letters):
    """Letters with a chat template that opens with the BOS token, written `^`."""

    chat_template = "a template"

    def __call__(self, text: str, add_special_tokens: bool = True, **_: Any) -> dict[str, list[int]]:
        ids = [0 if letter == "^" else 2 + ord(letter) for letter in text]
        return {"input_ids": ids}

    def apply_chat_template(self, turns: list[dict[str, str]], **_: Any) -> str:
        return f"^user: {turns[0]['content']} assistant: "

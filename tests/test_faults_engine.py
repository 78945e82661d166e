"""Faults of earlier tools (10: the machinery), end to end on a tiny real model: from a sweep to records."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fakes import save_tiny
from ropebench.engine import Engine
from ropebench.model import load, load_tokenizer
from ropebench.plan import Sweep, make_plan
from ropebench.registry import Registry
from ropebench.run import Stored, encoder_of, preflight, run_cells
from ropebench.store import Writer, newest_ok, read, samples

WORDS = "the a of module class name value object returns is sets with for when list function type each one".split()


class Counting(Engine):
    """The engine itself, with a note of what it was fed."""

    fed: list[tuple[str, int]] = []  # noqa: RUF012

    def nll(self, ids: Any, *how: Any) -> Any:
        self.fed.append(("nll", len(ids)))
        return super().nll(ids, *how)

    def generate(self, ids: Any, *how: Any) -> Any:
        self.fed.append(("text", len(ids)))
        return super().generate(ids, *how)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A model trained on 64 tokens; texts of its tokenizer's words; lengths to 4 and 8 times the window."""
    home = tmp_path_factory.mktemp("faults")
    (home / "texts").mkdir()
    for i in range(2):
        words = (WORDS[(i + j * j) % len(WORDS)] for j in range(2000))
        (home / "texts" / f"{i}.txt").write_text(" ".join(words).replace(" the ", ". The ") + "\n")
    return Sweep(
        model=str(save_tiny(home / "tiny", "bpe-bos")), tasks=("proofpile", "niah:depths=3"), n=2, device="cpu",
        dtype="float32", docs=str(home / "texts"), lengths={"proofpile": "256,128,64", "niah": "512"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def tiny(sweep: Sweep) -> Any:
    return load(make_plan(dataclasses.replace(sweep, lengths="512")).cells[0].card, "cpu", "float32")


def run(folder: Path, sweep: Sweep, tiny: Any, **changes: Any) -> list[tuple[str, int]]:
    """One `ropebench run`; returns what the engine was fed."""
    plan = make_plan(dataclasses.replace(sweep, **changes))
    stored = Stored.read(folder)
    pending = [one for one in plan.cells if not stored.done(one)]
    preflight(pending, load_tokenizer(plan.cells[0].card))
    Counting.fed = []
    records = run_cells(pending, tiny, stored, Writer(folder), engine=Counting)
    assert [record["outcome"]["error"] for record in records] == [None] * len(pending)
    return Counting.fed


def test_fault_45_no_method_is_served_the_results_of_another(tmp_path: Path, sweep: Sweep, tiny: Any) -> None:
    # Same model, same prompts, method none and then YaRN, one results folder.
    none = run(tmp_path, sweep, tiny, methods=("none",))
    assert [kind for kind, _ in none] == ["nll", "nll", "text", "text"]  # 128 and 64 are read off the passes of 256
    assert run(tmp_path, sweep, tiny, methods=("yarn",), baseline=False) == none
    records = {(r["method"]["name"], r["task"]["name"], r["condition"]["length"]): r for r in newest_ok(read(tmp_path))}
    for length in (256, 128, 64):
        plain, scaled = (records[name, "proofpile", length] for name in ("none", "yarn"))
        assert plain["task"]["samples_sha256"] == scaled["task"]["samples_sha256"]  # the prompts never change
        assert plain["outcome"]["metrics"]["nll"]["value"] != scaled["outcome"]["metrics"]["nll"]["value"]
        assert plain["method"]["inv_freq"] != scaled["method"]["inv_freq"]
    assert run(tmp_path, sweep, tiny, methods=("none", "yarn")) == []


def test_fault_47_prompts_beyond_the_trained_window_are_fed_whole(tmp_path: Path, sweep: Sweep, tiny: Any) -> None:
    fed = run(tmp_path, sweep, tiny, methods=("yarn",), tasks=("proofpile",), baseline=False)
    assert tiny.model.config.max_position_embeddings == 64
    assert fed == [("nll", 256)] * 2
    for record in read(tmp_path):
        condition = record["condition"]
        assert condition["tokens_min"] == condition["tokens_max"] == condition["length"]


def test_the_tables_set_are_the_tables_recorded_and_gone_afterwards(tmp_path: Path, sweep: Sweep, tiny: Any) -> None:
    from ropebench.apply import live

    before = live(tiny.model)
    run(tmp_path, sweep, tiny, methods=("yarn", "dynamic_ntk"), tasks=("proofpile",))
    assert live(tiny.model).same_as(before, rtol=0.0)
    registry, geometry = Registry.load(), tiny.card.geometry
    for record in read(tmp_path):
        method, _ = registry.build("method", record["method"]["name"])
        factor, length = record["method"]["factor"] or 1.0, record["condition"]["length"]
        expected = method.frequencies(geometry, factor, length)
        assert record["method"]["inv_freq"] == pytest.approx(expected.inv_freq.tolist(), rel=1e-6)
        assert record["method"]["attention_factor"] == expected.attention_factor


def test_a_length_dependent_method_has_the_number_of_a_run_at_that_length_alone(
    tmp_path: Path, sweep: Sweep, tiny: Any
) -> None:
    tasks = ("proofpile:min_doc_tokens=256",)
    asked = {"methods": ("dynamic_ntk",), "tasks": tasks, "baseline": False, "target": 256}
    assert run(tmp_path / "all", sweep, tiny, **asked) == [("nll", n) for n in (256, 256, 128, 128, 64, 64)]
    for length in ("256", "128", "64"):
        run(tmp_path / "alone", sweep, tiny, lengths=length, **asked)

    def values(name: str) -> dict[str, float]:
        return {r["cell_id"]: r["outcome"]["metrics"]["nll"]["value"] for r in read(tmp_path / name)}

    assert values("all") == pytest.approx(values("alone"), abs=1e-6)


@pytest.mark.parametrize("task", ["niah", "niah:variant=passkey", "niah:variant=sentence"])
def test_fault_44_no_prompt_holds_a_backslash_n_and_stops_are_real_newlines(sweep: Sweep, task: str) -> None:
    one = make_plan(dataclasses.replace(sweep, tasks=(task,), lengths="1k")).cells[0]
    encoder = encoder_of(one, load_tokenizer(one.card))
    example = next(iter(one.task.examples(one.length, encoder, 0, one.corpus)))
    text = encoder.decode(example.ids)
    assert "\\n" not in text
    assert not any("\\" in stop for stop in example.stop)


def test_fault_44_two_runs_give_identical_rows(tmp_path: Path, sweep: Sweep, tiny: Any) -> None:
    def rows(name: str) -> list[dict[str, Any]]:
        run(tmp_path / name, sweep, tiny, methods=("yarn",))
        own = ("run_id", "series", "cost")
        return [{k: v for k, v in row.items() if k not in own} for row in samples(tmp_path / name)]

    assert rows("one") == rows("two")


def test_faults_24_and_35_one_bos_at_index_0_whatever_the_task(sweep: Sweep) -> None:
    for chat in ("on", "off"):
        plan = make_plan(dataclasses.replace(sweep, chat_template=chat, methods=()))
        for one in plan.cells:
            encoder = encoder_of(one, load_tokenizer(one.card))
            example = next(iter(one.task.examples(one.length, encoder, 0, one.corpus)))
            for ids in (example.ids, *(window.ids for window in example.windows)):
                if ids:
                    assert (ids[0], ids.count(encoder.bos_id)) == (encoder.bos_id, 1)

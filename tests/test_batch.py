"""A sample's numbers do not depend on what else is in its batch, nor on what memory allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import Coins, FakeEngine, Pages, cell, ids, loaded, tiny, tokenizer, writer
from ropebench.answers import Asked
from ropebench.apply import applied
from ropebench.engine import Engine
from ropebench.geometry import geometry_of
from ropebench.methods import DynamicNtk
from ropebench.passes import Passes, batches
from ropebench.prefixes import Prefixes
from ropebench.prompt import Encoder
from ropebench.registry import Registry
from ropebench.run import run_cells
from ropebench.store import Stored, read, samples
from ropebench.task import Example, Window

METHODS = [entry.name for entry in Registry.load().of("method") if not entry.cls.length_dependent]
KINDS = ["qwen2", "qwen3", "phi", "phi3", "gpt_neox", "olmo2", "cohere", "granite", "stablelm", "qwen3_moe"]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(tokenizer("bpe"))


@pytest.fixture(scope="module")
def llama() -> Any:
    return tiny("llama")


def fresh(model: Any, encoder: Encoder) -> Engine:
    engine = Engine(model, encoder)
    engine.end_ids = frozenset()
    return engine


def together(engine: Engine, prompts: list[Asked]) -> list[Any]:
    return engine.finish([engine.begin(prompt) for prompt in prompts])


def prompts() -> list[Asked]:
    """Of several lengths and budgets, two of them with a beginning in common; one has no answer."""
    first = ids(90, 7)
    made = [first, [*first[:60], *ids(25, 8)], ids(90, 9), ids(40, 10), ids(90, 11)]
    return [Asked(tuple(own), budget) for own, budget in zip(made, (8, 3, 8, 6, 0), strict=True)]


@pytest.mark.parametrize("name", METHODS)
def test_answers_are_those_of_one_prompt_at_a_time(name: str, llama: Any, encoder: Encoder) -> None:
    # FAULT 04 and A3: an answer may not depend on what else is in its batch.
    method, _ = Registry.load().build("method", name)
    with applied(llama, method.frequencies(geometry_of(llama.config), 4.0, 256)):
        alone = [fresh(llama, encoder).generate(p.ids, p.budget, reuse=False) for p in prompts()]
        engine = fresh(llama, encoder)
        assert engine.batch(100) > 1
        assert together(engine, prompts()) == alone
        assert together(engine, prompts()[::-1]) == alone[::-1]
        assert together(engine, prompts()[2:4]) == alone[2:4]
    assert len({text for text, _ in alone}) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_answers_side_by_side_for_every_kind_of_model(kind: str, encoder: Encoder) -> None:
    model = tiny(kind)
    engine = fresh(model, encoder)
    assert engine.batch(100) > 1
    alone = [fresh(model, encoder).generate(p.ids, p.budget, reuse=False) for p in prompts()]
    assert together(engine, prompts()) == alone


@pytest.mark.parametrize("kind", ["mistral", "gemma2"])
def test_a_sliding_window_is_not_batched(kind: str, encoder: Encoder) -> None:
    model = tiny(kind, sliding_window=32, **({"attention": "eager"} if kind == "gemma2" else {}))
    assert fresh(model, encoder).batch(100) == 1


def test_a_row_ends_at_its_own_stop_or_end_id(llama: Any, encoder: Encoder) -> None:
    engine = fresh(llama, encoder)
    plain = [fresh(llama, encoder).generate(p.ids, 12, reuse=False)[1] for p in prompts()]
    engine.end_ids = frozenset({plain[0][2]})
    asked = [Asked(p.ids, 12, (encoder.decode([own[4]]),)) for p, own in zip(prompts(), plain, strict=True)]
    alone = [engine.generate(p.ids, 12, p.stop, reuse=False) for p in asked]
    assert together(engine, asked) == alone
    assert alone[0][1] == plain[0][: plain[0].index(plain[0][2])]
    assert len({len(new) for _, new in alone}) > 1


@pytest.mark.parametrize("name", METHODS)
def test_likelihood_of_texts_of_one_length(name: str, llama: Any, encoder: Encoder) -> None:
    method, _ = Registry.load().build("method", name)
    texts = [ids(130, seed) for seed in range(3)]
    with applied(llama, method.frequencies(geometry_of(llama.config), 4.0, 256)):
        engine = fresh(llama, encoder)
        engine.tokens = 100  # below the three texts' tokens: the MLPs see parts of them
        both = engine.nll_of_each(texts)
        for text, own in zip(texts, both, strict=True):
            np.testing.assert_allclose(own, fresh(llama, encoder).nll(text), atol=1e-5)
    with pytest.raises(ValueError, match="different lengths"):
        engine.nll_of_each([texts[0], texts[1][:50]])


def test_a_batch_of_samples_gives_the_outputs_of_single_ones(llama: Any, encoder: Encoder) -> None:
    prompt = tuple(ids(100, 3))
    examples = [
        Example(prompt, max_new_tokens=4, windows=(Window((*prompt, 5, 6), 100),)),
        Example(tuple(ids(80, 4)), max_new_tokens=4),
        Example(windows=(Window(tuple(ids(60, 5))),)),
        Example(windows=(Window(tuple(ids(60, 6)), 20),)),
        Example(windows=(Window(tuple(ids(50, 6))), Window(tuple(ids(50, 7)), 9))),
    ]

    def passes() -> Passes:
        return Passes(cell(Coins()), fresh(llama, encoder), Prefixes(), lambda _: None)

    for ours, example in zip(passes().outputs(examples), examples, strict=True):
        plain = passes().output(example)
        assert (ours.text, ours.ids) == (plain.text, plain.ids)
        assert len(ours.nll) == len(plain.nll)
        for own, other in zip(ours.nll, plain.nll, strict=True):
            np.testing.assert_allclose(own, other, atol=1e-5)


class Small(FakeEngine):
    """Has memory for `room` rows of any kind, and can be halved three times from 64 rows at once."""

    room, at_once, asked = 16, 64, 1

    def begin(self, asked: Any) -> Any:
        self.asked += 1
        return super().begin(asked)

    def finish(self, begun: Any) -> Any:
        if len(begun) > 2:
            raise MemoryError("no room for so many")
        return super().finish(begun)

    def _call(self, ids: Any) -> None:
        if self.at_once > self.room:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        super()._call(ids)

    def halve(self) -> bool:
        before, self.at_once = self.at_once, max(8, self.at_once // 2)
        return self.at_once < before

    @property
    def sizes(self) -> dict[str, int]:
        return {"chunk": self.at_once}


def rows(folder: Path) -> dict[int, Any]:
    return {row["index"]: (row["scores"], row["output"]) for row in samples(folder)}


def run(folder: Path, engine: Any, batch: int | str = 1, **changes: Any) -> Any:
    return run_cells([cell(Coins(), n=9, **changes)], loaded(), Stored(), writer(folder), engine=engine,
                     batch_size=batch)[0]  # fmt: skip


def test_where_memory_runs_out_less_goes_through_at_once(tmp_path: Path) -> None:
    plain = run(tmp_path / "plain", FakeEngine())
    halved = run(tmp_path / "halved", Small(), batch=8)
    assert halved["outcome"] == plain["outcome"]
    assert halved["cost"]["sizes"] == {"batch": 2, "chunk": 16}
    assert plain["cost"]["sizes"] == {"batch": 1}
    assert rows(tmp_path / "halved") == rows(tmp_path / "plain")
    assert len(list(samples(tmp_path / "halved"))) == 9  # each sample once


def test_memory_that_does_not_suffice_at_the_least_is_the_cells_outcome(tmp_path: Path) -> None:
    class Hopeless(Small):
        room = 1

    engine = Hopeless()
    record = run(tmp_path, engine, batch="auto")
    assert record["outcome"]["status"] == "out_of_memory"
    assert (engine.at_once, record["cost"]["sizes"]["chunk"]) == (8, 8)


def test_only_what_failed_is_run_again(tmp_path: Path) -> None:
    class Once(FakeEngine):
        halved = 0

        def halve(self) -> bool:
            self.halved += 1
            return self.halved < 4

    def at(call: int) -> None:
        if call == 5:
            raise MemoryError

    engine = Once(at)
    record = run(tmp_path, engine)
    assert (record["outcome"]["status"], engine.halved, engine.calls) == ("ok", 1, 10)


def test_the_engine_halves_down_to_a_least_and_its_numbers_stay(llama: Any, encoder: Encoder) -> None:
    engine = fresh(llama, encoder)
    before, answer = engine.nll(ids(200)), engine.generate(ids(200), 6)
    while engine.halve():
        pass
    assert engine.sizes == {"chunk": 16, "tokens": 64, "piece": 64}
    np.testing.assert_allclose(engine.nll(ids(200)), before, atol=1e-5)
    assert engine.generate(ids(200), 6) == answer


def test_a_length_dependent_method_is_never_batched(tmp_path: Path) -> None:
    # FAULT 04, A3
    class Noted(FakeEngine):
        def finish(self, begun: Any) -> Any:
            raise AssertionError("batched")

        nll_of_each = finish

    assert run(tmp_path, Noted(), "auto", method=DynamicNtk(), factor=2.0)["cost"]["sizes"] == {"batch": 1}
    assert run(tmp_path, Noted(), 4)["outcome"]["error"]["message"] == "batched"


def test_lengths_of_a_document_share_passes_in_a_batch_too(tmp_path: Path) -> None:
    engine = FakeEngine()
    cells = [cell(Pages(), length=length, n=5) for length in (64, 32)]
    records = run_cells(cells, loaded(), Stored(), writer(tmp_path), engine=engine, batch_size=2)
    assert [len(text) for text in engine.fed] == [64] * 5
    plain = run_cells(cells, loaded(), Stored(), writer(tmp_path / "plain"), engine=FakeEngine())
    assert [r["outcome"] for r in records] == [r["outcome"] for r in plain]
    assert {r["cell_id"] for r in records} == {r["cell_id"] for r in read(tmp_path / "plain")}


def test_what_came_before_an_example_that_cannot_be_made_is_still_given() -> None:
    def stream() -> Any:
        yield from enumerate([Example((1,)), Example((2,)), Example((3,))])
        raise ZeroDivisionError

    given = batches(stream(), lambda: 2)
    assert [len(next(given)), len(next(given))] == [2, 1]
    with pytest.raises(ZeroDivisionError):
        next(given)

"""`plan` says how many tokens `run` will feed; one pass serves every length of a document, however many there are."""

from __future__ import annotations

import dataclasses
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fakes import Coins, FakeEngine, Few, Letters, Pages, cell, loaded, writer
from ropebench.corpus import Corpus, Document
from ropebench.errors import UsageError
from ropebench.methods import DynamicNtk, Unscaled, Yarn
from ropebench.registry import Registry
from ropebench.run import Stored, run_cells
from ropebench.store import read
from ropebench.task import Example
from ropebench.tokens import feed_of

Proofpile = Registry.load().entry("task", "proofpile").cls


def corpus(documents: int = 80) -> Corpus:
    """Texts of 300 letters and more, no two alike."""
    texts = ["".join(Random(i).choices("abcdefghij ", k=300 + i)) for i in range(documents)]
    return Corpus("texts", "made up", lambda: iter([Document(f"{i}", text) for i, text in enumerate(texts)]))


def cells(task: Any, lengths: tuple[int, ...] = (256, 128, 64), **changes: Any) -> list[Any]:
    asked = {"corpus": corpus(), "n": 70, "chat": False, **changes}
    return [cell(task, length=length, **asked) for length in lengths]


def fed(folder: Path, planned: list[Any], tokenizer: Any, engine: FakeEngine | None = None) -> tuple[FakeEngine, int]:
    """What a run of the cells that are not done feeds, by its own count and by the engine's."""
    engine, stored = engine or FakeEngine(), Stored.read(folder)
    pending = [one for one in planned if not stored.done(one)]
    records = run_cells(pending, loaded(tokenizer), stored, writer(folder), engine=engine)
    assert {record["outcome"]["status"] for record in records} <= {"ok"}
    return engine, sum(len(ids) for ids in engine.fed)


def counted(folder: Path, planned: list[Any], tokenizer: Any) -> dict[str, tuple[int, bool]]:
    feeds = feed_of(planned, Stored.read(folder), tokenizer)
    return {own: (feed.tokens, feed.exact) for own, feed in feeds.items()}


TASKS = {
    "truncated": Proofpile(min_doc_tokens=256),
    "sliding": Proofpile(protocol="sliding", stride=16, min_doc_tokens=256),
    "sliding without an even end": Proofpile(protocol="sliding", stride=24, min_doc_tokens=270),
}


@pytest.mark.parametrize("n", [5, 70])
@pytest.mark.parametrize("tokenizer", [Letters(), Letters(adds_bos=True)], ids=["no BOS", "BOS"])
@pytest.mark.parametrize("method", [Yarn(), DynamicNtk()], ids=["static", "length-dependent"])
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_number_is_what_a_run_feeds(tmp_path: Path, task: Any, method: Any, tokenizer: Any, n: int) -> None:
    if n > 64 and tokenizer.adds_bos:
        n = 20  # each row is flushed to the disk, which takes its time
    planned = cells(task, (256, 128), method=method, n=n)
    said = counted(tmp_path, planned, tokenizer)
    _, total = fed(tmp_path, planned, tokenizer)
    costs = {record["cell_id"]: record["cost"]["tokens"] for record in read(tmp_path)}
    assert said == {own: (tokens, True) for own, tokens in costs.items()}
    assert sum(tokens for tokens, _ in said.values()) == total >= n * 256
    assert set(counted(tmp_path, planned, tokenizer).values()) == {(0, True)}  # and nothing is left


def test_one_pass_serves_every_length_of_every_document(tmp_path: Path) -> None:
    engine, _ = fed(tmp_path, cells(TASKS["truncated"], n=70), Letters())
    assert [len(ids) for ids in engine.fed] == [256] * 70  # more than 64, of which no shorter length runs anything


def test_no_more_than_one_documents_passes_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ropebench import run as module

    most = [0]

    class Watched(module.Prefixes):
        def add(self, ids: tuple[int, ...], nll: Any) -> None:
            super().add(ids, nll)
            most[0] = max(most[0], len(self._held))

    monkeypatch.setattr(module, "Prefixes", Watched)
    fed(tmp_path, cells(TASKS["truncated"], n=70), Letters())
    assert most == [1]


@pytest.mark.parametrize("at", [1, 7, 40, 300])
def test_what_an_interrupted_run_left_is_counted(tmp_path: Path, at: int) -> None:
    planned = [*cells(TASKS["sliding"], n=20), *cells(TASKS["sliding"], n=20, method=Yarn(), factor=2.0)]

    def stop(call: int) -> None:
        if call == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fed(tmp_path, planned, Letters(), FakeEngine(stop))
    said = counted(tmp_path, planned, Letters())
    _, total = fed(tmp_path, planned, Letters())
    assert sum(tokens for tokens, _ in said.values()) == total


def test_samples_that_only_one_length_lacks_are_counted(tmp_path: Path) -> None:
    long, middle, short = cells(TASKS["truncated"], n=10)
    fed(tmp_path, [long], Letters())  # is done, so its passes serve nobody later
    said = counted(tmp_path, [long, middle, short], Letters())
    assert said == {long.id: (0, True), middle.id: (10 * 128, True), short.id: (0, True)}
    assert fed(tmp_path, [long, middle, short], Letters())[1] == 10 * 128


def test_a_source_with_fewer_documents_than_asked(tmp_path: Path) -> None:
    planned = cells(TASKS["truncated"], n=1000)
    said = counted(tmp_path, planned, Letters())
    assert sum(tokens for tokens, _ in said.values()) == 80 * 256 == fed(tmp_path, planned, Letters())[1]


def test_generation_is_a_bound_and_says_so(tmp_path: Path) -> None:
    for number, task in enumerate((Coins(), Pages(text=True), Few())):
        planned = [cell(task, length=length, n=3) for length in (48, 32)]
        said = counted(tmp_path / str(number), planned, Letters())
        total = sum(tokens for tokens, _ in said.values())
        assert {exact for _, exact in said.values()} == {False}
        spent = fed(tmp_path / str(number), planned, Letters())[1]
        assert spent <= total <= 2 * spent
    both = [cell(Pages(text=True), n=3)]
    assert counted(tmp_path / "none", both, Letters())[both[0].id][0] == 3 * (32 + 32)  # window, and prompt with answer


def test_samples_that_do_not_fit_hide_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Coins.examples

    def from_40_on(self: Coins, length: int, *rest: Any) -> Any:
        return plain(self, length, *rest) if length >= 40 else iter([Example(skip="too short")] * 9)

    monkeypatch.setattr(Coins, "examples", from_40_on)
    short, long = cell(Coins(), length=32, n=3), cell(Coins(), length=48, n=3)
    assert counted(tmp_path, [long, short], Letters())[long.id] == (3 * 48, False)
    assert counted(tmp_path, [short], Letters())[short.id] == (3 * 32, False)  # a bound all the same


def test_a_sample_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no document of texts has 4096 tokens"):
        counted(tmp_path, cells(Proofpile(min_doc_tokens=4096)), Letters())
    broken = dataclasses.replace(corpus(), read=lambda: iter([Document("odd", None)]))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"task proofpile\[texts\]: a sample at length 64 cannot be made \(Attribute"):
        counted(tmp_path, cells(TASKS["truncated"], corpus=broken), Letters())


def test_each_document_is_made_once_per_length_whatever_the_number_of_methods(tmp_path: Path) -> None:
    made = []

    def documents() -> Any:
        for document in islice(corpus().read(), 10):
            made.append(document.name)
            yield document

    texts = dataclasses.replace(corpus(), read=documents)
    planned = [
        one
        for method in (Unscaled(), Yarn(), Yarn(beta_fast=16.0))
        for one in cells(TASKS["truncated"], method=method, corpus=texts, n=10)
    ]
    counted(tmp_path, planned, Letters())
    assert len(made) == 3 * 10 + 1  # and a first look at the shortest

"""Runs that go on where they stopped: torch-free, with a fake engine that answers from the ids alone."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import Coins, FakeEngine, Few, Letters, Pages, cell, loaded, writer
from ropebench.errors import UsageError
from ropebench.memory import PeakMemory, is_out_of_memory
from ropebench.methods import DynamicNtk, PositionInterpolation, Unscaled, Yarn
from ropebench.outcome import failure, metrics_of, prompt_sha256, sample_row
from ropebench.prefixes import Prefixes
from ropebench.run import Progress, Stored, preflight, run_cells
from ropebench.store import NotStored, newest_ok, read, samples
from ropebench.task import Example, Metric, Output, Window

Json = dict[str, Any]


def run(folder: Path, cells: Sequence[Any], engine: FakeEngine | None = None, **how: Any) -> FakeEngine:
    """One `ropebench run` on a results folder: only what is not done; returns the engine with what it was fed."""
    engine = engine or FakeEngine()
    stored = Stored.read(folder)
    pending = [one for one in cells if not stored.done(one)]
    run_cells(pending, loaded(), stored, writer(folder), engine=engine, **how)
    return engine


def tables(folder: Path) -> list[Any]:
    """All that a report is made from, less what differs from run to run."""
    records = [
        {k: v for k, v in record.items() if k in ("cell_id", "model", "method", "task", "condition", "outcome")}
        for record in newest_ok(read(folder))
    ]
    rows = [{k: v for k, v in row.items() if k not in ("run_id", "series", "cost")} for row in samples(folder)]
    return [sorted(records, key=lambda record: str(record["cell_id"])), rows]


def plan(n: int = 6) -> list[Any]:
    pages = [cell(Pages(), length=length, n=n) for length in (128, 64, 32)]
    return [cell(Coins(), n=n), *pages, cell(Pages(text=True), n=n), cell(Coins(), length=48, n=n)]


def test_an_undisturbed_run(tmp_path: Path) -> None:
    cells = plan()
    run(tmp_path, cells)
    records = read(tmp_path)
    assert [record["cell_id"] for record in records] == [one.id for one in cells]
    assert {record["outcome"]["status"] for record in records} == {"ok"}
    first = records[0]
    scores = [row["scores"]["right"] for row in samples(tmp_path, cells[0].id)]
    assert first["outcome"]["metrics"]["right"]["value"] == sum(scores) / 6
    assert 0 < sum(scores) < 6  # or nothing below would show
    assert first["condition"]["n_scored"] == first["condition"]["n_requested"] == 6
    assert first["condition"]["tokens_min"] == first["condition"]["tokens_max"] == 32
    assert first["method"]["inv_freq"] == list(Unscaled().frequencies(cells[0].geometry, 1.0, 32).inv_freq)
    assert first["method"]["attention_factor"] == 1.0


def test_a_second_run_does_nothing(tmp_path: Path) -> None:
    run(tmp_path, plan())
    before = tables(tmp_path)
    assert run(tmp_path, plan()).fed == []
    assert tables(tmp_path) == before
    assert len(read(tmp_path)) == len(plan())


def test_only_what_is_missing_is_run(tmp_path: Path) -> None:
    cells = plan()
    run(tmp_path, cells[1:])
    assert len(run(tmp_path, cells).fed) == 6
    assert {record["cell_id"] for record in read(tmp_path)} == {one.id for one in cells}


@pytest.mark.parametrize("at", [0, 3, 5, 6, 8, 13, 14, 23])
def test_an_interrupted_run_is_finished_by_the_next(tmp_path: Path, at: int) -> None:
    def interrupt(call: int) -> None:
        if call == at:
            raise KeyboardInterrupt

    whole = run(tmp_path / "whole", plan())
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", plan(), FakeEngine(interrupt))
    kept = len(samples(tmp_path / "cut"))
    rest = run(tmp_path / "cut", plan())
    assert tables(tmp_path / "cut") == tables(tmp_path / "whole")
    assert len(samples(tmp_path / "whole")) == 36
    if at <= 6:  # one call a sample so far: every finished one is kept and not made again
        assert kept == at
        assert len(rest.fed) == len(whole.fed) - at


def test_a_larger_n_tops_up(tmp_path: Path) -> None:
    run(tmp_path / "steps", plan(2))
    more = run(tmp_path / "steps", plan(6))
    assert (
        len([ids for ids in more.fed if len(ids) == 31]) == 4 + 4
    )  # Coins at 32, and the text of Pages: 2 of 6 stored
    run(tmp_path / "once", plan(6))
    assert tables(tmp_path / "steps") == tables(tmp_path / "once")
    assert run(tmp_path / "steps", plan(4)).fed == []  # a smaller n is done already


def test_a_row_whose_prompt_is_not_the_same_is_measured_again(tmp_path: Path) -> None:
    one = cell(Coins(), n=4)
    run(tmp_path / "whole", [one])
    for row in samples(tmp_path / "whole"):
        wrong = {"prompt_sha256": "0" * 64, "scores": {"right": 9.0}} if row["index"] == 2 else {}
        writer(tmp_path / "cut", "20000101T000000000000Z-000000").sample({**row, **wrong})
    again = run(tmp_path / "cut", [one])
    assert len(again.fed) == 1
    assert tables(tmp_path / "cut") == tables(tmp_path / "whole")


def test_a_record_that_is_missing_after_its_last_sample_costs_no_pass(tmp_path: Path) -> None:
    one = cell(Coins(), n=4)
    run(tmp_path / "whole", [one])
    for row in samples(tmp_path / "whole"):
        writer(tmp_path / "cut", "20000101T000000000000Z-000000").sample(row)
    assert run(tmp_path / "cut", [one]).fed == []
    assert tables(tmp_path / "cut") == tables(tmp_path / "whole")
    cost, whole = (read(tmp_path / name)[0]["cost"] for name in ("cut", "whole"))
    assert cost["tokens"] == whole["tokens"] == 4 * (31 + 1)  # what its samples cost when they were measured
    assert (cost["runs"], cost["partial"]) == (1, False)


class Failing(Coins):
    """Fails at its third sample."""

    name = "failing"

    def score(self, example: Example, output: Output) -> dict[str, float]:
        if example.meta["cluster"] == "2":
            raise RuntimeError("no luck in /home/somebody/secret/place.txt today")
        return super().score(example, output)


def test_a_failing_cell_is_a_record_and_not_the_end(tmp_path: Path) -> None:
    cells = [cell(Coins()), cell(Failing()), cell(Coins(), length=16)]
    run(tmp_path, cells)
    records = read(tmp_path)
    assert [record["outcome"]["status"] for record in records] == ["ok", "error", "ok"]
    assert records[1]["outcome"] == {
        "status": "error",
        "error": {"type": "RuntimeError", "message": "no luck in place.txt today"},
        "metrics": {},
        "primary": "right",
    }
    assert records[1]["condition"]["n_scored"] == 1  # prompts run in their order, and this one's comes second
    assert len(run(tmp_path, cells).fed) == 1  # tried again, from the sample that failed
    assert len(read(tmp_path)) == 4


def test_an_engine_that_cannot_be_built_is_a_record(tmp_path: Path) -> None:
    def broken(model: Any, encoder: Any) -> Any:
        raise UsageError("not this model")

    run_cells([cell()], loaded(), Stored(), writer(tmp_path), engine=broken)
    assert read(tmp_path)[0]["outcome"]["error"] == {"type": "UsageError", "message": "not this model"}
    assert read(tmp_path)[0]["outcome"]["status"] == "unsupported"
    assert read(tmp_path)[0]["method"]["inv_freq"] is None


def test_an_encoder_that_cannot_be_built_is_a_record(tmp_path: Path) -> None:
    run_cells([cell(bos="always")], loaded(Letters(bos=None)), Stored(), writer(tmp_path), engine=FakeEngine())
    record = read(tmp_path)[0]
    assert record["outcome"]["status"] == "unsupported"
    assert record["condition"]["bos_used"] is None


@pytest.mark.parametrize("score, status, words", [
    ({"right": float("nan")}, "error", "NaN or infinity"), ({"right": float("inf")}, "error", "NaN or infinity"),
    ({"wrong": 1.0}, "error", "none of its metrics"),
])  # fmt: skip
def test_a_score_that_is_no_number_fails_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, score: dict[str, float], status: str, words: str
) -> None:
    monkeypatch.setattr(Coins, "score", lambda *_: score)
    run(tmp_path, [cell()])
    outcome = read(tmp_path)[0]["outcome"]
    assert outcome["status"] == status
    assert words in outcome["error"]["message"]
    assert samples(tmp_path) == []


def test_nan_likelihood_fails_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEngine, "nll", lambda self, ids, *_: np.full(len(ids) - 1, np.nan, np.float32))
    run(tmp_path, [cell(Pages())])
    assert read(tmp_path)[0]["outcome"]["error"]["type"] == "ArithmeticError"


class Chosen(Pages):
    """The likelier of two readings: a comparison, of which NaN would make a wrong answer and not a NaN."""

    name = "chosen"
    metrics = (Metric("right", "higher"),)

    def score(self, example: Example, output: Output) -> dict[str, float]:
        return {"right": float(np.mean(output.nll[0]) < 1.0)}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_likelihood_that_is_no_number_names_its_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: float
) -> None:
    plain = FakeEngine.nll

    def once(self: FakeEngine, ids: Sequence[int], *rest: Any) -> Any:
        nll = plain(self, ids, *rest)
        if self.calls == 3:
            nll[5] = bad
        return nll

    monkeypatch.setattr(FakeEngine, "nll", once)
    run(tmp_path, [cell(Chosen()), cell(Coins())])
    first, second = read(tmp_path)
    assert first["outcome"]["status"] == "error"
    assert first["outcome"]["error"]["message"].startswith(
        f"sample 2: the likelihood of scored token 5 of window 0 is {bad}"
    )
    assert first["outcome"]["metrics"] == {}
    assert len(samples(tmp_path, first["cell_id"])) == 2
    assert second["outcome"]["status"] == "ok"


@pytest.mark.parametrize("error, kind", [
    (ArithmeticError("the model returned NaN for new token 0"), "ArithmeticError"),
    (TimeoutError("the hub did not answer within 10 s"), "TimeoutError"),
    (ConnectionError("no route to the hub"), "ConnectionError"),
])  # fmt: skip
def test_a_failure_in_the_middle_is_a_record_and_the_next_cell_runs(
    tmp_path: Path, error: Exception, kind: str
) -> None:
    def fail(call: int) -> None:
        if call == 1:
            raise error

    run(tmp_path, [cell(n=3), cell(length=16, n=3)], FakeEngine(fail))
    assert [record["outcome"]["status"] for record in read(tmp_path)] == ["error", "ok"]
    said = read(tmp_path)[0]["outcome"]["error"]
    assert said["type"] == kind
    assert str(error) in said["message"]
    assert said["message"].startswith("sample ") == (kind == "ArithmeticError")


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


@pytest.mark.parametrize("error", [
    MemoryError(), OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to ..."),
    RuntimeError("MPS backend out of memory (MPS allocated: 9.0 GiB)"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
    OSError(12, "Cannot allocate memory"),
])  # fmt: skip
def test_running_out_of_memory_has_a_status_of_its_own(tmp_path: Path, error: Exception) -> None:
    def exhaust(call: int) -> None:
        if call == 1:
            raise error

    run(tmp_path, [cell(n=3), cell(length=16, n=3)], FakeEngine(exhaust))
    assert [record["outcome"]["status"] for record in read(tmp_path)] == ["out_of_memory", "ok"]


def test_torchs_own_error_is_out_of_memory() -> None:
    torch = pytest.importorskip("torch")
    assert is_out_of_memory(torch.OutOfMemoryError("no room"))
    assert not is_out_of_memory(RuntimeError("shapes differ"))
    assert not is_out_of_memory(UsageError("out of memory"))
    assert failure(torch.OutOfMemoryError("no room"))[0] == "out_of_memory"


def test_a_result_that_cannot_be_written_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = writer(tmp_path)

    def full(row: Json) -> None:
        raise NotStored("disk full")

    monkeypatch.setattr(to, "sample", full)
    with pytest.raises(NotStored):
        run_cells([cell(), cell(length=16)], loaded(), Stored(), to, engine=FakeEngine())
    assert read(tmp_path) == []


def test_skipped_samples_are_counted_apart(tmp_path: Path) -> None:
    one = cell(Few(), n=3)
    run(tmp_path, [one])
    record = read(tmp_path)[0]
    assert record["condition"]["n_scored"] == 2
    assert record["condition"]["n_skipped"] == 1
    assert record["outcome"]["metrics"]["right"]["n"] == 2
    assert [row["skip"] for row in samples(tmp_path)] == [None, "too long", None]
    assert samples(tmp_path)[1]["scores"] == {}


def test_a_finite_source_is_used_up_once(tmp_path: Path) -> None:
    run(tmp_path, [cell(Few(), n=10)])
    assert read(tmp_path)[0]["condition"]["n_requested"] == 10
    assert run(tmp_path, [cell(Few(), n=10)]).fed == []
    assert run(tmp_path, [cell(Few(), n=99)]).fed == []
    assert len(read(tmp_path)) == 1


def test_a_cell_of_skipped_samples_only_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Few, "examples", lambda *_: iter([Example(skip="too long")] * 3))
    run(tmp_path, [cell(Few())])
    outcome = read(tmp_path)[0]["outcome"]
    assert outcome["status"] == "unsupported"
    assert outcome["error"] == {"type": "NoSamples", "message": "too long"}


def test_one_engine_call_for_each_pass(tmp_path: Path) -> None:
    engine = run(tmp_path, [cell(Pages(text=True), n=3)])
    assert sorted(map(len, engine.fed)) == [31, 31, 31, 32, 32, 32]  # a window and a prompt per sample, nothing twice
    row = samples(tmp_path)[0]
    assert row["output"] in ("0", "1")
    assert row["scores"]["nll"] == pytest.approx(sum(row["nll_bins"]["sum"]) / 31)
    assert row["nll_bins"]["count"] == [31]
    assert read(tmp_path)[0]["cost"]["tokens"] == 3 * (32 + 31 + 1)


def test_shorter_lengths_are_read_off_the_longest_pass(tmp_path: Path) -> None:
    cells = [cell(Pages(), length=length, n=3) for length in (256, 128, 64)]
    assert [len(ids) for ids in run(tmp_path / "together", cells).fed] == [256, 256, 256]
    for one in cells:
        run(tmp_path / "apart", [one])
    assert tables(tmp_path / "together") == tables(tmp_path / "apart")
    costs = [record["cost"] for record in read(tmp_path / "together")]
    assert [cost["tokens"] for cost in costs] == [768, 0, 0]
    assert [cost["tokens_per_second"] for cost in costs[1:]] == [None, None]


def test_no_method_is_served_anothers_result(tmp_path: Path) -> None:
    # FAULT 45: same model, same prompts, none and then YaRN, one results folder.
    none = [cell(Coins()), cell(Pages(), length=128)]
    yarn = [dataclasses.replace(one, method=Yarn(), factor=4.0) for one in none]
    softer = [dataclasses.replace(one, method=Yarn(beta_fast=16.0), factor=4.0) for one in none]
    first = run(tmp_path, none)
    assert run(tmp_path, yarn).fed == first.fed  # every request goes to the engine
    assert run(tmp_path, softer).fed == first.fed
    assert run(tmp_path, [dataclasses.replace(one, factor=2.0) for one in yarn]).fed == first.fed
    assert run(tmp_path, [*none, *yarn, *softer]).fed == []
    assert len({record["cell_id"] for record in read(tmp_path)}) == 8


def test_methods_of_one_run_share_no_pass(tmp_path: Path) -> None:
    # FAULT 45, within one process: none, then two methods with the very same table.
    long, short = cell(Pages(), length=128, n=2), cell(Pages(), length=64, n=2)
    cells = [long, short]
    for method in (PositionInterpolation(), Yarn()):
        cells += [dataclasses.replace(one, method=method, factor=1.0) for one in (long, short)]
    assert [len(ids) for ids in run(tmp_path, cells).fed] == [128, 128] * 3


@pytest.fixture
def tables_set(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths for which a table was made while cells ran."""
    made: list[int] = []
    plain = DynamicNtk.frequencies

    def note(self: DynamicNtk, geometry: Any, factor: float, length: int) -> Any:
        made.append(length)
        return plain(self, geometry, factor, length)

    monkeypatch.setattr(DynamicNtk, "frequencies", note)
    return made


def test_length_dependent_methods_reuse_nothing(tmp_path: Path, tables_set: list[int]) -> None:
    cells = [cell(Pages(), length=length, n=2, method=DynamicNtk(), factor=4.0) for length in (256, 128)]
    assert [len(ids) for ids in run(tmp_path, cells).fed] == [256, 256, 128, 128]
    assert run(tmp_path, [cell(Pages(), length=64, n=1, method=DynamicNtk(), factor=4.0)]).fed != []


def test_a_length_dependent_table_is_set_for_each_pass_at_its_total_length(
    tmp_path: Path, tables_set: list[int]
) -> None:
    one = cell(Pages(text=True), length=100, n=2, method=DynamicNtk(), factor=4.0)
    _ = one.id
    tables_set.clear()
    run(tmp_path, [one])
    # The cell's own, then for each sample the window's 100 ids, and the prompt's 99 and its budget of one.
    assert tables_set == [100, 100, 100, 100, 100]


def test_prompts_of_256_tokens_are_fed_and_recorded_whole(tmp_path: Path) -> None:
    # FAULT 47: a method extends 64 to 256.
    one = cell(Coins(), length=256, method=Yarn(), factor=4.0)
    assert one.geometry.trained_length == 64
    engine = run(tmp_path, [one])
    assert {len(ids) for ids in engine.fed} == {255}
    condition = read(tmp_path)[0]["condition"]
    assert (condition["tokens_min"], condition["tokens_mean"], condition["tokens_max"]) == (256, 256, 256)
    assert {row["tokens"] for row in samples(tmp_path)} == {256}


def test_progress_says_where_the_run_is(tmp_path: Path) -> None:
    seen: list[Progress] = []
    run(tmp_path, [cell(n=2), cell(length=16, n=1)], progress=seen.append)
    first = [("cell_begin", 1, 2, 0, 2), ("sample", 1, 2, 1, 2), ("sample", 1, 2, 2, 2), ("cell_end", 1, 2, 2, 2)]
    second = [("cell_begin", 2, 2, 0, 1), ("sample", 2, 2, 1, 1), ("cell_end", 2, 2, 1, 1)]
    assert [(at.event, at.number, at.cells, at.sample, at.samples) for at in seen] == first + second
    assert seen[0].tokens_per_second is None
    assert seen[1].tokens_per_second is not None
    assert seen[1].seconds_left is not None
    assert seen[-1].seconds_left == 0
    assert [at.record for at in seen if at.record] == read(tmp_path)


def test_preflight_makes_each_first_sample_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    plain = Coins.examples

    def note(self: Coins, length: int, *rest: Any) -> Any:
        made.append(length)
        return plain(self, length, *rest)

    monkeypatch.setattr(Coins, "examples", note)
    cells = [cell(length=length, method=method, factor=2.0) for method in (Yarn(), DynamicNtk()) for length in (32, 16)]
    preflight(cells, Letters())
    assert made == [32, 16]


def test_preflight_says_what_a_task_cannot_make(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coins, "examples", lambda *_: iter([][1]))  # type: ignore[misc]
    with pytest.raises(UsageError, match=r"task coins: its first sample at length 32 cannot be made \(IndexError"):
        preflight([cell()], Letters())
    with pytest.raises(UsageError, match="no BOS token"):
        preflight([cell(bos="always")], Letters(bos=None))


def test_prefixes_are_found_whole_or_not_at_all() -> None:
    memo = Prefixes()
    long = tuple(range(100, 300))
    for ids in ((2, 8, 9), (3, 8, 9), long):
        memo.add(ids, list(ids[1:]))
    assert memo.find((1, 8)) is None
    assert memo.find((2, 8)) == [8]
    assert memo.find((3, 8, 9)) == [8, 9]
    assert memo.find((3, 9)) is None
    assert memo.find((3, 8, 9, 10)) is None
    assert memo.find(long[:150]) == list(long[1:150])
    assert memo.find((*long[:149], 7)) is None  # begins alike, ends otherwise
    assert memo.find((*long, 300)) is None


def test_derived_metrics_are_exp_of_the_mean_and_null_beyond_floating_point() -> None:
    def metrics(*values: float) -> Json:
        return metrics_of(Pages(), [{"skip": None, "scores": {"nll": value}} for value in values])

    two = metrics(1.0, 3.0)["perplexity"]
    assert two["value"] == pytest.approx(np.exp(2.0))
    assert two["stderr"] == pytest.approx(np.exp(2.0) * 1.0)
    assert metrics(900.0)["perplexity"] == {"value": None, "stderr": None, "n": 1}
    assert metrics(709.0, 712.0)["perplexity"]["value"] is None
    assert metrics(700.0, 716.0)["perplexity"] == {"value": pytest.approx(np.exp(708.0)), "stderr": None, "n": 2}


def test_nll_bins_keep_every_scored_token() -> None:
    ids = tuple(range(600))
    example = Example(windows=(Window(ids, 100),), meta={})
    nll = np.linspace(1, 2, 500)
    row = sample_row(cell(Free()), "run", 0, example, Output(nll=(nll,)))
    assert row["nll_bins"]["size"] == 256
    assert row["nll_bins"]["count"] == [156, 256, 88]
    assert sum(row["nll_bins"]["sum"]) == pytest.approx(nll.sum())
    assert row["nll_bins"]["sum"][0] == pytest.approx(nll[:156].sum())


class Free(Pages):
    """Scores nothing."""

    name = "free"

    def score(self, example: Example, output: Output) -> dict[str, float]:
        return {}


def test_the_prompt_hash_covers_prompt_and_windows() -> None:
    examples = [
        Example(ids=(1, 2)), Example(ids=(1, 2, 3)), Example(windows=(Window((2, 1)),)),
        Example(ids=(1, 2), windows=(Window((1, 2)),)), Example(windows=(Window((2, 1)), Window((2, 1)))),
    ]  # fmt: skip
    assert len({prompt_sha256(example) for example in examples}) == len(examples)
    assert prompt_sha256(Example(ids=(1, 2))) == prompt_sha256(Example(windows=(Window((1, 2)),)))


def test_peak_memory_is_known_or_null() -> None:
    peak = PeakMemory("cpu")
    block = np.ones(20_000_000)
    seen = peak.bytes()
    assert seen is None or seen > block.nbytes
    assert PeakMemory("mps").bytes() is None


KILLED = """
import sys, time
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from test_run import FakeEngine, plan, run

def hang(call):
    if call == 8:  # the third document of the second cell, whose first two serve three lengths
        time.sleep(600)

run(Path(sys.argv[1]), plan(), FakeEngine(hang))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_killed_process_is_finished_by_the_next(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "cut"), str(Path(__file__).parent)])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None and len(_finished(tmp_path / "cut")) < 12:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=10) == -signal.SIGKILL
    assert len(_finished(tmp_path / "cut")) == 6 + 2 * 3
    rest = run(tmp_path / "cut", plan())
    whole = run(tmp_path / "whole", plan())
    assert tables(tmp_path / "cut") == tables(tmp_path / "whole")
    assert rest.fed[0] == whole.fed[8]  # it goes on with the sample at which it was killed


def _finished(folder: Path) -> list[bytes]:
    return [line for file in folder.glob("*.samples.jsonl") for line in file.read_bytes().splitlines(keepends=True)]

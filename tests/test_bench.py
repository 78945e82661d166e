"""`make bench`: a figure is only given where both ways give the same answers, and is stored like every other record."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import measure
from crews import Crew, worker
from fakes import save_tiny
from measuring import needles, peaks, perplexity, plain, ruler, start, sweeps, workers
from measuring.figure import AnswersDiffer, Figure, table
from measuring.operations import gone_on_ratio, operations, total
from measuring.profile import as_text, profile
from measuring.sizes import DEFAULT, FULL, QUICK, Sizes
from measuring.subject import Subject, subject
from ropebench.engine import Engine
from ropebench.record import SCHEMA
from ropebench.store import append, newest_ok, read

SMALL = Sizes(
    lengths=range(16, 64 + 1, 16), every=3, rounds=1, needle_length=256, depths=3, refills=2,
    peak_length=64, sweep_lengths=(32, 64), loads=2, ruler_samples=1,
    spread_lengths=(512,), spread_samples=1,
)  # fmt: skip
FIGURE = Figure("this", "this ÷ that", 0.5, 0.75, row={"ratio": 0.5, "ours_seconds": 1.0})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """A tiny random llama in a folder, and a text of numbered sentences."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "docs").mkdir()
    text = " ".join(f"Sentence {i} says that {i * i} follows from it." for i in range(400))
    (folder / "docs" / "text.txt").write_text(text)
    return subject(str(save_tiny(folder / "model")), f"text={folder / 'docs'}")


@pytest.fixture
def off_by_a_hundredth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours is fast, and wrong."""
    monkeypatch.setattr(Engine, "nll", lambda *given, own=Engine.nll, **how: own(*given, **how) + 0.01)


# What is measured, as promised


def test_the_sizes_are_those_that_are_promised() -> None:
    assert len(DEFAULT.lengths) == 19
    assert (min(DEFAULT.lengths), max(DEFAULT.lengths), DEFAULT.lengths[1] - DEFAULT.lengths[0]) == (1024, 10240, 512)
    assert (DEFAULT.needle_length, DEFAULT.depths, DEFAULT.peak_length) == (8192, 10, 16384)
    assert len(sweeps.METHODS) + 1 == 9
    assert replace(FULL, every=6, rounds=1, refills=2, loads=2, ruler_samples=100) == DEFAULT
    assert (FULL.every, FULL.refills, FULL.loads) == (1, 10, 9)
    assert len(QUICK.lengths) == 19


def test_perplexity_at_many_lengths(tiny: Subject) -> None:
    many, bare = perplexity.perplexity(tiny, SMALL)
    assert many.what == "perplexity at 4 lengths from 16 to 64: seconds of one forward per length ÷ those of one pass"
    assert (many.sense, many.target, bare.sense, bare.target) == ("≥", 8.0, "≤", 1.10)
    assert many.row["largest_difference_nats"] < 1e-5
    assert many.row["plain_lengths_timed"] == 2
    assert many.reached == pytest.approx(many.row["plain_seconds"] / many.row["ours_seconds"])
    assert many.reached == pytest.approx(1 / many.row["ratio"])
    assert many.row["by_operations"] > 2.4
    assert bare.reached
    assert bare.row["by_operations"] > 1


def test_each_length_is_run_the_plain_way_where_all_are_wanted(tiny: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    own = plain.nll
    monkeypatch.setattr(plain, "nll", lambda model, ids: seen.append(len(ids)) or own(model, ids))
    perplexity.perplexity(tiny, replace(SMALL, every=1))
    assert sorted(seen) == [16, 32, 48, 64]


def test_lengths_that_are_not_timed_cost_what_the_curve_says() -> None:
    def cost(length: int) -> float:
        return 0.5 + 2e-3 * length + 3e-7 * length**2

    timed = {length: cost(length) for length in DEFAULT.lengths[::3]}
    expected = sum(map(cost, DEFAULT.lengths))
    assert perplexity.all_lengths(timed, DEFAULT.lengths) == pytest.approx(expected, rel=1e-9)
    assert perplexity.all_lengths({1: 2.0, 2: 3.0}, [1, 2]) == 5.0


def test_needles_at_several_depths(tiny: Subject) -> None:
    (figure,) = needles.needles(tiny, SMALL)
    assert figure.what == "NIAH, 3 depths at 256: shared beginnings ÷ a refill per depth"
    assert (figure.sense, figure.target, figure.row["plain_depths_timed"]) == ("≤", 0.75, 2)
    assert figure.reached == figure.row["ours_seconds"] / figure.row["plain_seconds"]
    assert 0.4 < figure.row["prefill_by_operations"] < figure.row["by_operations"] < 1
    assert 0 < figure.row["plain_prefill_seconds"] < figure.row["plain_seconds"]


def test_nine_methods_load_the_weights_once(tiny: Subject) -> None:
    loads, outside = sweeps.sweeps(tiny, SMALL)
    assert (loads.reached, loads.met) == (1, True)
    assert loads.row["records"] == 18
    assert loads.what.startswith("9 methods at 32 and 64")
    assert outside.target == 0.03
    assert 0 < outside.row["forward_seconds"] < outside.row["run_seconds"] < outside.row["ours_seconds"]
    assert outside.reached == pytest.approx(1 - outside.row["forward_seconds"] / outside.row["run_seconds"])
    assert not torch.nn.modules.module._global_forward_hooks  # nothing of the watch stays


def test_a_second_load_is_counted(tiny: Subject) -> None:
    with sweeps.watched() as watch:
        for _ in range(2):
            subject(tiny.word)
    assert watch.loads == 2


def test_peak_memory_of_both_ways(tiny: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {way: peaks.child(way, tiny, 64)["nll"] for way in peaks.WAYS}
    assert values["ours"] == pytest.approx(values["plain"], abs=1e-5)
    found = {"ours": {"bytes": 3, "nll": 1.0}, "plain": {"bytes": 80, "nll": 1.0}}
    monkeypatch.setattr(peaks, "in_child", lambda way, *_: found[way])
    (figure,) = peaks.peaks(tiny, SMALL)
    assert (figure.reached, figure.target, figure.met) == (3 / 80, 1 / 20, True)
    found["ours"]["nll"] = 1.001
    with pytest.raises(AnswersDiffer, match=r"differ by 1\.00e-03 nats"):
        peaks.peaks(tiny, SMALL)


def test_the_systems_high_water_mark_forgets_and_rises() -> None:
    before = peaks.forgotten()
    if before is None:
        pytest.skip("the mark cannot be set back on this system")
    held = torch.ones(2**23)  # 32 MiB
    del held
    most = peaks.resident("VmHWM")
    assert most
    assert 24 * 2**20 < most - before < 200 * 2**20


def test_help_and_switching(tiny: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "TIMES", 2)
    (figure,) = start.help_time(SMALL)
    assert (figure.sense, figure.target, figure.unit) == ("<", 0.3, "s")
    assert figure.reached == figure.row["ours_seconds"] >= figure.row["plain_seconds"]
    (figure,) = start.switching(tiny, SMALL)
    assert figure.reached == figure.row["ours_seconds"] / figure.row["pass_seconds"]


def test_samples_of_ruler_made_and_read(tiny: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ruler, "LENGTH", 1024)
    monkeypatch.setattr("ropebench.ruler.TASKS", ("niah_single_1", "niah_multikey_2"))
    made, read = ruler.ruler(2, tiny.word)
    assert (made.target, read.target, made.unit) == (20.0, 2.0, "s")
    assert set(made.row["seconds_of_500"]) == {"niah_single_1", "niah_multikey_2"}
    assert made.reached == max(made.row["seconds_of_500"].values()) > 0


def test_seconds_of_500_are_those_of_a_stream_that_begins_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 13.0, 15.0])  # three seconds until the first sample, two for the four after it
    monkeypatch.setattr(ruler.time, "perf_counter", lambda: next(clock))
    assert ruler.timed(iter("abcde")) == (3.0 + 499 * 0.5, [*"abcde"])


def crew_of(size: int, sweep: Any) -> Crew:
    """Workers with the real model, in this process."""
    return Crew(size, make=lambda _: worker(sweep))


def test_two_workers_against_one(tiny: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "METHODS", ("pi",))
    (figure,) = workers.workers(SMALL, tiny.word, tiny.docs, crew_of)
    assert (figure.sense, figure.target) == ("≥", 1.8)
    assert figure.what.startswith("2 methods of ")
    assert figure.row["cells"] == 4
    assert figure.reached == pytest.approx(figure.row["plain_seconds"] / figure.row["ours_seconds"])
    assert figure.reached == pytest.approx(1 / figure.row["ratio"])


def test_workers_that_score_otherwise_are_no_figure(tiny: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "METHODS", ("pi",))
    monkeypatch.setattr(workers, "spread", lambda plan, crew, tokenizer: (1.0, {"sample": {"recall": 1 / crew.size}}))
    with pytest.raises(AnswersDiffer, match="two workers do not give the scores of one"):
        workers.workers(SMALL, tiny.word, tiny.docs, crew_of)


# A ratio of different answers is no figure


@pytest.mark.usefixtures("off_by_a_hundredth")
@pytest.mark.parametrize("measured", [perplexity.perplexity, sweeps.sweeps])
def test_a_faster_way_to_other_numbers_is_no_figure(
    tiny: Subject, measured: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "METHODS", ("yarn",))
    with pytest.raises(AnswersDiffer, match=r"differs? by 1\.00e-02 nats"):
        measured(tiny, SMALL)


def test_a_faster_way_to_another_text_is_no_figure(tiny: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Engine.generate
    monkeypatch.setattr(Engine, "generate", lambda *given, **how: ("no" + own(*given, **how)[0], ()))
    with pytest.raises(AnswersDiffer, match=r"the text after a refill"):
        needles.needles(tiny, SMALL)


def test_what_has_no_figure_is_said_and_not_stored(
    tiny: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def differ(*_: Any) -> list[Figure]:
        raise AnswersDiffer("by 7 nats")

    monkeypatch.setattr(measure, "FIGURES", {"this": lambda *_: [FIGURE], "that": differ, "other": differ})
    words = ["--model", tiny.word, "--results", str(tmp_path), "--only", "that", "--only", "this"]
    assert measure.main(words) == 1
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()[2:]] == ["this", "that"]
    assert "no figure  NO   answers differ: by 7 nats" in shown.out
    assert [line["bench"] for line in read(tmp_path)] == [FIGURE.numbers() | {"threads": torch.get_num_threads()}]


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("something was measured")

    (tmp_path / "taken").write_text("a file")
    monkeypatch.setattr(measure, "FIGURES", {"help": never})
    assert measure.main(["--results", str(tmp_path / "taken")]) == 2
    assert "is a file, not a folder" in capsys.readouterr().err


# The table and the records


def test_the_table_says_what_was_to_be_reached_and_what_was() -> None:
    figures = [
        FIGURE,
        Figure("speed", "seconds", 7.96, 8.0, "≥"),
        Figure("share", "outside", 0.0312, 0.03, unit="%"),
        Figure("help", "help", 0.3, 0.3, "<", "s"),
        Figure("open", "no promise", 1234.5, unit="tokens/s"),
        Figure("lost", "not told", None, 0.05),
    ]
    lines = [[part.strip() for part in line.split("  ") if part.strip()] for line in table(figures).splitlines()]
    assert lines[0] == ["target", "reached", "met", "what"]
    assert lines[2:] == [
        ["this", "≤ 0.75×", "0.5×", "yes", "this ÷ that"],
        ["speed", "≥ 8×", "7.96×", "NO", "seconds"],
        ["share", "≤ 3 %", "3.12 %", "NO", "outside"],
        ["help", "< 0.3 s", "0.3 s", "NO", "help"],
        ["open", "–", "1,234 tokens/s", "–", "no promise"],
        ["lost", "≤ 0.05×", "not measured", "–", "not told"],
    ]


def test_a_figure_is_stored_as_a_record_of_its_own_kind(tmp_path: Path) -> None:
    figures = [FIGURE, Figure("other", "the other", None)]
    for figure in figures:
        append(tmp_path / "bench.jsonl", figure.record("20260101T000000000000Z-abcdef", "cpu"))
    stored = read(tmp_path)
    assert [line["bench"] for line in stored] == [figure.numbers() for figure in figures]
    assert stored[0]["bench"]["met"] is True
    for line in stored:
        assert (line["schema"], line["kind"], line["run_id"]) == (SCHEMA, "bench", "20260101T000000000000Z-abcdef")
        assert line["provenance"]["device"] == "cpu"
        assert line["created"].endswith("Z")
    assert len({line["record_id"] for line in stored}) == len({line["cell_id"] for line in stored}) == 2
    assert newest_ok(stored) == []  # no table takes it for a cell


@pytest.mark.parametrize("torn", [b'{"schema":2,"kind":"ben', b"\0\0\0", '{"what":"é'.encode()[:-1]])
def test_a_bench_that_was_cut_off_does_not_spoil_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, torn: bytes
) -> None:
    file = tmp_path / "bench.jsonl"
    append(file, FIGURE.record("one", "cpu"))
    whole = file.read_bytes()
    file.write_bytes(whole + torn)
    said: list[str] = []
    assert [line["run_id"] for line in read(tmp_path, said.append)] == ["one"]
    assert said == ["bench.jsonl:2: the last line is torn (a run was cut off); skipped"]
    with caplog.at_level(logging.WARNING):
        append(file, FIGURE.record("two", "cpu"))
    assert "bench.jsonl: its last line was torn" in caplog.text
    assert [line["run_id"] for line in read(tmp_path, said.append)] == ["one", "two"]
    assert len(said) == 1
    assert file.read_bytes().startswith(whole)


def test_a_whole_line_that_lacks_its_newline_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "bench.jsonl"
    append(file, FIGURE.record("one", "cpu"))
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    append(file, FIGURE.record("two", "cpu"))
    assert [line["run_id"] for line in read(tmp_path)] == ["one", "two"]


# Arithmetic and profile


def test_operations_are_counted_by_hand(tiny: Subject) -> None:
    config = tiny.model.config  # width 32, 4 heads and 2 key heads of 8, MLP 48, two layers
    found = operations(config, 3, held=5, head_rows=1)
    assert found["projections"] == 2 * 3 * 2 * (32 * 32 + 2 * 32 * 16 + 32 * 32)
    assert found["attention"] == 2 * (3 * 5 + 1 + 2 + 3) * 2 * 2 * 32
    assert found["mlp"] == 2 * 3 * 2 * 3 * 32 * 48
    assert found["lm_head"] == 2 * 32 * config.vocab_size
    halves = total(config, 4, 0, 1) + total(config, 4, 4, 1)
    assert gone_on_ratio(config, [(1,) * 8, (1,) * 4 + (2,) * 4]) == pytest.approx(
        (total(config, 8, 0, 1) + halves - total(config, 4, 0, 1)) / (2 * total(config, 8, 0, 1))
    )


def test_the_profile_adds_up(tiny: Subject) -> None:
    found = profile(tiny.model, lambda: perplexity.ours(tiny, SMALL))
    assert set(found.parts) == {"attention", "MLP", "LM head", "everything else"}
    assert all(spent > 0 for spent in found.parts.values())
    assert sum(found.parts.values()) == pytest.approx(found.seconds)
    assert "aten::" in as_text("perplexity", found)
    assert not any(module._forward_hooks for module in tiny.model.modules())


@pytest.mark.slow
def test_the_script_measures_memory_in_processes_of_its_own(tiny: Subject, tmp_path: Path) -> None:
    words = ["--quick", "--only", "memory", "--results", str(tmp_path), "--model", tiny.word, "--docs", tiny.docs]
    assert measure.main(words) == 0
    (line,) = read(tmp_path)
    assert line["bench"]["difference_nats"] < 1e-4
    assert line["bench"]["plain_bytes"] > 0

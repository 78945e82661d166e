"""`make bench`: a figure is only shown where both ways give the same numbers, and is stored like every other record."""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fakes import tiny, tokenizer
from ropebench.engine import Engine
from ropebench.prompt import Encoder
from ropebench.record import SCHEMA
from ropebench.store import append, newest_ok, read

IDS = [2 + (7 * i * i + i) % 400 for i in range(64)]


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """bench/measure.py at lengths that a tiny model runs in no time."""
    file = Path(__file__).parents[1] / "bench" / "measure.py"
    spec = importlib.util.spec_from_file_location("measure", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LENGTHS", range(16, 64 + 1, 16))
    return module


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(tiny(), Encoder(tokenizer()))


def test_one_pass_gives_the_numbers_of_a_pass_per_length(measure: Any, engine: Engine) -> None:
    row = measure.one_pass(engine, IDS)
    assert row["what"] == "nll at 4 lengths up to 64: one pass ÷ one forward per length"
    assert row["largest_difference_nats"] < 1e-5
    assert row["ratio"] == row["ours_seconds"] / row["plain_seconds"] > 0


def test_a_faster_way_to_other_numbers_is_no_figure(measure: Any, engine: Engine) -> None:
    class Wrong(Engine):
        def nll(self, ids: Any) -> Any:
            return super().nll(ids) + np.float32(0.01)

    with pytest.raises(SystemExit, match=r"differ by 1\.00e-02 nats"):
        measure.one_pass(Wrong(engine.model, engine.encoder), IDS)


def test_the_other_figures_are_ratios_of_one_run(measure: Any, engine: Engine) -> None:
    row = measure.bare_forward(engine, IDS)
    assert row["ratio"] > 0
    assert row["ours_seconds"] > 0


def test_a_figure_is_stored_as_a_record_of_its_own_kind(measure: Any, tmp_path: Path) -> None:
    rows = [{"what": "this ÷ that", "ratio": 0.5}, {"what": "the other", "ratio": None}]
    for row in rows:
        append(tmp_path / "bench.jsonl", measure.record(row, "20260101T000000000000Z-abcdef", "cpu"))
    stored = read(tmp_path)
    assert [line["bench"] for line in stored] == rows
    for line in stored:
        assert (line["schema"], line["kind"], line["run_id"]) == (SCHEMA, "bench", "20260101T000000000000Z-abcdef")
        assert line["provenance"]["device"] == "cpu"
        assert line["created"].endswith("Z")
    assert len({line["record_id"] for line in stored}) == len({line["cell_id"] for line in stored}) == 2
    assert newest_ok(stored) == []  # no table takes it for a cell


@pytest.mark.parametrize("torn", [b'{"schema":2,"kind":"ben', b"\0\0\0", '{"what":"é'.encode()[:-1]])
def test_a_bench_that_was_cut_off_does_not_spoil_the_next(
    measure: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, torn: bytes
) -> None:
    file = tmp_path / "bench.jsonl"
    append(file, measure.record({"what": "a", "ratio": 1.0}, "one", "cpu"))
    whole = file.read_bytes()
    file.write_bytes(whole + torn)
    said: list[str] = []
    assert [line["run_id"] for line in read(tmp_path, said.append)] == ["one"]
    assert said == ["bench.jsonl:2: the last line is torn (a run was cut off); skipped"]
    with caplog.at_level(logging.WARNING):
        append(file, measure.record({"what": "b", "ratio": 1.0}, "two", "cpu"))
    assert "bench.jsonl: its last line was torn" in caplog.text
    assert [line["run_id"] for line in read(tmp_path, said.append)] == ["one", "two"]
    assert len(said) == 1
    assert file.read_bytes().startswith(whole)


def test_a_whole_line_that_lacks_its_newline_is_kept(measure: Any, tmp_path: Path) -> None:
    file = tmp_path / "bench.jsonl"
    append(file, measure.record({"what": "a", "ratio": 1.0}, "one", "cpu"))
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    append(file, measure.record({"what": "b", "ratio": 1.0}, "two", "cpu"))
    assert [line["run_id"] for line in read(tmp_path)] == ["one", "two"]


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_measured(
    measure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never() -> None:
        raise AssertionError("a model was loaded")

    (tmp_path / "taken").write_text("a file")
    monkeypatch.setattr(measure, "prepared", never)
    monkeypatch.setattr(sys, "argv", ["measure.py", "--results", str(tmp_path / "taken")])
    with pytest.raises(SystemExit, match="is a file, not a folder"):
        measure.main()

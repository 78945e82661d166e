"""`make bench-gpu`: the code that measures a card runs tiny-shaped on a CPU, and believes no table it has not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import measure_gpu
import ropebench.apply
from measuring import card
from measuring.figure import AnswersDiffer
from measuring.operations import total
from ropebench.geometry import Frequencies
from ropebench.registry import Registry
from ropebench.store import read

TINY = card.SHAPES["tiny"]


@pytest.fixture(scope="module")
def model() -> Any:
    return card.random_model(TINY, "cpu", "bfloat16")


def test_the_shape_is_that_of_llama_3_8b() -> None:
    from transformers import AutoConfig

    shape = card.SHAPES["llama3-8b"]
    config = AutoConfig.for_model("llama", **shape.config, tie_word_embeddings=False)
    assert shape.lengths == (32768, 131072)
    # 8,030,261,248 weights, of which 525,336,576 look ids up and 266,240 are norms; of each other, two operations
    matrices = 8_030_261_248 - 525_336_576 - 266_240
    assert total(config, 1) == pytest.approx(2 * matrices, rel=1e-4)


def test_the_whole_runs_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure_gpu.main(["--device", "cpu", "--shape", "tiny", "--results", str(tmp_path / "none")]) == 0
    shown = capsys.readouterr().out
    names = [line.split()[0] for line in shown.splitlines()[2:-1]]
    assert names == ["matrix", "tables", "pass@128", "rate@128", "pass@256", "rate@256"]
    assert "not stored" in shown
    assert not (tmp_path / "none").exists()


def test_a_pass_in_numbers(model: Any) -> None:
    first, share, *_ = card.passes(model, TINY, "cpu", 1e9, times=1)
    row = first.row
    assert row["tokens_per_second"] == first.reached == 128 / row["seconds"]
    assert row["share_of_matrix_rate"] == share.reached == row["operations"] / row["seconds"] / 1e9
    assert row["peak_bytes"] is None  # a CPU has no counter of its own; on a card it is torch's


def test_memory_that_runs_out_is_said_and_the_next_length_goes_on(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ropebench.engine import Engine

    def short(self: Any, ids: Any, own: Any = Engine.nll) -> Any:
        if len(ids) == 256:
            raise RuntimeError("CUDA out of memory")
        return own(self, ids)

    monkeypatch.setattr(Engine, "nll", short)
    names = {figure.name: figure for figure in card.passes(model, TINY, "cpu", 1e9, times=1)}
    assert list(names) == ["pass@128", "rate@128", "pass@256"]
    assert names["pass@256"].reached is None
    assert "memory ran out" in names["pass@256"].what


def test_every_method_is_read_back(model: Any) -> None:
    (figure,) = card.tables(model, TINY, "cpu")
    names = {entry.name for entry in Registry.load().of("method")}
    assert set(figure.row["inv_freq"]) == names
    assert figure.reached == figure.target == len(names)
    assert len({tuple(table) for table in figure.row["inv_freq"].values()}) > 6
    assert figure.met


def test_a_table_that_is_not_the_methods_is_an_error(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(found: Any, own: Any = ropebench.apply.live) -> Frequencies:
        table = own(found)
        return Frequencies(table.inv_freq * (1 + 5e-7), table.attention_factor)

    monkeypatch.setattr(ropebench.apply, "live", other)  # off in the last digits only: `applied` lets it pass
    with pytest.raises(AnswersDiffer, match="is not the method's table"):
        card.tables(model, TINY, "cpu")


def test_a_big_shape_without_a_card_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure_gpu.main(["--device", "cpu"]) == 2
    assert "--shape tiny" in capsys.readouterr().err
    assert measure_gpu.main(["--device", "tpu"]) == 2


@pytest.mark.gpu
def test_a_cards_figures_are_stored(tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    assert measure_gpu.main(["--device", "cuda", "--shape", "tiny", "--results", str(tmp_path)]) == 0
    stored = {line["bench"]["name"]: line for line in read(tmp_path)}
    assert stored["peak@256"]["bench"]["reached"] > 0
    assert stored["pass@256"]["provenance"]["device"] == "cuda"

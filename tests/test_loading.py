"""Options of loading: refused early where they cannot work, recorded where they are used, and no new cell where not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import cell, ids, loaded, save_tiny, writer
from ropebench import loading
from ropebench.apply import applied
from ropebench.engine import Engine
from ropebench.errors import UsageError
from ropebench.loading import Loading
from ropebench.model import card, find, load
from ropebench.prompt import Encoder
from ropebench.registry import Registry
from ropebench.run import run_cells
from ropebench.store import Stored
from ropebench.sweep import Sweep

METHODS = ("none", "yarn", "mrrope_pro")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("loading") / "tiny")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"quantize": "bnb5"}, "unknown quantisation 'bnb5'; did you mean 'bnb8'"),
        ({"quantize": "bnb4"}, "'bnb4' needs bitsandbytes and accelerate: pip install bitsandbytes accelerate"),
        ({"device_map": "balanced"}, "unknown device map 'balanced'; .*auto"),
        ({"device_map": "auto"}, "device map 'auto' needs accelerate: pip install accelerate"),
    ],
)
def test_what_cannot_be_loaded_that_way_is_said_before(
    asked: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=words):
        Sweep(**asked).loading  # noqa: B018


def test_a_device_and_a_device_map_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="--device cpu and --device-map auto contradict each other"):
        Sweep(device="cpu", device_map="auto")


def test_an_option_is_in_the_cell_where_it_can_change_numbers() -> None:
    plain = cell()
    assert dataclasses.replace(plain, loading=Loading()).id == plain.id
    assert "compiled" not in plain.identity["model"]
    compiled = dataclasses.replace(plain, loading=Loading(compiled=True))
    assert compiled.id != plain.id


def test_an_option_is_in_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fakes import FakeEngine

    monkeypatch.setattr(loading, "find_spec", lambda name: True)
    one = cell(loading=Loading(True, "auto", "bnb8"))
    (record,) = run_cells(
        [
            one,
        ][:1],
        loaded(),
        Stored(),
        writer(tmp_path),
        engine=FakeEngine(),
    )
    model = record["model"]
    assert (model["compiled"], model["device_map"], model["quantization"]) == (True, "auto", "bnb8")
    assert one.id != cell().id
    assert cell(loading=Loading(device_map="auto")).id == cell().id  # where a layer lies changes no number


def test_bitsandbytes_is_asked_for_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(loading, "find_spec", lambda name: True)
    four = Loading(quantize="bnb4").keywords(torch.bfloat16)["quantization_config"]
    assert (four.load_in_4bit, four.bnb_4bit_quant_type, four.bnb_4bit_compute_dtype) == (True, "nf4", torch.bfloat16)
    assert Loading(quantize="bnb8").keywords(torch.bfloat16)["quantization_config"].load_in_8bit
    assert Loading().keywords(torch.bfloat16) == {}


def test_a_spread_model_gives_the_numbers_of_a_plain_one(folder: Path) -> None:
    pytest.importorskip("accelerate")
    plain = load(card(find(str(folder))), "cpu", "float32")
    spread = load(card(find(str(folder))), "cpu", "float32", loading=Loading(device_map="auto"))
    engines = [Engine(one.model, Encoder(one.tokenizer)) for one in (plain, spread)]
    np.testing.assert_allclose(*(engine.nll(ids(100)) for engine in engines), atol=1e-5)
    assert engines[0].generate(ids(60), 5) == engines[1].generate(ids(60), 5)


def test_what_cannot_be_compiled_is_one_clear_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def broken(self: Any, **_: Any) -> None:
        self._compiled_call_impl = lambda *_, **__: (_ for _ in ()).throw(RuntimeError("no C++ compiler"))

    monkeypatch.setattr(torch.nn.Module, "compile", broken)
    with pytest.raises(UsageError, match=r"torch.compile fails here \(RuntimeError: no C\+\+ compiler\); leave out"):
        load(card(find(str(folder))), "cpu", "float32", loading=Loading(compiled=True))


@pytest.mark.slow
def test_a_compiled_model_follows_every_table(folder: Path) -> None:
    plain = load(card(find(str(folder))), "cpu", "float32")
    ours = load(card(find(str(folder))), "cpu", "float32", loading=Loading(compiled=True))
    one, other = (Engine(each.model, Encoder(each.tokenizer)) for each in (plain, ours))
    assert not other._splits
    seen = []
    for name in METHODS:
        method, _ = Registry.load().build("method", name)
        table = method.frequencies(plain.card.geometry, 4.0, 256)
        with applied(plain.model, table), applied(ours.model, table):
            one._held = other._held = None  # another table
            seen.append(one.nll(ids(200)))
            np.testing.assert_allclose(other.nll(ids(200)), seen[-1], atol=1e-4)
    assert other.generate(ids(150), 3) == one.generate(ids(150), 3)
    assert len({round(float(nll.sum()), 3) for nll in seen}) == len(METHODS)

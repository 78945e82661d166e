"""Where a model runs, in which number format and with which attention: sensible by itself, overridden by a word."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from fakes import save_tiny, tiny, tokenizer
from ropebench.device import check_attention, choose_attention, choose_device, choose_dtype
from ropebench.engine import Engine
from ropebench.errors import UsageError
from ropebench.model import card, find, load
from ropebench.plan import Sweep, make_plan
from ropebench.prompt import Encoder


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto") == choose_device("cpu") == "cpu"
    with pytest.raises(UsageError, match="'cuda:1' is not available here; available: cpu"):
        choose_device("cuda:1")
    with pytest.raises(UsageError, match="unknown device 'gpu'"):
        choose_device("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto") == "cuda"
    assert choose_device("cuda:1") == "cuda:1"
    for word in ("cuda:2", "cuda:", "cuda:x", "cuda:-1", "cuda:²", "", "cuda1"):
        with pytest.raises(UsageError, match="device"):
            choose_device(word)


def test_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [choose_dtype(word) for word in ("fp32", "bf16", "fp16", "float32")] == [
        "float32", "bfloat16", "float16", "float32",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="unknown dtype 'float31'; did you mean 'float32'"):
        choose_dtype("float31")
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    assert choose_dtype("auto", "cpu") == "float32"
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    assert choose_dtype("auto", "cpu") == "bfloat16"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    assert choose_dtype("auto", "cuda:1") == "bfloat16"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    assert choose_dtype("auto", "cuda") == "float16"


@pytest.mark.parametrize("machine, macos, chosen", [
    ("arm64", (15, 2), "bfloat16"), ("arm64", (14, 0), "bfloat16"), ("arm64", (13, 6), "float32"),
    ("x86_64", (15, 0), "float32"),
])  # fmt: skip
def test_float16_is_never_chosen_on_metal(
    monkeypatch: pytest.MonkeyPatch, machine: str, macos: tuple[int, int], chosen: str
) -> None:
    # 65,504 is the largest float16; several models' activations go beyond it, and NaN would pass for a method's fault.
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda major, minor: macos >= (major, minor))
    assert choose_dtype("auto", "mps") == chosen
    assert choose_dtype("fp16", "mps") == "float16"  # whoever asks for it gets it


def test_attention_backends() -> None:
    check_attention("auto")
    check_attention("eager")
    with pytest.raises(UsageError, match="unknown attention backend 'sdap'; did you mean 'sdpa'"):
        check_attention("sdap")
    with pytest.raises(UsageError, match=r"'flash_attention_2' is not available here.*use sdpa"):
        check_attention("flash_attention_2")


@pytest.mark.parametrize("config, chosen", [
    (transformers.LlamaConfig(), "sdpa"), (transformers.Qwen3Config(), "sdpa"), (transformers.Phi3Config(), "sdpa"),
    (transformers.Gemma2Config(), "eager"), (transformers.GptOssConfig(), "eager"),
], ids=lambda value: str(getattr(value, "model_type", "")))  # fmt: skip
def test_auto_takes_what_transformers_has_for_the_kind(config: Any, chosen: str) -> None:
    assert choose_attention("auto", config) == chosen
    assert choose_attention("eager", config) == "eager"
    if chosen == "eager":
        with pytest.raises(UsageError, match=f"none for models of type '{config.model_type}'; give --attention eager"):
            choose_attention("sdpa", config)
    else:
        assert choose_attention("sdpa", config) == "sdpa"


def test_a_models_own_code_is_asked_when_it_is_loaded() -> None:
    class Strange(transformers.PretrainedConfig):
        model_type = "strange"

    assert choose_attention("auto", Strange()) == "sdpa"


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Gemma 2, whose attention scores are soft-capped."""
    folder = tmp_path_factory.mktemp("models") / "tiny-gemma2"
    words = tokenizer()
    tiny("gemma2", attention="eager", vocabulary=len(words), attn_logit_softcapping=0.5).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def test_a_model_without_sdpa_runs_on_eager_and_its_cells_say_so(gemma: Path) -> None:
    sweep = Sweep(
        model=str(gemma), methods=("yarn",), tasks=("niah",), lengths="512", docs="noise", device="cpu", dtype="float32"
    )
    plan = make_plan(sweep)
    assert {one.attention for one in plan.cells} == {one.identity["model"]["attention"] for one in plan.cells}
    assert {one.attention for one in plan.cells} == {"eager"}
    assert any("no sdpa for models of type 'gemma2', so attention is eager" in note for note in plan.notes)
    loaded = load(plan.cells[0].card, "cpu", "float32", plan.cells[0].attention)
    assert loaded.attention == loaded.model.config._attn_implementation == "eager"
    assert load(card(find(str(gemma))), "cpu", "float32").attention == "eager"
    encoder = Encoder(loaded.tokenizer)
    assert Engine(loaded.model, encoder).nll(encoder.text("the value of the name")).shape[0] > 3


def test_asking_for_sdpa_there_is_said_before_any_weight_is_read(gemma: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", never)
    sweep = Sweep(model=str(gemma), methods=("yarn",), tasks=("niah",), lengths="512", docs="noise", device="cpu")
    with pytest.raises(UsageError, match="give --attention eager, or leave it out"):
        make_plan(Sweep(**{**vars(sweep), "attention": "sdpa"}))
    explicit = make_plan(Sweep(**{**vars(sweep), "attention": "eager"}))
    assert {one.attention for one in explicit.cells} == {"eager"}
    assert not any("eager" in note for note in explicit.notes)  # it was asked for


def test_elsewhere_auto_is_the_very_cell_that_sdpa_was(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "tiny")
    plain = Sweep(model=str(folder), methods=("yarn",), tasks=("niah",), lengths="512", docs="noise", device="cpu")
    named = Sweep(**{**vars(plain), "attention": "sdpa"})
    assert [one.id for one in make_plan(plain).cells] == [one.id for one in make_plan(named).cells]

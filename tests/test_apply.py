"""A table goes into a real model, takes effect, and comes out again bit for bit; what cannot be scaled is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel

from ropebench import apply
from ropebench.apply import applied, live, prove, rotary_module, sliding_window
from ropebench.errors import UsageError
from ropebench.geometry import Frequencies, RopeGeometry, geometry_of
from ropebench.methods import MrRopePro, Native, Unscaled, Yarn

SMALL = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "mixtral": {},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "qwen3_moe": {**MOE, "num_experts": 4, "head_dim": 16},
    "phi": {},
    "phi3": {},
    "gpt_neox": {},
    "olmo": {},
    "olmo2": {},
    "gemma": {"head_dim": 16},
    "gemma2": {"head_dim": 16},
    "smollm3": {},
    "granite": {},
    "stablelm": {},
    "cohere": {},
    "starcoder2": {},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "max_position_embeddings": 131072},
    "deepseek_v3": {
        **MOE,
        "n_routed_experts": 4,
        "n_group": 2,
        "topk_group": 1,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 16,
        "num_key_value_heads": 4,
    },
}
IDS = torch.arange(24)[None] % 64


def tiny(kind: str, **more: Any) -> PreTrainedModel:
    """A random model of a family, built from its config."""
    torch.manual_seed(0)
    config = CONFIG_MAPPING[kind](**{**SMALL, **FAMILIES.get(kind, {}), **more})
    return AutoModelForCausalLM.from_config(config).eval()


def logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=IDS, use_cache=False).logits


def slower(model: PreTrainedModel) -> Frequencies:
    return MrRopePro().frequencies(geometry_of(model.config), 4.0, 256)


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_table_takes_effect_inside_and_leaves_nothing_behind(kind: str) -> None:
    model = tiny(kind)
    module = rotary_module(model)
    state = {
        name: getattr(module, name) for name in ("inv_freq", "original_inv_freq", "attention_scaling", "rope_type")
    }
    values = module.inv_freq.clone()
    outside = logits(model)
    with applied(model, slower(model)) as back:
        assert back.same_as(slower(model), 1e-7)
        assert module.inv_freq.dtype == torch.float32
        inside = logits(model)
        assert live(model).same_as(slower(model), 1e-7)  # the forward pass did not change it
    assert not torch.equal(inside, outside)
    assert torch.isfinite(inside).all()
    assert torch.equal(logits(model), outside)
    assert torch.equal(module.inv_freq, values)
    for name, value in state.items():
        assert getattr(module, name) is value
    prove(model, geometry_of(model.config))


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_geometry_is_that_of_the_built_model(kind: str) -> None:
    model = tiny(kind)
    own = Native().frequencies(geometry_of(model.config), 1.0, 1)
    np.testing.assert_allclose(live(model).inv_freq, own.inv_freq, rtol=3e-6)
    assert live(model).attention_factor == pytest.approx(own.attention_factor)


def test_the_former_state_is_back_after_an_exception() -> None:
    model = tiny("llama")
    outside, table = logits(model), rotary_module(model).inv_freq

    def interrupted() -> None:
        with applied(model, slower(model)):
            assert not torch.equal(logits(model), outside)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert rotary_module(model).inv_freq is table
    assert torch.equal(logits(model), outside)


def test_tables_nest() -> None:
    model = tiny("llama")
    plain = logits(model)
    with applied(model, slower(model)):
        outer = logits(model)
        with applied(model, Unscaled().frequencies(geometry_of(model.config), 1.0, 1)):
            torch.testing.assert_close(logits(model), plain)
        assert torch.equal(logits(model), outer)
    assert torch.equal(logits(model), plain)


def test_the_attention_factor_multiplies_scores_by_its_square() -> None:
    model = tiny("llama")
    hidden, positions = torch.zeros(1, 1, 64), torch.tensor([[5]])
    geometry = geometry_of(model.config)
    with applied(model, Frequencies(geometry.inv_freq(), 1.5)):
        cos, sin = rotary_module(model)(hidden, positions)
    torch.testing.assert_close(cos**2 + sin**2, torch.full_like(cos, 2.25))


def test_a_table_of_the_wrong_size_is_refused() -> None:
    model = tiny("llama")
    with (
        pytest.raises(UsageError, match="table has 4 pairs, the model's rotary module 8"),
        applied(model, Unscaled().frequencies(RopeGeometry(8, 1e4, 64), 1.0, 1)),
    ):
        pass
    with pytest.raises(UsageError, match="config says 4 rotary pairs, the built model has 8"):
        prove(model, RopeGeometry(8, 1e4, 64))


@pytest.mark.parametrize(
    "kind, more, reason",
    [
        ("gemma3_text", {"head_dim": 16}, "gemma3_text: several rotary tables in one module"),
        ("olmo3", {}, "olmo3: several rotary tables in one module"),
        ("gpt2", {"n_positions": 64}, "gpt2: no rotary module .*no RoPE to scale"),
        ("bloom", {}, "bloom: no rotary module"),
    ],
)
def test_what_cannot_be_scaled_is_refused_with_the_reason(kind: str, more: dict[str, Any], reason: str) -> None:
    model = tiny(kind, **more)
    if kind == "olmo3" and not any(name.endswith("_attention_inv_freq") for name, _ in model.named_buffers()):
        return prove(model, geometry_of(model.config))  # in the oldest supported transformers it has one table
    for refuse in (lambda: rotary_module(model), lambda: prove(model, RopeGeometry(16, 1e4, 64))):
        with pytest.raises(UsageError, match=reason):
            refuse()


def test_a_real_model_that_does_not_use_its_rotary_module_is_refused() -> None:
    # Falcon with ALiBi keeps a rotary module and never rotates by it
    model = tiny("falcon", alibi=True)
    with pytest.raises(UsageError, match="falcon: setting the rotary table changed nothing"):
        prove(model, geometry_of(model.config))


class Rotary(torch.nn.Module):
    """A rotary module as transformers has it."""

    def __init__(self, pairs: int = 4) -> None:
        super().__init__()
        self.register_buffer("inv_freq", 1e4 ** (-torch.arange(pairs) / pairs), persistent=False)
        self.register_buffer("original_inv_freq", self.inv_freq.clone(), persistent=False)
        self.attention_scaling = 1.0
        self.rope_type = "default"


class Fake(torch.nn.Module):
    """Something with a rotary module whose logits are made by `how(rotary, ids)`."""

    def __init__(self, how: Any, *rotary: torch.nn.Module) -> None:
        super().__init__()
        self.rotary = torch.nn.ModuleList(rotary)
        self.config = SimpleNamespace(model_type="fake", vocab_size=8)
        self.how = how

    def forward(self, input_ids: torch.Tensor, use_cache: bool) -> Any:
        return SimpleNamespace(logits=self.how(self.rotary[0], input_ids))


def forgetful(calls: list[int]) -> Any:
    """Logits that depend on the table, and on how often the model was called."""

    def how(rotary: Any, ids: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return ids[..., None] * rotary.inv_freq * rotary.attention_scaling + len(calls)

    return how


GEOMETRY = RopeGeometry(8, 1e4, 64)


@pytest.mark.parametrize(
    "how, reason",
    [
        (lambda rotary, ids: ids[..., None] * rotary.attention_scaling, "the rotary table changed nothing"),
        (lambda rotary, ids: ids[..., None] * rotary.inv_freq, "the attention factor changed nothing"),
        (lambda rotary, ids: ids[..., None] * 1.0, "changed nothing"),
        (forgetful([]), "did not return to its former output"),
    ],
    ids=["ignores the table", "ignores the attention factor", "ignores both", "keeps state"],
)
def test_prove_refuses_a_model_that_does_not_follow(how: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=f"fake: .*{reason}"):
        prove(Fake(how, Rotary()), GEOMETRY)


def test_prove_accepts_a_model_that_follows() -> None:
    prove(Fake(lambda rotary, ids: ids[..., None] * rotary.inv_freq * rotary.attention_scaling, Rotary()), GEOMETRY)


def test_two_rotary_modules_and_an_old_layout_are_refused() -> None:
    with pytest.raises(UsageError, match="fake: 2 rotary modules where one is expected"):
        rotary_module(Fake(None, Rotary(), Rotary()))
    old = Rotary()
    del old.rope_type, old.attention_scaling
    with pytest.raises(UsageError, match="lacks attention_scaling, rope_type; not the layout of transformers v5"):
        rotary_module(Fake(None, old))


def test_a_read_back_that_differs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    table = rotary_module(model).inv_freq
    monkeypatch.setattr(apply, "live", lambda _: Frequencies(np.ones(8)))
    with (
        pytest.raises(RuntimeError, match="read back from the model is not the one that was set"),
        applied(model, slower(model)),
    ):
        pass
    assert rotary_module(model).inv_freq is table


def test_a_table_changed_while_in_use_is_an_error() -> None:
    model = tiny("llama")
    outside = logits(model)
    with pytest.raises(RuntimeError, match="changed while in use"), applied(model, slower(model)):
        rotary_module(model).inv_freq.mul_(0.5)
    assert torch.equal(logits(model), outside)


def test_a_shipped_scaling_is_never_applied_twice() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e4}
    shipped = tiny("llama", max_position_embeddings=256, rope_parameters=scaling)
    plain = tiny("llama")
    geometry = geometry_of(shipped.config)
    assert geometry == RopeGeometry(16, 1e4, 64, shipped=geometry.shipped, extended_length=256)
    with applied(shipped, Unscaled().frequencies(geometry, 4.0, 24)):
        torch.testing.assert_close(logits(shipped), logits(plain))
    with applied(shipped, Yarn().frequencies(geometry, 4.0, 24)):
        torch.testing.assert_close(logits(shipped), _own(shipped))


def _own(model: PreTrainedModel) -> torch.Tensor:
    """Logits of the checkpoint as it ships, built anew."""
    torch.manual_seed(0)
    return logits(AutoModelForCausalLM.from_config(model.config).eval())


# Sliding windows


@pytest.mark.parametrize(
    "kind, more, window",
    [
        ("mistral", {"sliding_window": 4096}, 4096),
        ("mistral", {"sliding_window": None}, None),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 32768}, None),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 512, "max_window_layers": 1}, 512),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 512, "max_window_layers": 2}, None),
        ("qwen3", {}, None),
        ("gemma2", {"sliding_window": 4096}, 4096),
        ("gemma2", {"sliding_window": 4096, "layer_types": ["full_attention"] * 2}, None),
        ("gemma3_text", {"sliding_window": 512}, 512),
        ("phi3", {"sliding_window": 2047}, 2047),
        ("gpt_oss", {"sliding_window": 128}, 128),
        ("cohere2", {"sliding_window": 4096}, 4096),
        ("llama4_text", {"attention_chunk_size": 8192}, 8192),
        ("llama", {}, None),
        ("smollm3", {}, None),
        ("gpt_neox", {}, None),
    ],
)
def test_sliding_window(kind: str, more: dict[str, Any], window: int | None) -> None:
    config = CONFIG_MAPPING[kind](**{**SMALL, **more})
    assert sliding_window(config) == window


def test_sliding_window_of_a_composite_is_that_of_its_text_part() -> None:
    assert sliding_window(CONFIG_MAPPING["gemma3"]()) == 4096

"""What a checkpoint was trained with, read from every layout its config may have."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from transformers import CONFIG_MAPPING, Gemma3Config, Phi3Config, PreTrainedConfig, Qwen3Config

from ropebench.errors import UsageError
from ropebench.geometry import Frequencies, RopeGeometry, geometry_of
from ropebench.methods import Native, PositionInterpolation, Unscaled, Yarn

OLD = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}


def read(config: Any, **given: Any) -> tuple[int, float, int, int]:
    geometry = geometry_of(config, **given)
    return geometry.rotary_dim, geometry.theta, geometry.trained_length, geometry.extended_length


def config_of(kind: str, **more: Any) -> PreTrainedConfig:
    return CONFIG_MAPPING[kind](**more)


# Layouts


def test_old_layout() -> None:
    assert read(OLD) == (128, 500000.0, 8192, 8192)
    assert geometry_of({**OLD, "rope_scaling": None}).shipped == {}


def test_new_layout() -> None:
    new = {**OLD, "rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}
    assert geometry_of(new) == geometry_of(OLD)


def test_both_layouts_of_a_shipped_scaling_are_the_same_geometry() -> None:
    old = {**OLD, "rope_scaling": {"type": "linear", "factor": 4.0}}
    new = {**OLD, "rope_parameters": {"rope_type": "linear", "factor": 4.0}}
    assert geometry_of(old) == geometry_of(new)
    assert geometry_of(old).shipped == {"rope_type": "linear", "factor": 4.0}


def test_the_v5_layout_wins_over_an_older_one_beside_it() -> None:
    both = {**OLD, "rope_theta": 10000.0, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}
    assert geometry_of(both).theta == 500000.0


def test_a_text_config_inside_a_composite_is_read() -> None:
    assert read({"model_type": "llava", "text_config": OLD}) == (128, 500000.0, 8192, 8192)


# Rotary width


@pytest.mark.parametrize(
    "kind, more, rotary_dim",
    [
        ("llama", {"hidden_size": 512, "num_attention_heads": 8}, 64),
        ("llama", {"hidden_size": 512, "num_attention_heads": 8, "head_dim": 32}, 32),
        ("mistral", {"hidden_size": 512, "num_attention_heads": 8, "head_dim": 128}, 128),
        ("qwen2", {"hidden_size": 512, "num_attention_heads": 8}, 64),
        ("qwen3", {"hidden_size": 512, "num_attention_heads": 8, "head_dim": 128}, 128),
        ("qwen3_moe", {"hidden_size": 512, "num_attention_heads": 8, "head_dim": 128}, 128),
        ("phi", {"hidden_size": 512, "num_attention_heads": 8, "partial_rotary_factor": 0.5}, 32),
        ("phi3", {"hidden_size": 512, "num_attention_heads": 8, "pad_token_id": 0}, 64),
        ("gpt_neox", {"hidden_size": 512, "num_attention_heads": 8, "rotary_pct": 0.25}, 16),
        ("olmo", {"hidden_size": 512, "num_attention_heads": 8}, 64),
        ("olmo2", {"hidden_size": 512, "num_attention_heads": 8}, 64),
        ("gemma2", {"hidden_size": 512, "num_attention_heads": 8, "head_dim": 256}, 256),
        ("smollm3", {"hidden_size": 512, "num_attention_heads": 8}, 64),
        ("granite", {"hidden_size": 512, "num_attention_heads": 8}, 64),
        ("stablelm", {"hidden_size": 512, "num_attention_heads": 8, "partial_rotary_factor": 0.25}, 16),
        ("cohere", {"hidden_size": 512, "num_attention_heads": 8}, 64),
        ("gpt_oss", {"hidden_size": 512, "num_attention_heads": 8, "head_dim": 64}, 64),
        ("deepseek_v3", {"hidden_size": 512, "num_attention_heads": 8, "qk_rope_head_dim": 32}, 32),
    ],
)
def test_rotary_width_and_base_of_every_family(kind: str, more: dict[str, Any], rotary_dim: int) -> None:
    """The base lies in rope_parameters in transformers 5: there is no `rope_theta` attribute to fall back on."""
    base = "rotary_emb_base" if kind == "gpt_neox" else "rope_theta"
    config = config_of(kind, max_position_embeddings=4096, **{base: 123456.0}, **more)
    geometry = geometry_of(config)
    assert geometry.rotary_dim == rotary_dim
    assert geometry.theta == 123456.0
    assert geometry.trained_length == 4096
    np.testing.assert_allclose(geometry.inv_freq(), 123456.0 ** (-np.arange(0, rotary_dim, 2) / rotary_dim))


@pytest.mark.parametrize(
    "share",
    [
        {"rotary_pct": 0.25},
        {"partial_rotary_factor": 0.25},
        {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.25}},
    ],
)
def test_partial_rotary_in_a_plain_mapping(share: dict[str, Any]) -> None:
    assert geometry_of({**OLD, **share}).rotary_dim == 32


def test_gpt_neox_in_its_first_layout() -> None:
    old = {
        "model_type": "gpt_neox",
        "hidden_size": 512,
        "num_attention_heads": 8,
        "rotary_pct": 0.25,
        "rotary_emb_base": 10000,
        "max_position_embeddings": 2048,
    }
    assert read(old) == (16, 10000.0, 2048, 2048)


def test_no_head_width_is_an_error() -> None:
    with pytest.raises(UsageError, match="neither head_dim nor hidden_size"):
        geometry_of({"model_type": "x", "rope_theta": 1e4, "max_position_embeddings": 64})


# Lengths


def test_an_alias_may_know_the_trained_length_better_than_the_config() -> None:
    # Mistral-7B-v0.1 states 32768 positions; a YaRN'd copy may state anything
    assert read(OLD, trained_length=4096) == (128, 500000.0, 4096, 4096)


def test_llama31_was_trained_on_8k_and_reaches_128k() -> None:
    # ... not the 64K that factor × original would say
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    for config in (
        {**OLD, "max_position_embeddings": 131072, "rope_scaling": scaling},
        config_of("llama", max_position_embeddings=131072, rope_theta=5e5, rope_scaling=dict(scaling), head_dim=128),
    ):
        assert read(config) == (128, 500000.0, 8192, 131072)


def test_qwen_yarn_states_the_trained_length() -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    assert read({**OLD, "max_position_embeddings": 32768, "rope_scaling": scaling})[2:] == (32768, 131072)
    config = Qwen3Config(
        max_position_embeddings=32768, rope_parameters={"rope_theta": 1e6, **scaling, "rope_type": "yarn"}
    )
    assert read(config) == (128, 1e6, 32768, 131072)


def test_linear_and_dynamic_state_the_trained_length() -> None:
    for kind in ("linear", "dynamic"):
        assert read({**OLD, "rope_scaling": {"type": kind, "factor": 4.0}})[2:] == (8192, 32768)


def test_phi3_longrope_keeps_the_trained_length_beside_its_rope_parameters() -> None:
    factors = {"short_factor": [1.0] * 48, "long_factor": [2.0] * 48}
    config = Phi3Config(
        hidden_size=3072,
        num_attention_heads=32,
        max_position_embeddings=131072,
        original_max_position_embeddings=4096,
        rope_parameters={"rope_type": "longrope", "rope_theta": 1e4, **factors},
    )
    old = {
        **OLD,
        "hidden_size": 3072,
        "rope_theta": 1e4,
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rope_scaling": {"type": "longrope", **factors},
    }
    for each in (config, old):
        assert read(each) == (96, 1e4, 4096, 131072)
        attention = Native().frequencies(geometry_of(each), 1.0, 8192).attention_factor
        assert attention == pytest.approx(math.sqrt(1 + math.log(32) / math.log(4096)))


def test_an_original_length_without_a_scaling_means_nothing() -> None:
    # phi3-mini-4k states both, and ships no scaling
    assert read({**OLD, "original_max_position_embeddings": 4096})[2:] == (8192, 8192)


def test_no_length_in_the_config_asks_for_one() -> None:  # FAULT 47: never a fallback maximum
    config = {key: value for key, value in OLD.items() if key != "max_position_embeddings"}
    with pytest.raises(UsageError, match=r"no usable length .*give the trained length"):
        geometry_of(config)
    assert read(config, trained_length=2048) == (128, 500000.0, 2048, 2048)


def test_the_config_is_not_touched() -> None:
    config = config_of("llama", rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4})
    before = config.to_json_string()
    geometry = geometry_of(config)
    assert config.to_json_string() == before
    config.rope_parameters["factor"] = 99.0
    assert geometry.shipped["factor"] == 2.0


# Refused, with the reason


@pytest.mark.parametrize("kind", ["gpt2", "bloom", "opt", "mpt"])
def test_a_model_without_rope_is_refused(kind: str) -> None:
    with pytest.raises(UsageError, match=f"{kind}: .*without rotary position embeddings.*choose a model with RoPE"):
        geometry_of(config_of(kind))


@pytest.mark.parametrize("kind", ["gemma3_text", "olmo3"])
def test_several_rotary_tables_are_refused(kind: str) -> None:
    with pytest.raises(UsageError, match=f"{kind}: .*several rotary tables .*full_attention, sliding_attention"):
        geometry_of(config_of(kind))


def test_several_rotary_tables_inside_a_composite_are_refused() -> None:
    with pytest.raises(UsageError, match="several rotary tables"):
        geometry_of(Gemma3Config())


@pytest.mark.parametrize(
    "scaling",
    [
        {"type": "mrope", "mrope_section": [16, 24, 24]},
        {"rope_type": "default", "mrope_section": [16, 24, 24]},
        {"type": "mrope"},
    ],
)
def test_multimodal_rope_is_refused(scaling: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="qwen2_vl: multimodal RoPE"):
        geometry_of({**OLD, "model_type": "qwen2_vl", "rope_scaling": scaling})


def test_multimodal_rope_is_refused_in_the_v5_layout() -> None:
    config = config_of("qwen2_vl", rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]})
    with pytest.raises(UsageError, match="multimodal RoPE"):
        geometry_of(config)


@pytest.mark.parametrize(
    "values, message",
    [
        ((7, 1e4, 64), "rotary_dim must be an even number"),
        ((0, 1e4, 64), "rotary_dim must be an even number"),
        ((8, 1.0, 64), "theta must be a number > 1, not 1.0"),
        ((8, math.nan, 64), "theta must be a number > 1, not nan"),
        ((8, math.inf, 64), "theta must be a number > 1, not inf"),
        ((8, 1e4, 0), "from 1 to 1099511627776 tokens, not 0"),
    ],
)
def test_impossible_geometries_are_refused(values: tuple[int, float, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RopeGeometry(*values)


@pytest.mark.parametrize(
    "table, attention",
    [([1.0, math.nan], 1.0), ([1.0, -0.1], 1.0), ([[1.0]], 1.0), ([1.0], 0.0), ([1.0], -1.0), ([1.0], math.inf)],
)
def test_impossible_tables_are_refused(table: list[Any], attention: float) -> None:
    with pytest.raises(UsageError, match="must be"):
        Frequencies(np.array(table), attention)


# A shipped table as the base


def test_on_base_starts_from_the_shipped_table_and_its_reach() -> None:
    geometry = geometry_of({**OLD, "rope_scaling": {"type": "yarn", "factor": 4.0}})
    shipped = Native().frequencies(geometry, 1.0, 1)
    based = geometry.on_base(shipped)
    assert (based.trained_length, based.extended_length) == (32768, 32768)
    assert Unscaled().frequencies(based, 1.0, 1).same_as(shipped, 0.0)
    doubled = PositionInterpolation().frequencies(based, 2.0, 1)
    np.testing.assert_array_equal(doubled.inv_freq, shipped.inv_freq / 2)
    assert doubled.attention_factor == shipped.attention_factor  # the shipped one stays


def test_the_band_is_read_off_the_base_table() -> None:
    plain = RopeGeometry(128, 1e4, 4096)
    for turns in (1000.0, 32.0, 1.0, 0.01):  # beyond both ends of the table too
        same = plain.on_base(Frequencies(plain.inv_freq()))
        assert same.pair_at(turns) == pytest.approx(plain.pair_at(turns), abs=1e-9)
    slowed = plain.on_base(PositionInterpolation().frequencies(plain, 4.0, 1))
    assert slowed.pair_at(8.0) == pytest.approx(plain.pair_at(32.0), abs=1e-9)
    # so YaRN keeps exactly the pairs that turn 32 times under the table the model has
    kept = Yarn().frequencies(slowed, 2.0, 1).inv_freq == slowed.inv_freq()
    assert kept[slowed.rotations() > 32].all()
    assert not kept[slowed.rotations() < 20].any()

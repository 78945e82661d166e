"""Faults of earlier tools in frequencies, attention factors, switching, configs and precision: each cannot happen here.

The number of the public report stands in a comment at each test. `ratio` is default frequency ÷ scaled frequency: 1 is
untouched, the factor is fully interpolated.
"""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import (
    AttentionInterface,
    AutoModelForCausalLM,
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    PhiConfig,
    PreTrainedModel,
)

from ropebench.apply import applied, live, rotary_module
from ropebench.engine import Engine
from ropebench.errors import UsageError
from ropebench.geometry import Frequencies, RopeGeometry, geometry_of
from ropebench.method import Method
from ropebench.methods import (
    DynamicNtk,
    Llama3,
    LongRope,
    MrRopePro,
    MrRopeUni,
    Native,
    Ntk,
    NtkByParts,
    PositionInterpolation,
    Unscaled,
    Yarn,
)
from ropebench.prompt import Encoder
from ropebench.registry import Registry

REGISTRY = Registry.load()
NAMES = [entry.name for entry in REGISTRY.of("method")]
SCALING = [name for name in NAMES if REGISTRY.entry("method", name).cls.scales]

# transformers renames `past_key_values` to `cache`
CACHE = "cache" if "cache" in inspect.signature(LlamaForCausalLM.forward).parameters else "past_key_values"

C1 = RopeGeometry(128, 1e4, 4096)  # at factor 16
C2 = RopeGeometry(128, 1e6, 32768)  # at factor 4
C3 = RopeGeometry(64, 150000.0, 4096)  # at factor 32
C4 = RopeGeometry(128, 5e5, 8192)  # llama3, factor 8
PLAIN = RopeGeometry(128, 1e4, 4096)


def build(name: str, pairs: int) -> Method:
    cls = REGISTRY.entry("method", name).cls
    return cls(long_factor=tuple(1.0 + j for j in range(pairs))) if name == "longrope" else cls()


def ratio(geometry: RopeGeometry, table: Frequencies) -> NDArray[np.float64]:
    return geometry.inv_freq() / table.inv_freq


def tiny(**more: Any) -> PreTrainedModel:
    """The small model of the reports: head_dim 16, base 10000, window 64."""
    torch.manual_seed(0)
    config = LlamaConfig(
        **{
            "vocab_size": 64,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
            **more,
        }
    )
    return AutoModelForCausalLM.from_config(config).eval()


def ids(n: int) -> list[int]:
    return torch.randint(0, 64, (n,), generator=torch.Generator().manual_seed(n)).tolist()


class Letters:
    """A tokenizer of which only the absence of special tokens is used."""

    bos_token_id = None
    eos_token_id = None


def engine(model: PreTrainedModel) -> Engine:
    return Engine(model, Encoder(Letters()))


# Frequencies


def test_the_scaled_table_is_the_one_returned() -> None:  # 01
    table = Llama3().frequencies(C4, 8.0, 1)
    assert ratio(C4, table)[28] == 1.0
    assert table.inv_freq[31] == pytest.approx(8.567515e-04, rel=1e-6)
    assert ratio(C4, table)[31] == pytest.approx(2.026313, rel=1e-6)
    assert table.inv_freq[35] == pytest.approx(9.556212e-05, rel=1e-6)
    assert ratio(C4, table)[35] == pytest.approx(8.0, rel=1e-12)
    wavelength = 2 * np.pi / C4.inv_freq()
    assert wavelength[31] == pytest.approx(3619.25, abs=0.01)
    assert (ratio(C4, table)[wavelength < 2048] == 1).all()
    np.testing.assert_allclose(ratio(C4, table)[wavelength > 8192], 8.0, rtol=1e-12)
    assert ((ratio(C4, table) > 1) & (ratio(C4, table) < 8)).sum() == ((wavelength > 2048) & (wavelength < 8192)).sum()


@pytest.mark.parametrize("length, last", [(100, 1), (4096, 1), (6144, 2), (8192, 3), (16384, 7)])
def test_dynamic_scales_by_the_current_length(length: int, last: float) -> None:  # 02
    table = DynamicNtk(f=2.0).frequencies(PLAIN, 2.0, length)
    assert ratio(PLAIN, table)[-1] == pytest.approx(last, rel=1e-12)


DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}


@pytest.mark.parametrize("shipped", [False, True], ids=["plain checkpoint", "dynamic checkpoint"])
def test_a_long_sample_leaves_no_frequencies_to_a_shorter_one(shipped: bool) -> None:  # 03
    def model() -> PreTrainedModel:
        return tiny(rope_parameters=dict(DYNAMIC)) if shipped else tiny()

    def nll(model: PreTrainedModel, length: int) -> Any:
        geometry = geometry_of(model.config)
        method = Native() if shipped else DynamicNtk(f=2.0)
        with applied(model, method.frequencies(geometry, 2.0, length)) as table:
            assert ratio(geometry, table)[-1] == pytest.approx(2 * length / 64 - 1, rel=1e-6)
            return engine(model).nll(ids(length))

    used = model()
    long = nll(used, 256)
    short = nll(used, 128)
    np.testing.assert_array_equal(short, nll(model(), 128))
    np.testing.assert_array_equal(long, nll(used, 256))
    if shipped:  # and it is what a fresh model does when left alone
        with torch.inference_mode():
            alone = model()(input_ids=torch.tensor([ids(128)]), labels=torch.tensor([ids(128)])).loss
        assert short.mean() == pytest.approx(float(alone), abs=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_cached_decoding_equals_one_full_pass(name: str) -> None:  # 04
    model = tiny()
    method = build(name, 8)
    tokens = torch.tensor([ids(100)])
    # the total length is fixed before the pass, so that even a length-dependent method has one table
    with torch.inference_mode(), applied(model, method.frequencies(geometry_of(model.config), 4.0, 100)):
        whole = model(input_ids=tokens, use_cache=False).logits[0, 59:]
        keep: dict[str, Any] = {"use_cache": True, CACHE: DynamicCache(config=model.config)}
        steps = [model(input_ids=tokens[:, :60], **keep).logits[0, -1]]
        steps += [model(input_ids=tokens[:, t : t + 1], **keep).logits[0, -1] for t in range(60, 100)]
    torch.testing.assert_close(torch.stack(steps), whole, atol=1e-5, rtol=0)


def test_ntk_raises_the_base_with_its_exponent() -> None:  # 05
    table = Ntk().frequencies(PLAIN, 8.0, 1)
    assert table.inv_freq[1] ** -64 == pytest.approx(82684.6226, rel=1e-8)
    assert ratio(PLAIN, table)[0] == 1.0
    assert ratio(PLAIN, table)[63] == pytest.approx(8.0, rel=1e-14)  # base·s without the exponent gives 7.7442


def test_yarn_blends_frequencies_not_wavelengths() -> None:  # 06
    table = Yarn().frequencies(C1, 16.0, 1)
    assert table.inv_freq[33] == pytest.approx(4.600435e-03, rel=1e-6)  # wavelengths give 1.018782e-03
    assert ratio(C1, table)[33] == pytest.approx(1 / (0.5 + 0.5 / 16), rel=1e-12)


@pytest.mark.parametrize("truncate, at_17", [(True, 7.804877), (False, 13.757522)])
def test_truncate_is_heard(truncate: bool, at_17: float) -> None:  # 07
    shipped = {"rope_type": "yarn", "factor": 32.0, "truncate": truncate}
    native = Native().frequencies(RopeGeometry(64, 150000.0, 4096, shipped), 1.0, 1)
    for table in (Yarn(truncate=truncate).frequencies(C3, 32.0, 1), native):
        assert ratio(C3, table)[17] == pytest.approx(at_17, rel=1e-6)
        assert ratio(C3, table)[18] == pytest.approx(32.0, rel=1e-12)
        assert ratio(C3, table)[8] == 1.0
        assert table.attention_factor == pytest.approx(1.3465736, rel=1e-7)


def test_the_factor_stands_outside_the_power() -> None:  # 08
    table = Yarn().frequencies(C2, 4.0, 1)
    assert ratio(C2, table)[40] == pytest.approx(4.0, rel=1e-12)  # inside it: 4^(80/128) = 2.378
    assert ratio(C2, table)[23] == 1.0
    assert table.attention_factor == pytest.approx(1.1386294, rel=1e-7)


def test_no_type_multiplies_positions_by_default() -> None:  # 09
    model = tiny()
    geometry = geometry_of(model.config)
    for length in (10, 64):
        with applied(model, DynamicNtk(f=2.0).frequencies(geometry, 2.0, length)):
            cos, _ = rotary_module(model)(torch.zeros(1, 1, 32), torch.tensor([[10]]))
        assert float(cos[0, 0, 0]) == pytest.approx(-0.839072, abs=1e-6)
    with pytest.raises(UsageError, match=r"unknown method 'dynamicc'; did you mean 'dynamic'\?"):
        REGISTRY.build("method", "dynamicc")
    with pytest.raises(UsageError, match="unknown rope_type"):
        Native().frequencies(RopeGeometry(16, 1e4, 64, {"rope_type": "scaled", "factor": 2.0}), 1.0, 1)


@pytest.mark.parametrize("name", SCALING)
def test_partial_rotary_uses_the_rotary_width(name: str) -> None:  # 10
    config = PhiConfig(
        vocab_size=64,
        hidden_size=128,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=64,
        partial_rotary_factor=0.5,
    )
    geometry = geometry_of(config)
    assert geometry.pairs == 32
    assert geometry.inv_freq()[1] == pytest.approx(0.749894, rel=1e-6)  # 0.865964 with the whole head's width
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def watch(module: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, **__: Any) -> Any:
        seen.append((q, k))
        return v.transpose(1, 2), None

    AttentionInterface.register("watch", watch)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="watch").eval()
    with torch.inference_mode():
        for method in (Unscaled(), build(name, 32)):
            table = method.frequencies(geometry, 4.0, 256)
            assert table.inv_freq.shape == (32,)
            with applied(model, table):
                model(input_ids=torch.arange(24)[None])
    for plain, scaled in zip(*seen, strict=True):
        assert torch.equal(plain[..., 64:], scaled[..., 64:])
        assert not torch.equal(plain[..., :64], scaled[..., :64])


def test_mrrope_values_of_the_public_code() -> None:
    uni = ratio(PLAIN, MrRopeUni().frequencies(PLAIN, 10.0, 1))
    pro = ratio(PLAIN, MrRopePro().frequencies(PLAIN, 10.0, 1))
    yarn = ratio(PLAIN, Yarn().frequencies(PLAIN, 10.0, 1))
    assert (uni[33], uni[45]) == pytest.approx((3.162278, 9.152473), rel=1e-6)
    assert (pro[33], pro[45]) == pytest.approx((1.816600, 8.431909), rel=1e-6)
    assert (yarn[33], yarn[45]) == pytest.approx((1.818182, 7.428571), rel=1e-6)  # at 33 hardly apart from Pro
    for method in (MrRopeUni(), MrRopePro(), Yarn()):
        assert method.frequencies(PLAIN, 10.0, 1).attention_factor == pytest.approx(0.1 * math.log(10) + 1)


# Attention factor


def native_of(length: int = 4096, theta: float = 1e4, original: int | None = 4096, **rope: Any) -> Frequencies:
    """The table of a checkpoint that ships `rope` in its config, in the older layout."""
    config = {
        "model_type": "llama",
        "head_dim": 128,
        "rope_theta": theta,
        "max_position_embeddings": length,
        "rope_scaling": {**rope, "original_max_position_embeddings": original},
    }
    return Native().frequencies(geometry_of(config), 1.0, 1)


def test_an_explicit_attention_factor_is_heard() -> None:  # 11
    assert native_of(type="yarn", factor=64.0, attention_factor=1.0).attention_factor == 1.0
    assert native_of(type="yarn", factor=64.0).attention_factor == pytest.approx(1.4158883, rel=1e-7)
    model = tiny()
    with applied(model, Yarn(attention_factor=1.0).frequencies(geometry_of(model.config), 64.0, 1)):
        assert live(model).attention_factor == 1.0


def test_mscale_and_mscale_all_dim_are_heard() -> None:  # 12
    for a in (
        native_of(type="yarn", factor=16.0, mscale=1.0, mscale_all_dim=1.0).attention_factor,
        Yarn(mscale=1.0, mscale_all_dim=1.0).frequencies(C1, 16.0, 1).attention_factor,
    ):
        assert a == 1.0
    assert native_of(type="yarn", factor=16.0).attention_factor == pytest.approx(1.2772589, rel=1e-7)
    half = Yarn(mscale=0.5, mscale_all_dim=1.0).frequencies(C1, 16.0, 1).attention_factor
    assert half == pytest.approx((0.05 * math.log(16) + 1) / (0.1 * math.log(16) + 1))


def test_an_explicit_factor_is_not_overruled_by_lengths() -> None:  # 13
    table = native_of(40960, 1e6, 32768, type="yarn", factor=4.0)
    assert ratio(C2, table)[-1] == pytest.approx(4.0, rel=1e-12)  # 1.25 by the ratio
    assert table.attention_factor == pytest.approx(1.1386294, rel=1e-7)  # 1.0223144 by the ratio


def test_longrope_attention_factor() -> None:  # 14
    factors = {"short_factor": [1.0] * 64, "long_factor": [2.0] * 64}
    table = native_of(131072, type="longrope", **factors)
    assert table.attention_factor == pytest.approx(1.1902381, rel=1e-7)
    given = native_of(131072, type="longrope", attention_factor=1.3, **factors)
    assert given.attention_factor == 1.3


# LongRoPE switching

LONG = LongRope(short_factor=(1.0,) * 48, long_factor=tuple(1.0 + j for j in range(48)))


@pytest.mark.parametrize("length, last", [(4095, 1.211527e-04), (4096, 1.211527e-04), (4097, 2.524016e-06)])
def test_the_original_length_itself_is_short(length: int, last: float) -> None:  # 15
    table = LONG.frequencies(RopeGeometry(96, 1e4, 4096), 32.0, length)
    assert table.inv_freq[-1] == pytest.approx(last, rel=1e-6)


@pytest.mark.parametrize("window", [4096, 131072])
def test_the_sequence_and_not_the_window_picks_the_factors(window: int) -> None:  # 16
    shipped = {
        "rope_type": "longrope",
        "short_factor": LONG.params["short_factor"],
        "long_factor": LONG.params["long_factor"],
    }
    geometry = RopeGeometry(96, 1e4, 4096, shipped, extended_length=window)
    assert Native().frequencies(geometry, 1.0, 10).inv_freq[-1] == pytest.approx(1.211527e-04, rel=1e-6)
    assert LONG.frequencies(geometry, window / 4096, 10).inv_freq[-1] == pytest.approx(1.211527e-04, rel=1e-6)


# Configs of transformers 5


def test_the_base_is_carried_over() -> None:  # 17
    right = pytest.approx(2.578346e-06, rel=1e-6)  # 7.905694e-05 with a base of 10000
    old = {"model_type": "llama", "head_dim": 16, "rope_theta": 5e5, "max_position_embeddings": 64}
    new = {**old, "rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    model = tiny(rope_parameters=new["rope_parameters"])
    assert not hasattr(model.config, "rope_theta")
    for config in (old, new, model.config):
        assert PositionInterpolation().frequencies(geometry_of(config), 4.0, 1).inv_freq[-1] == right
    with applied(model, PositionInterpolation().frequencies(geometry_of(model.config), 4.0, 1)):
        assert live(model).inv_freq[-1] == right
    shipped = tiny(rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5})
    assert live(shipped).inv_freq[-1] == right
    assert Native().frequencies(geometry_of(shipped.config), 1.0, 1).inv_freq[-1] == right


@pytest.mark.parametrize("name", NAMES)
def test_what_is_live_is_the_method_and_not_the_config(name: str) -> None:  # 18
    model = tiny()
    geometry = geometry_of(model.config)
    base, tokens = live(model), torch.tensor([ids(32)])
    table = build(name, 8).frequencies(geometry, 4.0, 256)
    with torch.inference_mode():
        plain = model(input_ids=tokens).logits
        with applied(model, table) as back:
            assert back.same_as(table, 1e-7)
            scaled = model(input_ids=tokens).logits
            assert live(model).same_as(table, 1e-7)
    scales = name in SCALING
    assert back.same_as(base) is not scales
    # the unscaled table is computed in float64, the model's own in float32: equal but for the last bit
    assert torch.allclose(scaled, plain, atol=2e-6, rtol=0) is not scales


def test_editing_the_config_after_loading_changes_nothing() -> None:  # 18
    model = tiny()
    geometry, table = geometry_of(model.config), live(model)
    model.config.rope_parameters.update(rope_type="linear", factor=4.0)
    assert live(model).same_as(table, 0.0)
    with applied(model, Ntk().frequencies(geometry, 2.0, 1)):
        assert live(model).same_as(Ntk().frequencies(geometry, 2.0, 1), 1e-7)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("method", [Ntk(), NtkByParts(), MrRopePro()], ids=lambda method: method.name)
def test_saving_and_reloading_leaves_no_garbage_in_rotary_buffers(  # 19
    method: Method, dtype: str, tmp_path: Path
) -> None:
    model = tiny()
    geometry = geometry_of(model.config)
    table = method.frequencies(geometry, 4.0, 1)
    with applied(model, table):
        model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=getattr(torch, dtype)).eval()
    assert again.config.rope_parameters == {"rope_type": "default", "rope_theta": 1e4}  # the table is not in the file

    def buffers() -> dict[str, torch.Tensor]:
        found = {name: value for name, value in again.named_buffers() if "inv_freq" in name}
        assert len(found) == 2
        return found

    for right in (Unscaled().frequencies(geometry, 1.0, 1), table):  # as reloaded, and with the table put in again
        with applied(again, right):
            for value in buffers().values():
                np.testing.assert_allclose(value.numpy(), right.inv_freq, rtol=1e-6)
        for value in buffers().values():
            assert torch.isfinite(value).all()
            np.testing.assert_allclose(value.float().numpy(), geometry.inv_freq(), rtol=1e-6)


@pytest.mark.parametrize(
    "stated, original, factor, right",
    [(1048576, 32768, 32.0, 1048576), (131072, 4096, 40.0, 131072), (163840, 4096, 40.0, 163840)],
)
def test_an_extended_length_is_not_multiplied_again(  # 20
    stated: int, original: int, factor: float, right: int
) -> None:
    config = {
        "model_type": "llama",
        "head_dim": 128,
        "rope_theta": 1e4,
        "max_position_embeddings": stated,
        "rope_scaling": {"type": "yarn", "factor": factor, "original_max_position_embeddings": original},
    }
    geometry = geometry_of(config)
    assert (geometry.trained_length, geometry.extended_length) == (original, right)
    assert geometry.on_base(Native().frequencies(geometry, 1.0, 1)).trained_length == right


# Precision


def wide(dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    return tiny(hidden_size=128, num_attention_heads=1, num_key_value_heads=1, max_position_embeddings=4096).to(dtype)


def cos_of_pair_one(model: PreTrainedModel, position: int = 32767) -> float:
    cos, _ = rotary_module(model)(torch.zeros(1, 1, 128), torch.tensor([[position]]))
    return float(cos[0, 0, 1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_frequencies_stay_float32_under_a_16_bit_model(dtype: torch.dtype) -> None:  # 21
    model = wide(dtype)
    assert rotary_module(model).inv_freq.dtype == dtype  # such a cast has hit the model's own table …
    if dtype == torch.bfloat16:
        assert cos_of_pair_one(model) == pytest.approx(-0.8404, abs=0.001)  # … which is the fault
    with applied(model, Unscaled().frequencies(geometry_of(model.config), 1.0, 1)):
        assert rotary_module(model).inv_freq.dtype == torch.float32
        assert cos_of_pair_one(model) == pytest.approx(0.9824, abs=0.001)
        with torch.inference_mode():
            assert model(input_ids=torch.tensor([ids(32)])).logits.dtype == dtype
        assert rotary_module(model).inv_freq.dtype == torch.float32
    assert rotary_module(model).inv_freq.dtype == dtype


def test_a_model_cast_while_a_table_is_in_use_is_an_error() -> None:  # 21
    model = wide()
    table = Yarn().frequencies(geometry_of(model.config), 4.0, 1)
    with pytest.raises(RuntimeError, match="changed while in use"), applied(model, table):
        model.to(torch.bfloat16)
    assert rotary_module(model).inv_freq.dtype == torch.float32
    assert cos_of_pair_one(model) == pytest.approx(0.9824, abs=0.001)

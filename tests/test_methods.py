"""Every built-in table is the published one: golden vectors, identities, and transformers' own functions."""

from __future__ import annotations

import dataclasses
import json
import math
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ropebench.errors import UsageError
from ropebench.geometry import Frequencies, RopeGeometry, geometry_of
from ropebench.method import Method, band, radix, yarn_attention
from ropebench.methods import (
    DynamicNtk,
    DynamicYarn,
    Llama3,
    LongRope,
    MrRopePro,
    MrRopeReg,
    MrRopeUni,
    Native,
    Ntk,
    NtkByParts,
    PositionInterpolation,
    Unscaled,
    Yarn,
    YarnPaper,
)
from ropebench.native import native_method
from ropebench.registry import Registry

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_rope.json").read_text(encoding="utf-8"))["configs"]
WORDS = list(GOLDEN[0]["tables"])
REGISTRY = Registry.load()
METHODS = REGISTRY.of("method")
NAMES = (
    "none native pi ntk dynamic_ntk ntk_by_parts ntk_by_parts_paper yarn yarn_paper dynamic_yarn longrope llama3 "
    "mrrope_uni mrrope_pro mrrope_reg"
).split()

# full and partial rotary, one pair, a tiny window, a huge base
GEOMETRIES = [
    RopeGeometry(128, 1e4, 4096),
    RopeGeometry(64, 1e5, 8192),
    RopeGeometry(96, 1e4, 4096),
    RopeGeometry(16, 1e4, 64),
    RopeGeometry(2, 1e4, 2048),
    RopeGeometry(80, 1e7, 32768),
    RopeGeometry(4, 100.0, 8),
]


def geometry_at(config: dict[str, Any]) -> RopeGeometry:
    return RopeGeometry(config["rotary_dim"], config["theta"], config["trained_length"])


def build(name: str, geometry: RopeGeometry) -> Method:
    """A method by name with the searched factors that LongRoPE cannot do without."""
    cls = REGISTRY.entry("method", name).cls
    if name == "longrope":
        return cls(long_factor=tuple(1.0 + j for j in range(geometry.pairs)))
    return cls()


def test_the_registry_holds_exactly_the_literature_names() -> None:
    assert {entry.name for entry in METHODS} == set(NAMES)
    assert REGISTRY.entry("method", "linear").name == "pi"
    assert REGISTRY.entry("method", "dynamic").name == "dynamic_ntk"


# Golden tables


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("config", GOLDEN, ids=lambda config: config["id"])
def test_golden_table(config: dict[str, Any], word: str) -> None:
    method, _ = REGISTRY.build("method", word)
    right = config["tables"][word]
    table = method.frequencies(geometry_at(config), config["factor"], 10**6)
    np.testing.assert_allclose(table.inv_freq, right["inv_freq"], rtol=1e-12, atol=0)
    assert table.attention_factor == pytest.approx(right["attention_factor"], rel=1e-12)
    exponents = np.log(geometry_at(config).inv_freq() / table.inv_freq) / math.log(config["factor"])
    assert exponents.sum() == pytest.approx(right["sum_m"], abs=1e-10)


@pytest.mark.parametrize("config", GOLDEN, ids=lambda config: config["id"])
def test_golden_bounds_and_attention_factors(config: dict[str, Any]) -> None:
    geometry, bounds, s = geometry_at(config), config["bounds"], config["factor"]
    assert band(geometry) == (bounds["low"], bounds["high"])
    assert band(geometry, truncate=False) == pytest.approx((bounds["low_float"], bounds["high_float"]), rel=1e-12)
    assert yarn_attention(s) == pytest.approx(config["attention_factor_yarn"], rel=1e-12)
    longrope = build("longrope", geometry).frequencies(geometry, s, 1)
    assert longrope.attention_factor == pytest.approx(config["attention_factor_longrope"], rel=1e-12)


@pytest.mark.parametrize("config", GOLDEN, ids=lambda config: config["id"])
def test_golden_dynamic_bases(config: dict[str, Any]) -> None:
    geometry = geometry_at(config)
    for row in config["dynamic_ntk_bases"]:
        table = DynamicNtk(f=row["f"]).frequencies(geometry, 1.0, int(row["ratio"] * geometry.trained_length))
        right = row["base"] ** (-2 * np.arange(geometry.pairs) / geometry.rotary_dim)
        np.testing.assert_allclose(table.inv_freq, right, rtol=1e-12, atol=0)


# Identities


@pytest.mark.parametrize("config", GOLDEN, ids=lambda config: config["id"])
def test_mixed_radix_identities(config: dict[str, Any]) -> None:
    geometry, s = geometry_at(config), config["factor"]
    (low, high), half = band(geometry), geometry.pairs
    n = int(high - low)
    m = {
        method.name: np.log(geometry.inv_freq() / method.frequencies(geometry, s, 1).inv_freq) / math.log(s)
        for method in (MrRopeUni(), MrRopePro(), MrRopeReg())
    }
    for exponents in m.values():
        assert np.abs(exponents[: int(low) + 1]).max() < 1e-12  # exactly the trained pairs
        assert np.abs(exponents[int(high) :] - 1).max() < 1e-12  # exactly slowed by s
    assert m["mrrope_uni"].sum() == pytest.approx(half - high + (n - 1) / 2)
    assert m["mrrope_pro"].sum() == pytest.approx(half - high + (n - 1) / 3)
    assert m["mrrope_reg"].sum() == pytest.approx(half - high + 2 * (n - 1) / 3)
    q = np.arange(n + 1)
    pro, reg = m["mrrope_pro"][int(low) + q], m["mrrope_reg"][int(low) + n - q]
    np.testing.assert_allclose(pro + reg, 1.0, atol=1e-12)


def digits_in_band(method: Method, s: float) -> np.ndarray[Any, Any]:
    """λ of the pairs wholly inside the band: the first and the last step of the paper's ramp are partial ones."""
    geometry = RopeGeometry(128, 1e4, 4096)
    low, high = band(geometry)
    return radix(geometry, method.frequencies(geometry, s, 1))[int(low) + 2 : int(high)]


@pytest.mark.parametrize("s", [16.0, 32.0, 64.0])
def test_which_way_the_radix_runs(s: float) -> None:
    trend = {
        method.name: np.diff(digits_in_band(method, s))
        for method in (Yarn(), YarnPaper(), MrRopeUni(), MrRopePro(), MrRopeReg())
    }
    assert (trend["yarn"] > 0).all()
    assert (trend["mrrope_pro"] > 0).all()
    assert np.abs(trend["mrrope_uni"]).max() < 1e-12
    assert (trend["mrrope_reg"] < 0).all()
    # YaRN's published equation is regressive only below s = β/α = 32, uniform there, and progressive above
    if s == 32.0:
        assert np.abs(trend["yarn_paper"]).max() < 1e-12
    else:
        assert (trend["yarn_paper"] < 0).all() if s < 32 else (trend["yarn_paper"] > 0).all()


@pytest.mark.parametrize("s", [2.0, 7.5, 64.0])
def test_interpolation_slows_every_pair_and_ntk_the_last_by_the_factor(s: float) -> None:
    for geometry in GEOMETRIES:
        plain = geometry.inv_freq()
        np.testing.assert_array_equal(PositionInterpolation().frequencies(geometry, s, 1).inv_freq, plain / s)
        if geometry.pairs > 1:
            slowdown = plain / Ntk().frequencies(geometry, s, 1).inv_freq
            assert slowdown[0] == 1.0
            assert slowdown[-1] == pytest.approx(s, rel=1e-14)
            np.testing.assert_allclose(
                radix(geometry, Ntk().frequencies(geometry, s, 1))[1:], s ** (1 / (geometry.pairs - 1)), rtol=1e-12
            )


@pytest.mark.parametrize("name", NAMES)
def test_the_product_of_the_radix_is_the_slowdown(name: str) -> None:
    for geometry in GEOMETRIES:
        table = build(name, geometry).frequencies(geometry, 4.0, 3 * geometry.trained_length)
        digits = radix(geometry, table)
        np.testing.assert_allclose(np.cumprod(digits), geometry.inv_freq() / table.inv_freq, rtol=1e-12)
    assert (radix(geometry, PositionInterpolation().frequencies(geometry, 4.0, 1))[1:] == 1).all()


def test_the_radix_of_a_pair_that_stands_still_is_infinite() -> None:
    geometry = RopeGeometry(8, 1e4, 64)
    stopped = Frequencies(geometry.inv_freq() * [1, 0.5, 0, 0])
    assert radix(geometry, stopped).tolist() == [1, 2, math.inf, 1]


def test_dynamic_methods_are_their_static_ones_at_the_length_at_hand() -> None:
    geometry = RopeGeometry(128, 1e4, 4096)
    for length, s in ((1000, 1.0), (4096, 1.0), (6144, 1.5), (32768, 8.0)):
        for dynamic, static in ((DynamicNtk(), Ntk()), (DynamicYarn(), Yarn())):
            assert dynamic.frequencies(geometry, 99.0, length).same_as(static.frequencies(geometry, s, 1), 1e-14)


def test_a_method_says_whether_the_factor_of_the_sweep_changes_its_table() -> None:
    # Where it does not, none stands in its label and id: METHODS' dynamic_ntk is NTK-aware at s = length/L.
    for name in NAMES:
        method, geometry = build(name, GEOMETRIES[0]), GEOMETRIES[0]
        if method.scales:
            two, nine = (method.frequencies(geometry, factor, 10**6) for factor in (2.0, 9.0))
            assert method.uses_factor is not two.same_as(nine), name
    assert [name for name in NAMES if not build(name, GEOMETRIES[0]).uses_factor] == ["dynamic_ntk", "dynamic_yarn"]


def test_attention_factor_of_by_parts_is_one() -> None:
    geometry = RopeGeometry(128, 1e4, 4096)
    assert NtkByParts().frequencies(geometry, 16.0, 1).attention_factor == 1.0
    assert (
        NtkByParts(16.0, 2.0, False)
        .frequencies(geometry, 16.0, 1)
        .same_as(Yarn(16.0, 2.0, False, attention_factor=1.0).frequencies(geometry, 16.0, 1), 0.0)
    )


# The contract of every method, those of plug-ins in tasks/ and entry points included


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda g: f"d{g.rotary_dim}-L{g.trained_length}")
@pytest.mark.parametrize("name", [entry.name for entry in METHODS])
def test_contract(name: str, geometry: RopeGeometry) -> None:
    method = build(name, geometry)
    assert method.summary
    assert method.source
    assert method.version >= 1
    for factor in (1.0, 3.0, 32.0):
        for length in (1, geometry.trained_length, 5 * geometry.trained_length):
            table = method.frequencies(geometry, factor, length)
            again = build(name, geometry).frequencies(geometry, factor, length)
            assert table.inv_freq.dtype == np.float64
            assert table.inv_freq.shape == (geometry.pairs,)
            assert np.isfinite(table.inv_freq).all()
            assert (table.inv_freq > 0).all()
            assert table.attention_factor > 0
            np.testing.assert_array_equal(table.inv_freq, again.inv_freq)
            assert table.attention_factor == again.attention_factor
            if not method.length_dependent and factor == 1.0:
                np.testing.assert_array_equal(table.inv_freq, geometry.inv_freq())
                assert table.attention_factor == 1.0
            if not method.length_dependent:
                np.testing.assert_array_equal(table.inv_freq, method.frequencies(geometry, factor, 7).inv_freq)
    if method.scales and not method.length_dependent and geometry.pairs > 1:
        assert not method.frequencies(geometry, 3.0, 1).same_as(Unscaled().frequencies(geometry, 1.0, 1))


@pytest.mark.parametrize("name", [entry.name for entry in METHODS])
def test_parameters_go_through_json_and_come_back_equal(name: str) -> None:
    cls = REGISTRY.entry("method", name).cls
    changed = {
        f.name: {"bool": False, "float": 3.0, "float | None": 1.5, "tuple[float, ...]": (1.0, 2.0)}[str(f.type)]
        for f in dataclasses.fields(cls)
        if f.name != "beta_slow"
    }
    for method in (cls(), cls(**changed)):
        back = cls(**json.loads(json.dumps(method.params)))
        assert back == method
        assert hash(back) == hash(method)
        assert back.params == method.params
    assert cls().set_params == {}
    assert set(cls(**changed).set_params) == set(changed)


def test_what_goes_into_a_cell_is_frozen() -> None:
    """Names, versions, parameters and defaults decide which stored results still count: a change here raises the
    version of the method concerned, or it is a mistake."""
    edges = {"beta_fast": 32.0, "beta_slow": 1.0}
    own = {**edges, "attention_factor": None}
    assert {entry.name: (entry.cls.version, entry.cls().params) for entry in METHODS} == {
        "none": (1, {}),
        "native": (1, {}),
        "pi": (1, {}),
        "ntk": (1, {}),
        "dynamic_ntk": (1, {"f": 1.0}),
        "ntk_by_parts": (1, {**edges, "truncate": True}),
        "ntk_by_parts_paper": (1, edges),
        "yarn": (1, {**own, "truncate": True, "mscale": None, "mscale_all_dim": None}),
        "yarn_paper": (1, own),
        "dynamic_yarn": (1, {**edges, "truncate": True}),
        "longrope": (1, {"short_factor": [], "long_factor": [], "attention_factor": None}),
        "llama3": (1, {"low_freq_factor": 1.0, "high_freq_factor": 4.0}),
        "mrrope_uni": (1, own),
        "mrrope_pro": (1, own),
        "mrrope_reg": (1, own),
    }


def test_distinct_methods_give_distinct_tables_in_any_order() -> None:
    geometry = RopeGeometry(128, 1e4, 4096)
    methods = [build(name, geometry) for name in NAMES if name not in ("native", "dynamic_ntk", "dynamic_yarn")]
    for first, second in permutations(methods, 2):
        one, two = (method.frequencies(geometry, 16.0, 65536) for method in (first, second))
        assert not one.same_as(two), f"{first.name} = {second.name}"


def test_a_table_cannot_be_written_into() -> None:
    table = Yarn().frequencies(GEOMETRIES[0], 4.0, 1)
    with pytest.raises(ValueError, match="read-only"):
        table.inv_freq[0] = 0.0


# Bad parameters


@pytest.mark.parametrize("factor", [0.5, 0.0, -2.0, math.nan, math.inf])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("none", "native", "dynamic_ntk", "dynamic_yarn")])
def test_a_factor_below_one_is_refused(name: str, factor: float) -> None:
    with pytest.raises(UsageError, match=r"factor must be a number of at least 1, not"):
        build(name, GEOMETRIES[0]).frequencies(GEOMETRIES[0], factor, 1)


@pytest.mark.parametrize(
    "word",
    [
        f"{name}:{pair}"
        for name in "yarn yarn_paper ntk_by_parts ntk_by_parts_paper mrrope_uni mrrope_pro mrrope_reg".split()
        for pair in ("beta_fast=1", "beta_fast=0.5", "beta_slow=0", "beta_slow=-1", "beta_slow=64", "beta_fast=-32")
    ]
    + ["llama3:low_freq_factor=4", "llama3:high_freq_factor=0.5", "llama3:low_freq_factor=0"],
)
def test_crossed_or_negative_edges_are_refused(word: str) -> None:
    method, _ = REGISTRY.build("method", word)
    with pytest.raises(UsageError, match=r"turns within the trained window; allowed: the fast edge .* above the slow"):
        method.frequencies(GEOMETRIES[0], 4.0, 1)


@pytest.mark.parametrize(
    "cls, key, value",
    [(Yarn, "beta_fast", math.nan), (DynamicNtk, "f", math.inf), (MrRopePro, "attention_factor", math.nan)],
)
def test_what_is_no_number_is_refused_when_it_is_given(cls: type[Method], key: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"method '{cls.name}': {key} must be a finite number, not (nan|inf)"):
        cls(**{key: value})


@pytest.mark.parametrize(
    "word, message",
    [
        ("dynamic_ntk:f=0", "f must be above 0, not 0"),
        ("dynamic_ntk:f=-1", "f must be above 0, not -1"),
        ("yarn:attention_factor=0", "attention factor must be a positive number, not 0.0"),
        ("mrrope_uni:attention_factor=-1", "attention factor must be a positive number, not -1.0"),
        ("yarn:mscale=0.7", "mscale=0.7 and mscale_all_dim=None; allowed: both"),
        ("yarn:mscale=-1:mscale_all_dim=1", "mscale=-1.0 and mscale_all_dim=1.0; allowed: both"),
        ("longrope", "long_factor needs 64 numbers above 0 for this model, got .*0 in all.*give them"),
        ("longrope:long_factor=1/2/3", "long_factor needs 64 numbers above 0 for this model, got .*3 in all"),
        ("longrope:long_factor=" + "/".join(["0"] * 64), "long_factor needs 64 numbers above 0"),
    ],
)
def test_other_bad_parameters_are_refused(word: str, message: str) -> None:
    method, _ = REGISTRY.build("method", word)
    with pytest.raises(UsageError, match=message):
        method.frequencies(RopeGeometry(128, 1e4, 4096), 4.0, 8192)


# Agreement with transformers


def llama(rope: dict[str, Any], length: int = 4096, head_dim: int = 128, theta: float = 1e4) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=2 * head_dim,
        num_attention_heads=2,
        max_position_embeddings=length,
        rope_parameters={"rope_theta": theta, **rope},
    )


YARN = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096}
SHIPPED: dict[str, LlamaConfig] = {
    "linear": llama({"rope_type": "linear", "factor": 4.0}),
    "dynamic": llama({"rope_type": "dynamic", "factor": 2.0}),
    "yarn": llama(YARN, 65536),
    "yarn no truncate": llama({**YARN, "factor": 32.0, "truncate": False}, 131072, 64, 150000.0),
    "yarn edges": llama({**YARN, "beta_fast": 16.0, "beta_slow": 2.0}, 65536),
    "yarn mscale": llama({**YARN, "mscale": 0.707, "mscale_all_dim": 1.0}, 65536),
    "yarn mscale alone": llama({**YARN, "mscale": 0.707}, 65536),
    "yarn mscale off": llama({**YARN, "mscale": 1.0, "mscale_all_dim": 0.0}, 65536),
    "yarn attention": llama({**YARN, "attention_factor": 1.0}, 65536),
    "yarn explicit factor": llama({**YARN, "factor": 4.0, "original_max_position_embeddings": 32768}, 40960),
    "yarn ratio": llama({**YARN, "factor": None}, 65536),
    "llama3": llama(
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        131072,
        theta=5e5,
    ),
    "longrope": llama(
        {
            "rope_type": "longrope",
            "short_factor": [1.0 + j / 100 for j in range(48)],
            "long_factor": [1.0 + j for j in range(48)],
            "original_max_position_embeddings": 4096,
        },
        131072,
        96,
    ),
    "longrope attention": llama(
        {
            "rope_type": "longrope",
            "factor": 16.0,
            "attention_factor": 1.19,
            "short_factor": [1.0] * 48,
            "long_factor": [2.0] * 48,
            "original_max_position_embeddings": 4096,
        },
        131072,
        96,
    ),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_native_is_what_transformers_computes(name: str) -> None:
    config = SHIPPED[name]
    geometry = geometry_of(config)
    for length in (1, 4096, 4097, 8192, 32768):
        table = Native().frequencies(geometry, 1.0, length)
        inv_freq, attention = ROPE_INIT_FUNCTIONS[config.rope_parameters["rope_type"]](config, None, seq_len=length)
        np.testing.assert_allclose(table.inv_freq, inv_freq.numpy(), rtol=3e-6)  # theirs is float32
        assert table.attention_factor == pytest.approx(attention, rel=1e-12)


def test_an_explicit_factor_wins_over_the_ratio_of_lengths() -> None:
    assert native_method(geometry_of(SHIPPED["yarn explicit factor"]))[1] == 4.0
    assert native_method(geometry_of(SHIPPED["yarn ratio"]))[1] == 16.0


def test_a_method_on_the_shipped_geometry_is_the_shipped_method() -> None:
    geometry = geometry_of(SHIPPED["llama3"])
    assert Llama3().frequencies(geometry, 8.0, 1).same_as(Native().frequencies(geometry, 1.0, 1), 0.0)
    geometry = geometry_of(SHIPPED["longrope"])
    assert LongRope().frequencies(geometry, 32.0, 9000).same_as(Native().frequencies(geometry, 1.0, 9000), 0.0)


def test_native_without_a_shipped_scaling_is_the_plain_table() -> None:
    geometry = geometry_of(llama({"rope_type": "default"}))
    assert Native().frequencies(geometry, 4.0, 9999).same_as(Unscaled().frequencies(geometry, 1.0, 1), 0.0)


@pytest.mark.parametrize("kind", ["resonance", "proportional", None])
def test_an_unknown_shipped_type_is_an_error(kind: str | None) -> None:
    geometry = RopeGeometry(128, 1e4, 4096, {"rope_type": kind, "factor": 2.0})
    with pytest.raises(UsageError, match="unknown rope_type in the checkpoint's config"):
        Native().frequencies(geometry, 1.0, 1)


def test_a_shipped_type_that_lacks_a_key_is_an_error() -> None:
    geometry = RopeGeometry(128, 1e4, 4096, {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0})
    with pytest.raises(UsageError, match="type 'llama3' lack 'high_freq_factor'"):
        Native().frequencies(geometry, 1.0, 1)

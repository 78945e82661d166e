"""`import ropebench.hf`: from_pretrained with a method's name as rope_type gives the very table that `applied` sets."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, modeling_rope_utils
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import ropebench.hf as hf
from fakes import tiny
from ropebench.apply import applied, rotary_module
from ropebench.errors import UsageError
from ropebench.geometry import Frequencies, RopeGeometry, geometry_of
from ropebench.method import Method
from ropebench.methods import MrRopePro, Yarn
from ropebench.registry import Registry

CLASSES = {entry.name: entry.cls for entry in Registry.load().of("method")}
STATIC = [name for name, cls in CLASSES.items() if cls.scales and not cls.length_dependent]
OWN: tuple[str, ...] = ("linear", "dynamic", "yarn", "longrope", "llama3")  # of transformers
if hasattr(modeling_rope_utils, "_compute_proportional_rope_parameters"):  # not in its oldest supported version
    OWN += ("proportional",)

# Model kinds: a plain one, a head_dim of its own, rotation of a part of the head (a quarter, a half).
KINDS: dict[str, dict[str, Any]] = {
    "llama": {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "head_dim": 16},
    "qwen3": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "head_dim": 32},
    "gpt_neox": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
        "hidden_size": 64,
        "head_dim": 16,
    },
    "phi": {"rope_parameters": {"rope_type": "default", "rope_theta": 2e4, "partial_rotary_factor": 0.5}},
}
IDS = torch.arange(100)[None] * 7 % 500


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A saved random model of each kind."""
    made = {}
    for kind, size in KINDS.items():
        made[kind] = tmp_path_factory.mktemp(kind)
        tiny(kind, **{**size, "rope_parameters": dict(size["rope_parameters"])}).save_pretrained(made[kind])
    return made


def block(name: str, kind: str = "llama", factor: float = 4, **params: Any) -> dict[str, Any]:
    """A complete block: the kind's own base and rotated part, and a trained window of 64."""
    own = {key: value for key, value in KINDS[kind]["rope_parameters"].items() if key != "rope_type"}
    return {"rope_type": name, "factor": factor, **own, **{"original_max_position_embeddings": 64, **params}}


def load(folder: Path, rope_parameters: dict[str, Any] | None = None, **more: Any) -> Any:
    given = {} if rope_parameters is None else {"rope_parameters": rope_parameters}
    return AutoModelForCausalLM.from_pretrained(folder, **given, **more).eval()


def state(model: Any) -> tuple[list[float], list[float], float, torch.dtype]:
    """Every rotary buffer of the model, and its attention factor."""
    module = rotary_module(model)
    buffers = {name for name, _ in model.named_buffers() if "inv_freq" in name}
    assert {name.rpartition(".")[2] for name in buffers} == {"inv_freq", "original_inv_freq"}
    return (
        module.inv_freq.tolist(),
        module.original_inv_freq.tolist(),
        module.attention_scaling,
        module.inv_freq.dtype,
    )


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=IDS, use_cache=False).logits  # type: ignore[no-any-return]


def type_of(name: str) -> str:
    """The rope_type of one of our methods."""
    return f"ropebench_{name}" if name in OWN else name


# The table


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STATIC)
def test_the_table_is_the_one_that_apply_sets_bit_for_bit(folders: dict[str, Path], kind: str, name: str) -> None:
    plain, ours = load(folders[kind]), load(folders[kind], block(type_of(name), kind))
    outside = logits(plain)
    with applied(plain, CLASSES[name]().frequencies(geometry_of(plain.config), 4.0, 64)):
        assert state(ours) == state(plain)
        assert torch.equal(logits(ours), logits(plain))
    assert not torch.equal(logits(ours), outside)


def test_parameters_of_the_method_pass_through(folders: dict[str, Path]) -> None:
    given = {"beta_fast": 4, "beta_slow": 0.25, "truncate": False, "attention_factor": 1.25, "mscale": None}
    shorter = block("ropebench_yarn", factor=8, **given, original_max_position_embeddings=32)
    found = state(load(folders["llama"], shorter))
    right = Yarn(4.0, 0.25, False, 1.25).frequencies(RopeGeometry(16, 5e5, 32), 8.0, 32)  # not the config's 64
    assert found[0] == right.inv_freq.astype(np.float32).tolist()
    assert found[2] == 1.25
    assert found[0] != state(load(folders["llama"], block("ropebench_yarn", factor=8)))[0]


def test_every_name_gives_the_same_table_with_and_without_prefix(folders: dict[str, Path]) -> None:
    for name in ("mrrope_pro", "yarn_paper"):
        with_prefix = state(load(folders["llama"], block(f"ropebench_{name}")))
        assert with_prefix == state(load(folders["llama"], block(name)))


def test_fault_17_the_base_is_carried_over_or_missed_loudly(folders: dict[str, Path]) -> None:
    table, *_ = state(load(folders["llama"], block("pi")))
    assert table[-1] == pytest.approx(2.578346e-06, rel=1e-6)  # 500000^(−14/16)/4; with 10000 it is 7.905694e-05
    lacking = block("pi")
    del lacking["rope_theta"]
    with pytest.raises(UsageError, match="lacks rope_theta"):
        load(folders["llama"], lacking)


# What cannot be used


@pytest.mark.parametrize("kind, key", [("gpt_neox", "partial_rotary_factor"), *(("llama", k) for k in hf.REQUIRED)])
def test_a_missing_key_is_an_error_that_names_it(folders: dict[str, Path], kind: str, key: str) -> None:
    lacking = block("mrrope_pro", kind)
    del lacking[key]
    with pytest.raises(UsageError, match=f"'mrrope_pro': rope_parameters lacks {key}; it replaces .* whole block"):
        load(folders[kind], lacking)


def test_a_key_that_is_null_is_missing(folders: dict[str, Path]) -> None:
    empty = block("mrrope_pro", rope_theta=None, factor=None)
    with pytest.raises(UsageError, match=r"lacks rope_theta, factor; .* all of .*, original_max_position_embeddings;"):
        load(folders["llama"], empty)


@pytest.mark.parametrize("changes, said", [
    ({"beta_fst": 16}, "'beta_fst'; did you mean 'beta_fast'"),
    ({"beta_fast": "many"}, "is not a number"),
    ({"factor": "4"}, "factor = '4' must be a number"),
    ({"factor": True}, "factor = True must be a number"),
    ({"factor": 0.5}, "at least 1"),
    ({"original_max_position_embeddings": 64.5}, "must be a whole number"),
    ({"rope_theta": 0.5}, "theta must be a number > 1"),
])  # fmt: skip
def test_a_value_that_cannot_be_is_an_error(folders: dict[str, Path], changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load(folders["llama"], block("mrrope_pro", **changes))


@pytest.mark.parametrize("name", ["dynamic_ntk", "dynamic_yarn", "ropebench_longrope"])
def test_a_table_that_depends_on_the_length_is_refused(folders: dict[str, Path], name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}': its table depends on the length"):
        load(folders["llama"], block(name))
    with pytest.raises(UsageError, match="depends on the length"):
        LlamaConfig(rope_parameters=block(name))


@pytest.mark.parametrize("name", ["none", "native"])
def test_the_unmodified_models_are_no_scaling(folders: dict[str, Path], name: str) -> None:
    with pytest.raises(UsageError, match=r"is no scaling: .* 'default'"):
        load(folders["llama"], block(name))


def test_a_model_with_several_tables_is_refused() -> None:
    each = {"sliding_attention": block("mrrope_pro"), "full_attention": block("mrrope_pro")}
    config = Gemma3TextConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, rope_parameters=each, layer_types=list(each),
    )  # fmt: skip
    with pytest.raises(UsageError, match="a rotary table per layer type"):
        AutoModelForCausalLM.from_config(config)


# Names


def test_the_types_of_transformers_stay_theirs(folders: dict[str, Path]) -> None:
    for name in OWN:
        assert ROPE_INIT_FUNCTIONS[name].__module__ == "transformers.modeling_rope_utils"
    code, theirs, paper = (
        state(load(folders["llama"], block(name, factor=8))) for name in ("ropebench_yarn", "yarn", "yarn_paper")
    )
    np.testing.assert_allclose(code[0], theirs[0], rtol=1e-6)  # one operator, computed twice
    assert not np.allclose(code[0], paper[0], rtol=1e-2)  # the other operator called YaRN


def test_importing_again_changes_nothing() -> None:
    before = {name: hf._origin(found) for name, found in ROPE_INIT_FUNCTIONS.items()}
    importlib.reload(hf)
    assert {name: hf._origin(found) for name, found in ROPE_INIT_FUNCTIONS.items()} == before
    assert set(before) == {*OWN, *(f"ropebench_{name}" for name in CLASSES), *(CLASSES.keys() - set(OWN))}


@dataclass(frozen=True)
class Halved(Method):
    name, summary, source = "halved", "test", "test"
    power: int = 1

    def frequencies(self, geometry: RopeGeometry, factor: float, length: int) -> Frequencies:
        return geometry.scaled(np.full(geometry.pairs, 2.0**self.power))


@pytest.fixture
def clean() -> Iterator[None]:
    before = dict(ROPE_INIT_FUNCTIONS)
    yield
    for name in ROPE_INIT_FUNCTIONS.keys() - before:
        del ROPE_INIT_FUNCTIONS[name]
    ROPE_INIT_FUNCTIONS.update(before)


@pytest.mark.usefixtures("clean")
def test_a_method_of_your_own_becomes_a_type(folders: dict[str, Path]) -> None:
    assert hf.register(Halved) == hf.register(Halved) == ("ropebench_halved", "halved")
    table, *_ = state(load(folders["llama"], block("halved", power=3)))
    plain, *_ = state(load(folders["llama"]))
    assert [8 * value for value in table] == pytest.approx(plain, rel=1e-6)


@pytest.mark.usefixtures("clean")
def test_a_taken_name_is_an_error_with_both_origins() -> None:
    ROPE_INIT_FUNCTIONS["halved"] = load
    with pytest.raises(UsageError, match=r"'halved' is taken by .*test_hf\.load; .*test_hf\.Halved needs another name"):
        hf.register(Halved)
    assert "ropebench_halved" not in ROPE_INIT_FUNCTIONS

    class Impostor(MrRopePro):
        pass

    with pytest.raises(UsageError, match=r"taken by ropebench\.methods\.MrRopePro"):
        hf.register(Impostor)


# Saved and loaded again


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["ntk", "ntk_by_parts", "mrrope_uni", "ropebench_yarn"])
def test_fault_19_every_rotary_buffer_survives_save_and_load(
    folders: dict[str, Path], tmp_path: Path, kind: str, name: str
) -> None:
    first = load(folders[kind], block(name, kind))
    first.save_pretrained(tmp_path)
    again = load(tmp_path)
    assert state(again) == state(first)
    assert np.all(np.isfinite(state(again)[0]))
    assert torch.equal(logits(again), logits(first))
    half = load(tmp_path, dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16
    assert state(half) == state(first)  # float32 still


def test_a_saved_config_needs_ropebench_and_the_import_adds_names_only(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    model = load(folders["llama"], block("mrrope_pro", beta_fast=24.0))
    model.save_pretrained(tmp_path)
    code = f"""
import sys
from transformers import AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
own = dict(ROPE_INIT_FUNCTIONS)
try:
    AutoModelForCausalLM.from_pretrained({str(tmp_path)!r})
except Exception as error:
    print("without:", type(error).__name__, error)
print("---", file=sys.stderr, flush=True)
import ropebench.hf
assert all(ROPE_INIT_FUNCTIONS[name] is found for name, found in own.items())
module = AutoModelForCausalLM.from_pretrained({str(tmp_path)!r}).model.rotary_emb
print("with:", module.inv_freq.tolist(), module.attention_scaling)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    table, _, attention, _ = state(model)
    assert done.stdout.splitlines() == ["without: KeyError 'mrrope_pro'", f"with: {table} {attention}"]
    before, after = done.stderr.split("---")
    assert "'rope_type'='mrrope_pro'" in before  # transformers' own warning about a type it does not know
    assert "rope_type" not in after


def test_a_checkpoint_saved_with_our_type_is_its_own_baseline(tmp_path: Path) -> None:
    from fakes import save_tiny
    from ropebench.apply import live
    from ropebench.model import load as loaded
    from ropebench.plan import Sweep, make_plan

    rope = {
        "rope_type": "mrrope_pro", "factor": 4.0, "rope_theta": 10000.0,
        "original_max_position_embeddings": 64, "beta_fast": 16.0,
    }  # fmt: skip
    folder = save_tiny(tmp_path / "stretched", rope_parameters=rope, max_position_embeddings=256)
    asked = Sweep(model=str(folder), methods=("pi",), tasks=("niah",), lengths="512", docs="noise", device="cpu")
    native, pi = make_plan(asked, corpora=False).cells
    assert (native.method.name, pi.method.name) == ("native", "pi")
    assert (native.geometry.trained_length, native.geometry.extended_length) == (64, 256)
    table = native.method.frequencies(native.geometry, 1.0, 512)
    assert live(loaded(native.card, "cpu", "float32").model).same_as(table)
    assert pi.factor == 8.0  # over the unscaled table: nothing is scaled twice
    np.testing.assert_allclose(
        pi.method.frequencies(pi.geometry, 8.0, 512).inv_freq, pi.geometry.theta ** (-np.arange(4) / 4) / 8.0
    )

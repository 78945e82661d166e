"""`ropebench export`: what is written makes other programs turn pairs as ropebench measured them, or is refused."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fakes import tiny, tiny_config
from ropebench.aliases import ModelSpec
from ropebench.apply import applied
from ropebench.cli import main
from ropebench.errors import UsageError
from ropebench.export import Rotation, engines, hf, rotation_of
from ropebench.geometry import geometry_of
from ropebench.method import Method
from ropebench.methods import (
    DynamicNtk,
    DynamicYarn,
    LongRope,
    MrRopePro,
    PositionInterpolation,
    Unscaled,
    Yarn,
)
from ropebench.model import ModelCard

IDS = torch.arange(100)[None] * 7 % 500

# Loads folders by plain transformers, where ropebench cannot be imported, and saves their logits at each length.
PLAIN = """
import sys
class Hidden:  # also where it is installed beside transformers
    @staticmethod
    def find_spec(name, *_):
        if name.split(".")[0] == "ropebench":
            raise ImportError("ropebench is not to be used here")
sys.meta_path.insert(0, Hidden)
import numpy, torch
from transformers import AutoModelForCausalLM
ids = torch.arange(100)[None] * 7 % 500
for folder in sys.argv[1:]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        numpy.savez(folder + "/logits.npz", *(model(ids[:, :n]).logits.numpy() for n in (50, 100)))
"""


def card_of(config: Any, folder: Path = Path("some/model")) -> ModelCard:
    return ModelCard(ModelSpec("tiny", f"folder:{folder}"), str(folder), "abc", config, geometry_of(config), None)


def rotation(method: Method, kind: str = "llama", target: int = 256, **changes: Any) -> Rotation:
    card = card_of(tiny_config(kind, **changes))
    return rotation_of(card, method, card.geometry, target)


def logits_of(model: Any, table: Any, length: int) -> Any:
    with applied(model, table), torch.inference_mode():
        return model(IDS[:, :length]).logits.numpy()


# transformers


def exported(folder: Path, word: str) -> Any:
    """A random model whose config.json, in `folder`, was exported over; returns the model as it was."""
    model = tiny()
    model.save_pretrained(folder)
    here = ["--model", str(folder), "--target", "256", "--to", "hf", "--out", str(folder), "--force"]
    assert main(["export", "--method", word, *here]) == 0
    return model


def test_plain_transformers_gives_the_same_logits_on_both_sides_of_the_trained_window(tmp_path: Path) -> None:
    """Of a static method, and of longrope, which keeps its switch there."""
    methods = {
        "mrrope_pro": MrRopePro(),
        "longrope:short_factor=1/1.1/1.2/1.3:long_factor=1/2/3/4": LongRope((1.0, 1.1, 1.2, 1.3), (1.0, 2.0, 3.0, 4.0)),
    }
    models = {tmp_path / method.name: exported(tmp_path / method.name, word) for word, method in methods.items()}
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    words = [sys.executable, "-I", "-c", PLAIN, *map(str, models)]
    done = subprocess.run(words, env=clean, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    for (folder, model), method in zip(models.items(), methods.values(), strict=True):
        card = card_of(model.config)
        tables = rotation_of(card, method, card.geometry, 256)
        assert tables.switches is method.length_dependent
        found = np.load(folder / "logits.npz")
        for theirs, table, length in zip(found.values(), (tables.short, tables.long), (50, 100), strict=True):
            ours = logits_of(model, table, length)
            assert np.abs(ours - theirs).max() <= 1e-5 * max(1.0, np.abs(ours).max())
            unmodified = Unscaled().frequencies(card.geometry, 1.0, length)
            assert np.abs(ours - logits_of(model, unmodified, length)).max() > 0.01


@pytest.mark.parametrize(
    "kind, changes",
    [
        ("qwen3", {"head_dim": 16}),
        ("gpt_neox", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
        ("phi3", {"original_max_position_embeddings": 64}),
    ],
)
def test_a_head_of_its_own_a_rotated_part_and_a_key_beside_the_block(kind: str, changes: dict[str, Any]) -> None:
    one = rotation(Yarn(), kind, **changes)
    whole = hf.patched(one.card.config.to_dict(), hf.patch(one))
    assert hf.check(one, whole).startswith("checked")
    whole["rope_parameters"]["long_factor"][-1] *= 1.001
    with pytest.raises(UsageError, match="another table"):
        hf.check(one, whole)


def test_a_model_that_ships_a_scaling_is_not_scaled_twice() -> None:
    shipped = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    card = card_of(tiny_config("llama", rope_parameters=shipped))
    changes = hf.patch(rotation_of(card, PositionInterpolation(), card.geometry, 256))
    assert changes["rope_parameters"]["long_factor"] == [4.0] * 4
    old = {"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2.0}, "vocab_size": 7}
    assert hf.patched(old, changes) == {"vocab_size": 7, **changes}
    assert hf.patched({"text_config": old}, changes)["text_config"] == {"vocab_size": 7, **changes}


# vLLM and SGLang


@pytest.mark.parametrize("engine", engines.BY_NAME.values(), ids=str)
@pytest.mark.parametrize("method", [MrRopePro(), Yarn(attention_factor=1.0)], ids=lambda m: m.name)
def test_the_engines_formula_turns_every_position_as_measured(engine: engines.Engine, method: Method) -> None:
    one = rotation(method)
    changes = json.loads(json.dumps(engines.overrides(engine, one)))
    assert "itself was not run" in engines.check(engine, one, changes)
    scale = one.long.attention_factor
    for positions in ([0], [63], [64], [65], [255], list(range(256))):
        cos, sin = engines.tables(engine, changes, one.start.rotary_dim, 256, positions)
        angles = np.outer(positions, one.long.inv_freq)
        assert np.allclose(cos, np.cos(angles) * scale, atol=1e-4)
        assert np.allclose(sin, np.sin(angles) * scale, atol=1e-4)


@pytest.mark.parametrize("engine", engines.BY_NAME.values(), ids=str)
def test_an_attention_factor_under_transformers_name_alone_would_be_another_one(engine: engines.Engine) -> None:
    one = rotation(Yarn(attention_factor=1.0))
    cos, _ = engines.tables(engine, hf.patch(one), one.start.rotary_dim, 256, [0])
    assert cos[0, 0] == pytest.approx(math.sqrt(1 + math.log(4) / math.log(64)))
    with pytest.raises(RuntimeError, match="another rotation"):
        engines.check(engine, one, hf.patch(one))


def test_sglang_would_turn_the_token_at_the_trained_length_as_position_0() -> None:
    changes = engines.overrides(engines.VLLM, rotation(MrRopePro()))
    of_zero = engines.tables(engines.SGLANG, changes, 8, 256, [0])
    of_64 = engines.tables(engines.SGLANG, changes, 8, 256, [64])
    assert torch.equal(of_zero[0], of_64[0])
    assert torch.equal(of_zero[1], of_64[1])
    assert engines.overrides(engines.SGLANG, rotation(MrRopePro()))["rope_parameters"][
        "original_max_position_embeddings"
    ] == 256  # fmt: skip


def test_the_command_line_is_one_that_a_shell_reads_back() -> None:
    import shlex

    one = rotation(MrRopePro())
    for engine in engines.BY_NAME.values():
        changes = engines.overrides(engine, one)
        words = shlex.split(engines.command(engine, one, changes))
        assert json.loads(words[words.index(engine.flag) + 1]) == changes
        assert words[words.index(engine.length) + 1] == "256"


@pytest.mark.parametrize("engine", engines.BY_NAME.values(), ids=str)
def test_what_the_engines_cannot_express_is_refused(engine: engines.Engine) -> None:
    with pytest.raises(UsageError, match="does not choose between them"):
        engines.overrides(engine, rotation(LongRope((1.0,) * 4, (2.0,) * 4)))
    with pytest.raises(UsageError, match="neighbouring channels"):
        engines.overrides(engine, rotation(MrRopePro(), "cohere"))


# Refusals


@pytest.mark.parametrize("method", [DynamicNtk(), DynamicYarn()], ids=lambda m: m.name)
def test_a_table_that_follows_the_length_is_refused_with_the_reason(method: Method) -> None:
    with pytest.raises(UsageError, match="follows the length of each sequence"):
        rotation(method)


def test_nothing_to_export_is_said() -> None:
    with pytest.raises(UsageError, match="nothing to export"):
        rotation(Unscaled())
    for target in (64, 32):
        with pytest.raises(UsageError, match=r"within the trained window .* \(64 tokens\)"):
            rotation(MrRopePro(), target=target)


@pytest.mark.parametrize(
    "words, said",
    [
        (["--to", "vlm"], "did you mean 'vllm'?"),
        (["--to", "llama.cpp", "--out", "x.gguf"], "give --gguf IN and --out OUT"),
        (["--to", "llama.cpp", "--out", "x.gguf", "--gguf", "missing.gguf"], "no such file"),
        (["--to", "hf", "--gguf", "x.gguf"], "--gguf belongs to --to llama.cpp"),
        (["--to", "sglang", "--patch"], "--patch belongs to --to hf"),
        (["--to", "hf", "--out", "there.json"], "is there already"),
        (["--to", "hf", "--out", "folder"], "is there already"),
        (["--to", "vllm", "--target", "many"], "not a number of tokens"),
        (["--to", "vllm", "--method", "mrope_pro"], "did you mean 'mrrope_pro'?"),
        (["--to", "vllm", "--base", "nativ"], "did you mean 'native'?"),
    ],
)
def test_a_mistake_is_one_clear_line_before_anything_is_written(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("there.json", "folder/config.json"):
        (tmp_path / name).write_text("mine")
    given = {"--method": "mrrope_pro", "--model": "tiny", "--target": "2k"}
    given |= dict(zip(words[::2], [*words[1::2], ""], strict=False))
    flat = [word for pair in given.items() for word in pair if word]
    assert main(["export", *flat]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert {path.read_text() for path in tmp_path.rglob("*.json")} == {"mine"}


# llama.cpp: the file alone; what llama.cpp makes of it is `bench/llama_cpp_check.py`


def small_gguf(path: Path, arch: str = "llama", theta: float = 10000.0) -> Path:
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.quants import quantize

    writer = GGUFWriter(path, arch)
    writer.add_block_count(2)
    writer.add_embedding_length(32)
    writer.add_head_count(4)
    writer.add_context_length(64)
    writer.add_rope_freq_base(theta)
    writer.add_array("tokenizer.ggml.tokens", ["a", "ß", "c"])
    writer.add_string(f"{arch}.rope.scaling.type", "yarn")
    writer.add_float32(f"{arch}.rope.scaling.factor", 2.0)
    values = np.arange(64, dtype=np.float32).reshape(2, 32)
    packed = quantize(values, GGMLQuantizationType.Q8_0)
    writer.add_tensor("blk.0.attn_q.weight", packed, raw_dtype=GGMLQuantizationType.Q8_0)
    writer.add_tensor("output_norm.weight", values[0])
    writer.add_tensor("rope_freqs.weight", np.full(4, 9.0, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_copy_has_the_factors_and_is_else_the_same(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    from ropebench.export import llama_cpp

    source, out, one = small_gguf(tmp_path / "in.gguf"), tmp_path / "out.gguf", rotation(MrRopePro())
    before = source.read_bytes()
    llama_cpp.write(one, source, out)
    assert source.read_bytes() == before
    old, new = gguf.GGUFReader(source), gguf.GGUFReader(out)
    tensors = {tensor.name: tensor for tensor in new.tensors}
    assert np.allclose(10000.0 ** (-np.arange(4) / 4) / tensors.pop("rope_freqs.weight").data, one.long.inv_freq)
    kept = [tensor for tensor in old.tensors if tensor.name != "rope_freqs.weight"]
    assert [tensor.name for tensor in kept] == list(tensors)
    for tensor in kept:
        assert tensors[tensor.name].tensor_type == tensor.tensor_type
        assert tensors[tensor.name].shape.tolist() == tensor.shape.tolist()
        assert np.array_equal(tensors[tensor.name].data, tensor.data)

    def values(reader: Any) -> dict[str, Any]:
        return {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}

    theirs, ours = values(old), values(new)
    del theirs["llama.rope.scaling.factor"]  # a scale of its own would multiply the factors
    assert ours.pop("llama.rope.scaling.attn_factor") == pytest.approx(one.long.attention_factor)
    assert ours.pop("llama.rope.scaling.original_context_length") == 64
    assert ours == {**theirs, "llama.rope.scaling.type": "none", "llama.context_length": 256}


def test_a_gguf_of_another_model_or_kind_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    from ropebench.export import llama_cpp

    one, out = rotation(MrRopePro()), tmp_path / "out.gguf"
    with pytest.raises(UsageError, match=r"theta 500000 .* the model 8 with theta 10000"):
        llama_cpp.write(one, small_gguf(tmp_path / "a.gguf", theta=5e5), out)
    with pytest.raises(UsageError, match="does not read per-pair factors for files of kind 'qwen2'"):
        llama_cpp.write(one, small_gguf(tmp_path / "b.gguf", arch="qwen2"), out)
    (tmp_path / "c.gguf").write_text("no such thing")
    with pytest.raises(UsageError, match="cannot be read as GGUF"):
        llama_cpp.write(one, tmp_path / "c.gguf", out)
    with pytest.raises(UsageError, match="size of the context"):
        llama_cpp.write(rotation(LongRope((1.0,) * 4, (2.0,) * 4)), tmp_path / "a.gguf", out)
    assert not list(tmp_path.glob("*out.gguf*"))


@pytest.mark.slow
def test_perplexity_in_llama_cpp_is_ours_within_1_percent_and_not_the_unmodified_models() -> None:
    """Minutes to an hour. ROPEBENCH_LLAMA_CPP names an interpreter with llama-cpp-python (`make llama-cpp-check`)."""
    python = os.environ.get("ROPEBENCH_LLAMA_CPP")
    if not python:
        pytest.skip("ROPEBENCH_LLAMA_CPP names no interpreter with llama-cpp-python")
    script = Path(__file__).parents[1] / "bench" / "llama_cpp_check.py"
    done = subprocess.run(
        [sys.executable, str(script), "--python", python], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]

"""A method inside a GGUF file: `rope_freqs.weight` and an attention factor in its metadata, in a copy of the file.

What llama.cpp does with them, read in the source of the one inside llama-cpp-python 0.3.36 (2026-10):
`get_rope_factors` (src/llama-model.cpp) hands rope_freqs.weight to ggml_rope_ext whatever the context size, and
the angle of pair i is position · theta^(−2i/d) / factor_i (`ggml_rope_cache_init`, ggml/src/ggml-cpu/ops.cpp).
`{arch}.rope.scaling.attn_factor` multiplies yarn_attn_factor (src/llama-context.cpp), which multiplies cos and sin. Of
yarn's own corrections none is left: with scaling type "none" ext_factor is 0 and the frequency scale 1, so that
`rope_yarn` neither blends nor adds its 1 + 0.1·ln s (with type "yarn" it would, and the context divides it out again).

A factor belongs to a pair by its index i. The converter of the llama kinds reorders the rows of q and k so that the two
channels of a pair lie side by side (2i, 2i+1) where transformers has them half a head apart (i, i + d/2); pair i stays
pair i, and the factors keep their order in both layouts.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np

from ropebench.errors import UsageError
from ropebench.export import Rotation

# Kinds whose loader takes rope_freqs.weight and whose every layer turns by it (src/models/*.cpp). Others stop with
# "wrong number of tensors", or keep two tables, one for layers with a sliding window.
ARCHITECTURES = ("apertus", "arcee", "deci", "exaone", "granite", "llama", "mistral3", "nanbeige")
FACTORS = "rope_freqs.weight"

NOTES = (
    "attention factor: {arch}.rope.scaling.attn_factor multiplies cos and sin; scaling type none, so no yarn "
    "correction is multiplied in",
    "short/long switch: none; rope_freqs.weight is used whatever the context size",
    "leave context shift off: it turns the cached keys by the same function, which multiplies them by the attention "
    "factor a second time",
    "give the context size (-c TARGET): the file's context_length is the target now",
)


def write(rotation: Rotation, source: Path, out: Path) -> str:
    """Copy `source` to `out` with the factors in it; says what was changed.

    Raises UsageError, with the reason, where llama.cpp cannot express it, or the file is not the model's.
    """
    if rotation.switches:
        raise UsageError(
            f"method {rotation.method.name!r}: short and long sequences have different tables, and llama.cpp chooses "
            "by the size of the context, not by each sequence's own length; export it with --to hf"
        )
    if importlib.util.find_spec("gguf") is None:
        raise UsageError("--to llama.cpp needs the package gguf: pip install 'ropebench[gguf]'")
    from gguf import GGUFReader

    try:
        reader = GGUFReader(source)
    except (OSError, ValueError) as error:
        raise UsageError(f"--gguf {source.name!r} cannot be read as GGUF ({error})") from None
    arch = _suits(rotation, source, reader)
    # Renamed when complete: a file of this name is always whole.
    unfinished = out.with_name(f"{out.name}.{os.getpid()}.part")
    try:
        _copy(rotation, reader, arch, unfinished)
        unfinished.replace(out)
    except OSError as error:
        raise UsageError(f"--out {out.name!r} cannot be written: {error.strerror or error}") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return (
        f"{FACTORS} ({rotation.start.pairs} factors), {arch}.rope.scaling.attn_factor = "
        f"{rotation.long.attention_factor:.6g}, {arch}.context_length = {rotation.target}; all else as in {source.name}"
    )


def _suits(rotation: Rotation, source: Path, reader: Any) -> str:
    """The file's architecture, after a look at whether it is this model's and can hold the factors."""
    arch = str(_value(reader, "general.architecture"))
    what = f"--gguf {source.name!r}"
    if arch not in ARCHITECTURES:
        raise UsageError(
            f"{what}: llama.cpp does not read per-pair factors for files of kind {arch!r}; it does for "
            f"{', '.join(ARCHITECTURES)}"
        )
    names = {tensor.name for tensor in reader.tensors}
    held = sorted(name for name in names if name.startswith("rope_factors_"))
    if held:
        raise UsageError(
            f"{what}: holds factors for short and long contexts ({', '.join(held)}), which cannot be replaced"
        )
    heads = _value(reader, f"{arch}.attention.head_count")
    head = _value(reader, f"{arch}.attention.key_length") or _value(reader, f"{arch}.embedding_length") // heads
    found = (
        _value(reader, f"{arch}.rope.dimension_count") or head,
        float(_value(reader, f"{arch}.rope.freq_base") or 10000.0),
        _value(reader, f"{arch}.block_count"),
    )
    layers = getattr(rotation.card.config, "num_hidden_layers", found[2])
    wanted = (rotation.start.rotary_dim, rotation.start.theta, layers)
    if found[0] != wanted[0] or not np.isclose(found[1], wanted[1], rtol=1e-5) or found[2] != wanted[2]:
        raise UsageError(
            f"{what} is not {rotation.card.id}: it turns {found[0]} channels with theta {found[1]:g} in {found[2]} "
            f"layers, the model {wanted[0]} with theta {wanted[1]:g} in {wanted[2]}; "
            "name the model that it was converted from"
        )
    return arch


def _copy(rotation: Rotation, reader: Any, arch: str, out: Path) -> None:
    from gguf import GGUFValueType, GGUFWriter

    writer = GGUFWriter(out, arch, endianess=reader.endianess)
    writer.data_alignment = reader.alignment
    ours = (f"{arch}.rope.scal", f"{arch}.context_length")  # .rope.scaling.*, and .rope.scale_linear of old files
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture" or name.startswith(ours):
            continue
        inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
    writer.add_context_length(rotation.target)
    writer.add_string(f"{arch}.rope.scaling.type", "none")
    writer.add_float32(f"{arch}.rope.scaling.attn_factor", float(rotation.long.attention_factor))
    writer.add_uint32(f"{arch}.rope.scaling.original_context_length", rotation.trained)
    factors = np.array(rotation.slowdown(rotation.long), dtype=np.float32)
    kept = [tensor for tensor in reader.tensors if tensor.name != FACTORS]  # a shipped scaling's factors are replaced
    writer.add_tensor_info(FACTORS, factors.shape, factors.dtype, factors.nbytes)
    for tensor in kept:
        data = tensor.data
        writer.add_tensor_info(tensor.name, data.shape, data.dtype, data.nbytes, tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.write_tensor_data(factors)
    for tensor in kept:
        writer.write_tensor_data(tensor.data)
    writer.close()


def _value(reader: Any, key: str) -> Any:
    field = reader.get_field(key)
    return None if field is None else field.contents()

"""`make llama-cpp-check`: the perplexity of an exported GGUF in llama.cpp beside ropebench's own, on one text.

One pass per file at the longest length gives the shorter ones too: a token sees only what is before it, and the tables
are the same at every length. Prints one JSON object; exit code 1 where the two are more than 1 % apart, or where the
unmodified file is not at the longest length. A core needs about half an hour for 16384 tokens in all passes.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

NEAR = 0.01  # relative, of a perplexity


def main(words: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(words)
    with tempfile.TemporaryDirectory() as scratch:
        found = compare(options, Path(scratch))
    print(json.dumps(found, indent=1))
    return 0 if found["within"] else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has llama-cpp-python")
    parser.add_argument("--lengths", type=int, nargs="+", default=[8192, 16384])
    parser.add_argument("--method", default="mrrope_pro")
    parser.add_argument("--target", type=int, default=16384)
    parser.add_argument("--plain-weights", action="store_true", help="also a file of float32 weights, cache in float32")
    return parser


def compare(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Perplexities by length of ropebench, of the exported and of the unmodified file, and how far they are apart."""
    from ropebench.apply import applied
    from ropebench.corpus import open_corpus, texts
    from ropebench.engine import Engine
    from ropebench.export import llama_cpp, rotation_of
    from ropebench.model import card, find, load
    from ropebench.prompt import Encoder
    from ropebench.registry import Registry

    model_card = card(find("smollm2-135m"))
    method, _ = Registry.load().build("method", options.method)
    rotation = rotation_of(model_card, method, model_card.geometry, options.target)
    source = _gguf(model_card)
    longest = max(options.lengths)
    loaded = load(model_card, "cpu", "float32")
    text = "\n\n".join(texts("llama-cpp-check", open_corpus("installed"), 8 * longest))
    ids = list(loaded.tokenizer(text, add_special_tokens=False)["input_ids"])[:longest]
    with applied(loaded.model, rotation.long):
        ours = Engine(loaded.model, Encoder(loaded.tokenizer)).nll(ids)
    np.save(scratch / "ids.npy", np.array(ids))
    exported = scratch / "exported.gguf"
    llama_cpp.write(rotation, source, exported)
    passes = {"ropebench": ours, "exported": _theirs(options.python, exported, scratch)}
    passes["unmodified"] = _theirs(options.python, source, scratch)
    if options.plain_weights:
        plain, again = scratch / "plain.gguf", scratch / "plain-exported.gguf"
        dequantised(source, plain)
        llama_cpp.write(rotation, plain, again)
        passes["exported_float32"] = _theirs(options.python, again, scratch, "f32")
    by_length = {
        str(length): {name: math.exp(float(np.mean(nll[: length - 1]))) for name, nll in passes.items()}
        for length in options.lengths
    }
    apart = {
        length: {name: value / row["ropebench"] - 1 for name, value in row.items() if name != "ropebench"}
        for length, row in by_length.items()
    }
    within = all(abs(value) <= NEAR for row in apart.values() for name, value in row.items() if name != "unmodified")
    within = within and abs(apart[str(longest)]["unmodified"]) > NEAR
    return {"method": rotation.label, "tokens": len(ids), "perplexity": by_length, "apart": apart, "within": within}


def _gguf(model_card: Any) -> Path:
    from importlib.util import find_spec

    found = find_spec(model_card.spec.package)
    assert found is not None
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0]) / model_card.spec.file


def _theirs(python: str, gguf: Path, scratch: Path, cache: str = "f16") -> Any:
    runner = Path(__file__).with_name("measuring") / "served_nll.py"
    out = scratch / f"{gguf.stem}.npy"
    words = [python, str(runner), str(gguf), str(scratch / "ids.npy"), str(out), cache]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"llama.cpp failed on {gguf.name}: {done.stderr.strip()[-1500:]}")
    return np.load(out)


def dequantised(source: Path, out: Path) -> None:
    """The same file with every weight as float32: what ropebench computes with."""
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
    from gguf.quants import dequantize

    reader = GGUFReader(source)
    field = reader.get_field("general.architecture")
    assert field is not None
    writer = GGUFWriter(out, field.contents())
    for name, one in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        inner = one.types[-1] if one.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, one.contents(), one.types[0], sub_type=inner)
    writer.add_file_type(0)
    for tensor in reader.tensors:
        plain = tensor.tensor_type == GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, tensor.data if plain else dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    sys.exit(main())

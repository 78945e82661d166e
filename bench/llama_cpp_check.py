"""`make llama-cpp-check`: the perplexity of an exported GGUF in llama.cpp beside ropebench's own, on one text.

One pass per file at the longest length gives the shorter ones too: a token sees only what is before it, and the tables
are the same at every length. `float32` files hold the very weights that ropebench computes with; `shipped` is the
model's own GGUF, whose quantised weights llama.cpp multiplies by activations that it quantises as well.

Prints one JSON object; exit code 1 where an exported file is more than 1 % apart from ropebench at any length, or the
unmodified one is not at the longest. smollm2-135m at 16384 tokens takes a core about half an hour in all; the bundled
model (--model tiny --lengths 512 2048 --target 2048) seconds.
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has llama-cpp-python")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--method", default="mrrope_pro")
    parser.add_argument("--lengths", type=int, nargs="+", default=[8192, 16384])
    parser.add_argument("--target", type=int, default=16384)
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as scratch:
        found = compare(options, Path(scratch))
    print(json.dumps(found, indent=1))
    return 0 if found["within"] else 1


def compare(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Perplexities by length, how far llama.cpp's are from ropebench's, and the mean |Δ nats| of a token."""
    from measuring import plain_gguf
    from ropebench.apply import applied
    from ropebench.corpus import open_corpus, texts
    from ropebench.engine import Engine
    from ropebench.export import llama_cpp, rotation_of
    from ropebench.model import card, find, load
    from ropebench.prompt import Encoder
    from ropebench.registry import Registry

    model_card, longest = card(find(options.model)), max(options.lengths)
    method, _ = Registry.load().build("method", options.method)
    rotation = rotation_of(model_card, method, model_card.geometry, options.target)
    loaded = load(model_card, "cpu", "float32")
    text = "\n\n".join(texts("llama-cpp-check", open_corpus("installed"), 8 * longest))
    ids = list(loaded.tokenizer(text, add_special_tokens=False)["input_ids"])[:longest]
    np.save(scratch / "ids.npy", np.array(ids))
    with applied(loaded.model, rotation.long):
        passes: dict[str, Any] = {"ropebench": Engine(loaded.model, Encoder(loaded.tokenizer)).nll(ids)}
    plain = scratch / "float32.gguf"
    plain_gguf.write(loaded.model, plain)
    for kind, source, cache in (("float32", plain, "f32"), ("shipped", _shipped(model_card), "f16")):
        if source is not None:
            exported = scratch / f"{kind}-exported.gguf"
            llama_cpp.write(rotation, source, exported)
            passes[f"exported_{kind}"] = _theirs(options.python, exported, scratch, cache)
    passes["unmodified"] = _theirs(options.python, _shipped(model_card) or plain, scratch, "f16")
    table = {
        length: {name: math.exp(float(np.mean(nll[: length - 1]))) for name, nll in passes.items()}
        for length in sorted(options.lengths)
    }
    apart = {length: {name: row[name] / row["ropebench"] - 1 for name in row} for length, row in table.items()}
    near = all(abs(row[name]) <= NEAR for row in apart.values() for name in row if name.startswith("exported"))
    return {
        "method": rotation.label,
        "tokens": len(ids),
        "perplexity": table,
        "apart": apart,
        "per_token": {name: float(np.mean(np.abs(nll - passes["ropebench"]))) for name, nll in passes.items()},
        "within": near and abs(apart[longest]["unmodified"]) > NEAR,
    }


def _shipped(model_card: Any) -> Path | None:
    """The model's own GGUF file, where it comes as one."""
    from importlib.util import find_spec

    found = find_spec(model_card.spec.package) if model_card.spec.package else None
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0]) / model_card.spec.file


def _theirs(python: str, gguf: Path, scratch: Path, cache: str) -> Any:
    """−ln p of each token by llama.cpp. Raises RuntimeError with what it said where it fails."""
    runner = Path(__file__).with_name("measuring") / "served_nll.py"
    out = scratch / f"{gguf.stem}.npy"
    words = [python, str(runner), str(gguf), str(scratch / "ids.npy"), str(out), cache]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"llama.cpp failed on {gguf.name}: {done.stderr.strip()[-1500:]}")
    return np.load(out)


if __name__ == "__main__":
    sys.exit(main())

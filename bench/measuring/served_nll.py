"""Run by an interpreter that has llama-cpp-python, and needs nothing of ropebench:

    python served_nll.py MODEL.gguf IDS.npy OUT.npy [f16|f32]

writes −ln p, in nats, of each of the ids but the first, given all before it; keys and values in the cache as named.
"""

from __future__ import annotations

import sys
from typing import Any

BATCH = 512
CACHE = {"f32": 0, "f16": 1}  # ggml_type


def nll(gguf: str, ids: Any, cache: str) -> Any:
    """Float64 of shape (len(ids) − 1,), from one sequence decoded in batches. Raises RuntimeError where it fails."""
    import llama_cpp as lib
    import numpy as np

    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(gguf.encode(), lib.llama_model_default_params())
    if not model:
        raise RuntimeError(f"llama.cpp does not load {gguf}")
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = len(ids), BATCH, BATCH
    params.n_threads = params.n_threads_batch = 1
    params.type_k = params.type_v = CACHE[cache]
    context = lib.llama_init_from_model(model, params)
    if not context:
        raise RuntimeError("llama.cpp makes no context")
    words = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    batch = lib.llama_batch_init(BATCH, 0, 1)
    found = []
    for start in range(0, len(ids), BATCH):
        part = [int(i) for i in ids[start : start + BATCH]]
        batch.n_tokens = len(part)
        for i, token in enumerate(part):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, start + i, 1, 1
            batch.seq_id[i][0] = 0
        if lib.llama_decode(context, batch) != 0:
            raise RuntimeError(f"llama.cpp cannot decode from token {start} on")
        logits = np.ctypeslib.as_array(lib.llama_get_logits(context), shape=(len(part), words))
        after = np.asarray(ids[start + 1 : start + len(part) + 1])
        rows = logits[: len(after)].astype(np.float64)
        top = rows.max(axis=1)
        found.append(top + np.log(np.exp(rows - top[:, None]).sum(axis=1)) - rows[np.arange(len(after)), after])
    return np.concatenate(found)


if __name__ == "__main__":
    import numpy

    numpy.save(sys.argv[3], nll(sys.argv[1], numpy.load(sys.argv[2]), sys.argv[4] if len(sys.argv) > 4 else "f16"))

"""FLOPs, memory and time of a cell before it runs: from the model's config, without its weights.

FLOPs: 2 per weight and token in the decoder (of a mixture of experts those that are active), 2 per weight of the LM
head and row, and per layer, head and pair that causal attention looks at 2 × (key + value width). Memory follows
`engine`: weights, keys and values with the room that `kv` leaves, and of what comes and goes the widest: one pass
through attention, or one chunk of logits with the copies that the loss makes. On a CPU the process itself is part of
what the system counts, so its size is measured and added. Time is FLOPs by measured rates (`rates`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ropebench.cell import Cell
from ropebench.record import Json
from ropebench.work import Work

_TOP_K = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_WEIGHT_BYTES = {"bnb8": 1.0, "bnb4": 0.5}  # of a decoder's matrices when they are quantised while loading


@dataclass(frozen=True)
class Shape:
    """Sizes of a model. `active`: weights of the decoder that multiply each token; `inner`: the widest activation of an
    MLP; `key_width`, `value_width`: per head."""

    parameters: int
    matrices: int
    active: int
    vocabulary: int
    width: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    key_width: int
    value_width: int
    windowed: int = 0  # layers that attend within `window` tokens only
    window: int | None = None


@dataclass(frozen=True)
class Rates:
    """Seconds per FLOP of matrices, per FLOP of attention, and per decoded token; None where not measured. `basis`
    says what measured them."""

    linear: float
    attention: float
    step: float | None
    basis: str

    def seconds(self, shape: Shape, work: Work) -> float | None:
        """Seconds of the passes, None where the rates do not cover them."""
        if work.steps and self.step is None:
            return None
        prefill = linear_flops(shape, work.prefill, max(0, work.rows - work.steps))
        return prefill * self.linear + attention_flops(shape, work) * self.attention + work.steps * (self.step or 0.0)


def shape_of(config: Any, trust_remote_code: bool = False) -> Shape | None:
    """The sizes that a config promises, read off the model built without weights (on torch's meta device, tens of
    milliseconds, and kept); None for one that cannot be built so."""
    if config is None:
        return None
    key = f"{type(config).__qualname__} {config.to_json_string(use_diff=False)}"
    if key not in _SHAPES:
        _SHAPES[key] = _built(config, trust_remote_code)
    return _SHAPES[key]


_SHAPES: dict[str, Shape | None] = {}


def _built(config: Any, trust_remote_code: bool) -> Shape | None:
    import torch
    from transformers import AutoModelForCausalLM

    builder: Any = AutoModelForCausalLM
    try:
        with torch.device("meta"):
            model = builder.from_config(config, trust_remote_code=trust_remote_code)
        model.tie_weights()
        embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
        own = model.base_model.config
        heads = own.num_attention_heads
    except Exception:  # a model's own code raises what it likes; then its cost is not known
        return None
    share = _active_share(own)
    matrices = [(n, p) for n, p in model.base_model.named_parameters() if p.ndim > 1 and p is not embedding]
    active = sum(p.numel() * (share if re.search(r"\.experts\.", n) else 1.0) for n, p in matrices)
    width = getattr(own, "head_dim", None) or own.hidden_size // heads
    key_width = (getattr(own, "qk_nope_head_dim", 0) or 0) + (getattr(own, "qk_rope_head_dim", 0) or 0) or width
    kinds = getattr(own, "layer_types", None) or ()
    return Shape(
        parameters=sum(p.numel() for p in model.parameters()),
        matrices=sum(p.numel() for _, p in matrices),
        active=round(active),
        vocabulary=int(head.shape[0]),
        width=int(embedding.shape[1]),
        inner=getattr(own, "intermediate_size", None) or 4 * int(embedding.shape[1]),
        layers=own.num_hidden_layers,
        heads=heads,
        key_heads=getattr(own, "num_key_value_heads", None) or heads,
        key_width=key_width,
        value_width=getattr(own, "v_head_dim", None) or width,
        windowed=sum(kind == "sliding_attention" for kind in kinds),
        window=getattr(own, "sliding_window", None),
    )


def _active_share(config: Any) -> float:
    """Share of a mixture's experts that a token goes through; 1 where there is none."""
    used = next((v for name in _TOP_K if (v := getattr(config, name, None))), None)
    there = next((v for name in _EXPERTS if (v := getattr(config, name, None))), None)
    return used / there if used and there else 1.0


def linear_flops(shape: Shape, tokens: int, rows: int) -> int:
    """Of the decoder's matrices and the LM head."""
    return 2 * shape.active * tokens + 2 * shape.vocabulary * shape.width * rows


def attention_flops(shape: Shape, work: Work) -> int:
    """Of scores and weighted sums, masked pairs left out."""
    near = min(work.pairs, work.tokens * shape.window) if shape.window else work.pairs
    pairs = (shape.layers - shape.windowed) * work.pairs + shape.windowed * near
    return 2 * shape.heads * (shape.key_width + shape.value_width) * pairs


def flops(shape: Shape, work: Work) -> int:
    """All of them."""
    return linear_flops(shape, work.tokens, work.rows) + attention_flops(shape, work)


def weight_bytes(shape: Shape, cell: Cell) -> int:
    """Of the loaded weights."""
    size = BYTES[cell.dtype]
    matrices = shape.matrices * _WEIGHT_BYTES.get(cell.loading.quantize or "", float(size))
    return round(matrices) + (shape.parameters - shape.matrices) * size


def peak_bytes(shape: Shape, cell: Cell, work: Work, rows: int = 1) -> int:
    """The most that the cell's passes hold at once above the weights, `rows` samples at a time."""
    from ropebench.engine import sizes_of

    size = BYTES[cell.dtype]
    sizes = sizes_of(shape.vocabulary, shape.inner, size)
    kept = _ROOM * work.cached * key_value_bytes(shape, size)
    if rows > 1:  # beside that: the rows as one cache, and one layer of it twice while it is made
        kept += (1 + 1 / shape.layers) * rows * work.cached * key_value_bytes(shape, size)
    longest = max(work.plain, min(work.cached, sizes["piece"]))
    tokens = rows * longest if work.plain else longest  # prompts are prefilled one at a time
    # States: the residual, its norm, and what attention or MLP gives back. Attention: the queries as made, turned, and
    # answered; keys and values as made and turned, and repeated for every head of their group.
    states = 3 * shape.width
    queries = shape.heads * (2 * shape.key_width + shape.value_width)
    keys = (shape.key_heads + shape.heads) * (shape.key_width + shape.value_width)
    inside = tokens * (queries + keys) * size
    mlp = 3 * shape.inner * size * min(tokens, sizes["tokens"])
    scores = longest**2 * shape.heads * 2 * 4 if cell.attention == "eager" else 0
    copies = 2 * 4 + (0 if size == 4 else size)  # float32 logits and their log-softmax, and 16-bit ones before them
    chunk = min(work.plain or work.cached, sizes["chunk"]) if work.rows > 2 * work.steps + 2 else rows
    head = chunk * shape.vocabulary * copies
    return round(kept + max(tokens * states * size + max(inside, mlp) + scores, tokens * shape.width * size + head))


_ROOM = 9 / 8  # a cache that grows does so by an eighth (kv)


def key_value_bytes(shape: Shape, size: int) -> int:
    """Of one token, in all layers."""
    return shape.layers * shape.key_heads * (shape.key_width + shape.value_width) * size


def estimate(cell: Cell, work: Work, rates: Rates | None, base: int, rows: int = 1) -> Json | None:
    """What a record says was expected: tokens, FLOPs, peak bytes, seconds and what these rest on (null: no rates).
    `base` is what is held before the first pass: the weights, and on a CPU the process."""
    shape = shape_of(cell.card.config, cell.trust_remote_code)
    if shape is None:
        return None
    seconds = rates.seconds(shape, work) if rates else None
    return {
        "tokens": work.tokens,
        "flops": flops(shape, work),
        "peak_bytes": base + (peak_bytes(shape, cell, work, rows) if work.tokens else 0),
        "seconds": seconds,
        "basis": rates.basis if rates and seconds is not None else None,
    }


def total(known: Sequence[Json | None]) -> Json:
    """Of several cells: sums, and the highest peak; null where one of them is not known."""

    def all_of(key: str) -> list[Any] | None:
        values = [one[key] if one else None for one in known]
        return None if None in values else values

    sums = {key: None if (values := all_of(key)) is None else sum(values) for key in ("tokens", "flops", "seconds")}
    peaks = all_of("peak_bytes")
    bases = {one["basis"] for one in known if one and one["basis"]}
    return {**sums, "peak_bytes": max(peaks) if peaks else None, "basis": ", ".join(sorted(bases)) or None}

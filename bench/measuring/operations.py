"""Arithmetic: how many floating-point operations a pass of a dense decoder needs, and what a ratio of passes can be.

A multiplication and an addition are two operations. Norms, rotary embedding and softmax are left out (below 1 %).
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any


def operations(config: Any, new: int, held: int = 0, head_rows: int | None = None) -> dict[str, float]:
    """By part, for `new` tokens that follow `held` ones in a cache, with causal attention and `head_rows` rows
    (default: all of `new`) through the LM head. Llama's layout: four projections, and an MLP of three matrices."""
    width, heads = config.hidden_size, config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or width // heads
    keys = getattr(config, "num_key_value_heads", None) or heads
    layers, rows = config.num_hidden_layers, new if head_rows is None else head_rows
    pairs = new * held + new * (new + 1) / 2
    return {
        "projections": layers * new * 4.0 * width * (heads + keys) * head_dim,
        "attention": layers * pairs * 4.0 * heads * head_dim,
        "mlp": layers * new * 6.0 * width * config.intermediate_size,
        "lm_head": rows * 2.0 * width * config.vocab_size,
    }


def total(config: Any, new: int, held: int = 0, head_rows: int | None = None) -> float:
    """All parts together."""
    return sum(operations(config, new, held, head_rows).values())


def gone_on_ratio(config: Any, prompts: list[tuple[int, ...]]) -> float:
    """Operations of the prompts in the order of their ids, each going on from where it leaves the one before, ÷ those
    of a whole pass for each. The answers' tokens cost the same either way and are left out."""
    ours, before = 0.0, tuple[int, ...]()
    for ids in sorted(prompts):
        held = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, ids, strict=False)))
        ours, before = ours + total(config, len(ids) - held, held, 1), ids
    return ours / sum(total(config, len(ids), 0, 1) for ids in prompts)

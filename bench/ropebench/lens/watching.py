"""Looking at a model's queries and keys as its attention gets them: after RoPE, whatever norms and projections it has.

transformers' own attention interface is the door: while inside `watched`, the model's attention function is one that
shows queries and keys to a visitor and then does what the model's own would do. Which two channels of a head are rotary
pair i (halves, neighbours, a part of the head, its end) is not looked up but seen on the model: `pair_channels`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ropebench.apply import applied, rotary_module
from ropebench.errors import UsageError
from ropebench.geometry import Frequencies

NAME = "ropebench_watched"

# layer index, query (heads, tokens, head_dim), key (key heads, tokens, head_dim): one sequence, after RoPE
Visitor = Callable[[int, torch.Tensor, torch.Tensor], None]


@contextmanager
def watched(model: Any, see: Visitor) -> Iterator[None]:
    """While inside, every attention layer of a forward pass over one sequence shows its queries and keys to `see`."""
    config = model.base_model.config
    usual = config._attn_implementation

    def attention(module: Any, query: torch.Tensor, key: torch.Tensor, *rest: Any, **more: Any) -> Any:
        see(int(module.layer_idx), query[0].detach(), key[0].detach())
        own = sys.modules[type(module).__module__]
        plain: Any = getattr(own, "eager_attention_forward", None)
        table = getattr(own, "ALL_ATTENTION_FUNCTIONS", ALL_ATTENTION_FUNCTIONS)
        return table.get_interface(usual, plain)(module, query, key, *rest, **more)

    AttentionInterface.register(NAME, attention)
    if usual in ALL_MASK_ATTENTION_FUNCTIONS:  # the mask that the model's own function would get, or none
        AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS[usual])
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = usual


def forward(model: Any, ids: Sequence[int], see: Visitor, first_position: int = 0) -> None:
    """One pass over a sequence without a cache and without logits. Raises UsageError where no attention was seen."""
    device = rotary_module(model).inv_freq.device
    row = torch.tensor([list(ids)], device=device)
    places = torch.arange(first_position, first_position + len(ids), device=device)[None]
    seen: list[int] = []

    def note(layer: int, query: torch.Tensor, key: torch.Tensor) -> None:
        seen.append(layer)
        see(layer, query, key)

    with torch.inference_mode(), watched(model, note):
        model.base_model(input_ids=row, position_ids=places, use_cache=False)
    if not seen:
        kind = getattr(model.config, "model_type", type(model).__name__)
        raise UsageError(f"{kind}: its attention does not go through transformers' interface; it cannot be looked at")


def pair_channels(model: Any) -> dict[int, np.ndarray]:
    """Per rotated layer the two channels of each rotary pair, shape (pairs, 2); layers without RoPE are left out.

    A lone token attends to itself alone, so its states are the same under every rotary table, and what differs in a
    layer's queries and keys is the rotation itself. Each pass turns on the pairs whose number has one bit set; which
    passes change a channel then spells the number of its pair. Raises UsageError where a pair has not two channels.
    """
    pairs = rotary_module(model).inv_freq.numel()
    bits = pairs.bit_length()  # pair i is spelled i + 1, so that every pair is turned on at least once

    def heads(turning: np.ndarray) -> dict[int, list[np.ndarray]]:
        found: dict[int, list[np.ndarray]] = {}
        with applied(model, Frequencies(turning.astype(float))):  # 1 radian at position 1, or standing still
            forward(model, [1], lambda i, q, k: found.update({i: [_rows(q), _rows(k)]}), first_position=1)
        return found

    still = heads(np.zeros(pairs))
    spelled = {layer: np.zeros(rows[0].shape[1], int) for layer, rows in still.items()}
    for bit in range(bits):
        moved = heads((np.arange(pairs) + 1) >> bit & 1)
        for layer, rows in still.items():
            changed = [np.any(a != b, axis=0) for a, b in zip(rows, moved[layer], strict=True)]
            spelled[layer] += (changed[0] | changed[1]).astype(int) << bit
    channels: dict[int, np.ndarray] = {}
    for layer, names in spelled.items():
        if not names.any():
            continue
        own = [np.flatnonzero(names == pair + 1) for pair in range(pairs)]
        if any(len(two) != 2 for two in own) or (names > pairs).any():
            raise UsageError(f"layer {layer}: its rotary pairs are not two channels each; it cannot be looked at")
        channels[layer] = np.stack(own)
    if not channels:
        raise UsageError("no layer of this model changes with its rotary table; there is no RoPE to look at")
    return channels


def _rows(tensor: torch.Tensor) -> np.ndarray:
    """(heads, 1, head_dim) as float64 (heads, head_dim)."""
    return tensor[:, -1].double().cpu().numpy()


def pairs_of(tensor: torch.Tensor, channels: np.ndarray) -> torch.Tensor:
    """Queries or keys (heads, tokens, head_dim) as rotary pairs, float32 (heads, tokens, pairs, 2)."""
    return tensor.float()[..., torch.as_tensor(channels, device=tensor.device)]

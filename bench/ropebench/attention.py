"""Exact causal attention of new tokens over a cache that already holds their beginning, without a mask in memory.

transformers gives such a pass (1 < new tokens < all tokens) a materialised mask, which costs new × all elements and
keeps the fast kernels away. Here the two parts are computed apart (the new tokens see all of the cache, and themselves
causally) and merged by their log-sum-exp, as flash-decoding does between its splits (arXiv:2205.14135, section 3.1,
gives the merge). On other devices than the CPU torch's own lower-right causal bias does the same in one kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.attention.bias import causal_lower_right
from transformers import AttentionInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward

NAME = "ropebench_suffix"  # no mask function is registered under it: transformers then makes no mask
_PROBE = 24  # tokens of the proof that a model can go on from a cache this way
_HARMLESS = frozenset({"position_ids", "cache_position", "use_cache", "is_causal"})  # they change no number here


def suffix_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention function: query (batch, heads, new, head_dim), key and value (batch, key heads, all,
    head_dim); the queries are the last `new` of `all` positions. Returns (batch, new, heads, head_dim), None.

    Raises ValueError for what it does not compute: masks, soft caps, sinks, sliding windows, dropout.
    """
    new, held = query.shape[2], key.shape[2] - query.shape[2]
    asked = [name for name in more if name not in _HARMLESS and more[name] is not None and more[name] is not False]
    if attention_mask is not None or dropout or asked:
        raise ValueError(f"attention over a cache is not computed here with {asked or 'a mask or dropout'}")
    if held == 0 or new == 1:
        return sdpa_attention_forward(module, query, key, value, None, 0.0, scaling)
    groups = query.shape[1] // key.shape[1]
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    if query.device.type != "cpu":
        bias = causal_lower_right(new, held + new)
        merged = torch.nn.functional.scaled_dot_product_attention(query, key, value, bias, scale=scaling)
        return merged.transpose(1, 2).contiguous(), None
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    past, past_lse = flash(query, key[:, :, :held], value[:, :, :held], scale=scaling)
    own, own_lse = flash(query, key[:, :, held:], value[:, :, held:], is_causal=True, scale=scaling)
    share = torch.sigmoid((past_lse - own_lse).float())[..., None]  # of the softmax's mass that lies in the cache
    merged = own.float().lerp(past.float(), share).to(query.dtype)
    return merged.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, suffix_attention)


@contextmanager
def over_cache(decoder: Any) -> Iterator[None]:
    """While inside, the decoder's passes use `suffix_attention`."""
    config = decoder.config
    usual = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = usual


def cropped(cache: DynamicCache, to: int) -> DynamicCache:
    """The cache with its first `to` tokens only. transformers' `crop` takes the number to remove, as a negative int."""
    surplus = cache.get_seq_length() - to
    if surplus > 0:
        cache.crop(-surplus)
    return cache


def sees_everything(model: Any) -> bool:
    """Whether all layers attend to every earlier token through SDPA, so that a cache can be cut back and gone on from:
    a sliding window's cannot."""
    config = model.base_model.config
    plain = all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)
    windowed = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    return bool(config._attn_implementation == "sdpa" and plain and not windowed)


def goes_on_from_a_cache(model: Any, cache_name: str) -> bool:
    """Whether a pass over a cropped cache gives what a whole pass gives: shown on the model at hand, with a short pass
    and its two halves. `cache_name` is the decoder's keyword for the cache."""
    decoder = model.base_model
    weight = model.get_input_embeddings().weight
    ids = torch.tensor([[7 * n % weight.shape[0] for n in range(1, _PROBE + 1)]], device=weight.device)
    half = _PROBE // 2
    with torch.inference_mode():
        try:
            whole = decoder(input_ids=ids, use_cache=False).last_hidden_state[0, half:].float()
            cache = DynamicCache(config=decoder.config)
            decoder(input_ids=ids[:, : half + 4], use_cache=True, **{cache_name: cache})
            with over_cache(decoder):
                state = decoder(input_ids=ids[:, half:], use_cache=True, **{cache_name: cropped(cache, half)})
        except (RuntimeError, ValueError, TypeError):
            return False
        apart = (state.last_hidden_state[0].float() - whole).norm() / whole.norm().clamp_min(1e-30)
    return bool(apart < (1e-4 if weight.dtype == torch.float32 else 3e-2))

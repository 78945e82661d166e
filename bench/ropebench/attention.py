"""Exact causal attention of new tokens over a cache that already holds their beginning, without a mask in memory.

transformers gives such a pass (1 < new tokens < all tokens) a materialised mask, which costs new × all elements and
keeps the fast kernels away. Here the two parts are computed apart (the new tokens see all of the cache, and themselves
causally) and merged by their log-sum-exp, as flash-decoding does between its splits (arXiv:2205.14135, section 3.1,
gives the merge). On other devices than the CPU torch's own lower-right causal bias does the same in one kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch.nn.attention.bias import causal_lower_right
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward

from ropebench.kv import copied, cropped, is_plain, new_cache, side_by_side

# No mask function is registered under these: transformers then makes no mask.
NAME = "ropebench_suffix"
ROWS = "ropebench_rows"
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
    _refuse(attention_mask, dropout, more)
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


def _refuse(mask: torch.Tensor | None, dropout: float, more: dict[str, Any]) -> None:
    asked = [name for name in more if name not in _HARMLESS and more[name] is not None and more[name] is not False]
    if mask is not None or dropout or asked:
        raise ValueError(f"attention over a cache is not computed here with {asked or 'a mask or dropout'}")


@dataclass(frozen=True)
class RowsAttention:
    """transformers' attention function for one new token of each row of a cache in which row i begins at `starts[i]`:
    rows that begin together are computed together, each over its own tokens and nothing else."""

    starts: tuple[int, ...]

    def __call__(
        self, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
        attention_mask: torch.Tensor | None, dropout: float = 0.0, scaling: float | None = None, **more: Any,
    ) -> tuple[torch.Tensor, None]:  # fmt: skip
        """query (rows, heads, 1, head_dim), key and value (rows, key heads, all, head_dim); returns (rows, 1, heads,
        head_dim), None. Raises ValueError as `suffix_attention`."""
        _refuse(attention_mask, dropout, more)
        parts, row = [], 0
        for start, alike in groupby(self.starts):
            rows = slice(row, row := row + len(list(alike)))
            own = (query[rows], key[rows, :, start:], value[rows, :, start:])
            parts.append(sdpa_attention_forward(module, *own, None, 0.0, scaling)[0])
        return torch.cat(parts), None


AttentionInterface.register(NAME, suffix_attention)


@contextmanager
def _through(decoder: Any, name: str) -> Iterator[None]:
    """While inside, the decoder's passes use the attention function of that name."""
    config = decoder.config
    usual = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = usual


def over_cache(decoder: Any) -> AbstractContextManager[None]:
    """While inside, the decoder's passes use `suffix_attention`."""
    return _through(decoder, NAME)


@contextmanager
def over_rows(decoder: Any, starts: Sequence[int]) -> Iterator[None]:
    """While inside, the decoder's passes use `RowsAttention`; the rows stand in order of their `starts`."""
    AttentionInterface.register(ROWS, RowsAttention(tuple(starts)))
    with _through(decoder, ROWS):
        yield


def sees_everything(model: Any) -> bool:
    """Whether all layers attend to every earlier token through SDPA, so that a cache can be cut back and gone on from:
    a sliding window's cannot."""
    config = model.base_model.config
    windowed = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    return bool(config._attn_implementation == "sdpa" and is_plain(config) and not windowed)


def goes_on_from_a_cache(model: Any, cache_name: str) -> bool:
    """Whether a pass over a cropped cache gives what a whole pass gives: shown on the model at hand, with a short pass
    and its two halves. `cache_name` is the decoder's keyword for the cache."""
    decoder, ids = model.base_model, probe(model)
    half = _PROBE // 2
    with torch.inference_mode():
        try:
            whole = decoder(input_ids=ids, use_cache=False).last_hidden_state[0, half:]
            cache = new_cache(decoder.config)
            decoder(input_ids=ids[:, : half + 4], use_cache=True, **{cache_name: cache})
            with over_cache(decoder):
                state = decoder(input_ids=ids[:, half:], use_cache=True, **{cache_name: cropped(cache, half)})
        except (RuntimeError, ValueError, TypeError):
            return False
        return same_states(state.last_hidden_state[0], whole)


def decodes_side_by_side(model: Any, cache_name: str) -> bool:
    """Whether rows of different lengths in one cache give what each gives alone: shown on the model at hand, with the
    last tokens of two short passes."""
    decoder, ids = model.base_model, probe(model)
    lengths = (_PROBE, _PROBE // 2)
    with torch.inference_mode():
        try:
            alone, rows = [], []
            for length in lengths:
                alone.append(decoder(input_ids=ids[:, :length], use_cache=False).last_hidden_state[0, -1])
                cache = new_cache(decoder.config)
                decoder(input_ids=ids[:, : length - 1], use_cache=True, **{cache_name: cache})
                rows.append(copied(cache, length - 1))
            joined, starts = side_by_side(decoder.config, rows, 1)
            places = torch.tensor([[length - 1] for length in lengths], device=ids.device)
            with over_rows(decoder, starts):
                state = decoder(input_ids=ids[0][places], position_ids=places, use_cache=True, **{cache_name: joined})
        except (RuntimeError, ValueError, TypeError):
            return False
        return same_states(state.last_hidden_state[:, 0], torch.stack(alone))


def probe(model: Any) -> torch.Tensor:
    """A short row of ids, (1, 24), on the model's device."""
    weight = model.get_input_embeddings().weight
    ids = [[7 * n % weight.shape[0] for n in range(1, _PROBE + 1)]]
    return torch.tensor(ids, device=weight.device)


def same_states(ours: torch.Tensor, plain: torch.Tensor) -> bool:
    """Whether two computations of the same states agree as far as their number format does."""
    apart = (ours.float() - plain.float()).norm() / plain.float().norm().clamp_min(1e-30)
    return bool(apart < (1e-4 if plain.dtype == torch.float32 else 3e-2))

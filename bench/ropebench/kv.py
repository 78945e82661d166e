"""Keys and values of passes: a cache with room to grow, cut back, copied, and several of them side by side.

transformers' own layer joins the whole cache anew for every token that is decoded; here a token is written behind the
others. This module is the one place that knows how transformers spells a cache.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from ropebench.memory import trim

_ROOM = 8  # a cache that is full grows by this share of itself, so that it is copied seldom
_LEAST = 64  # and by so many tokens at least

# One row's keys and values (1, key heads, tokens, head_dim) of every layer.
Row = list[tuple[torch.Tensor, torch.Tensor]]


class RoomyLayer(DynamicLayer):
    """`keys` and `values` are the used beginnings of buffers with room behind it."""

    keys: Any
    values: Any

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *more: Any, **named: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new tokens behind the held ones; returns all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.buffers: tuple[torch.Tensor, ...] = ()
        held = self.get_seq_length()
        total = held + key_states.shape[-2]
        if not self.buffers or total > self.buffers[0].shape[-2]:
            room = total + max(_LEAST, total // _ROOM)
            self.buffers = tuple(_roomy(old, new, held, room) for old, new in self._pairs(key_states, value_states))
        for buffer, new in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[..., held:total, :] = new
        self.keys, self.values = (buffer[..., :total, :] for buffer in self.buffers)
        return self.keys, self.values

    def _pairs(self, *new: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return list(zip((self.keys, self.values), new, strict=True))

    def hold(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Begin with these tokens, of any number of rows."""
        self.lazy_initialization(keys, values)
        self.keys, self.values, self.buffers = keys, values, ()

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Drop the other rows; what they held is given back."""
        chosen = torch.tensor(rows, device=self.keys.device)
        self.buffers = tuple(buffer.index_select(0, chosen) for buffer in self.buffers or (self.keys, self.values))
        total = self.get_seq_length()
        self.keys, self.values = (buffer[..., :total, :] for buffer in self.buffers)


def _roomy(old: torch.Tensor, new: torch.Tensor, held: int, room: int) -> torch.Tensor:
    buffer = torch.empty((*new.shape[:2], room, new.shape[-1]), dtype=new.dtype, device=new.device)
    if held:
        buffer[..., :held, :] = old
    return buffer


def name_of_cache(decoder: Any) -> str:
    """The decoder's keyword for its cache, which transformers renames from `past_key_values` to `cache`."""
    return "cache" if "cache" in inspect.signature(decoder.forward).parameters else "past_key_values"


def is_plain(config: Any) -> bool:
    """Whether every layer holds all tokens, as none with a sliding window does."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)


def new_cache(config: Any) -> DynamicCache:
    """An empty cache: with room to grow where every layer holds all tokens, else transformers' own."""
    cache = DynamicCache(config=config)
    if is_plain(config):
        cache.layers = [RoomyLayer() for _ in cache.layers]  # type: ignore[no-untyped-call]
    return cache


def cropped(cache: DynamicCache, to: int) -> DynamicCache:
    """The cache with its first `to` tokens only. transformers' `crop` takes the number to remove, as a negative int."""
    surplus = cache.get_seq_length() - to
    if surplus > 0:
        cache.crop(-surplus)
    return cache


def keep_rows(cache: Any, rows: Sequence[int]) -> None:
    """Drop the other rows of a cache that `side_by_side` made."""
    for layer in cache.layers:
        layer.keep_rows(rows)


def copied(cache: Any, to: int) -> Row:
    """A copy of the first `to` tokens of a cache of one row, which later passes over the cache leave alone."""
    return [(layer.keys[..., :to, :].clone(), layer.values[..., :to, :].clone()) for layer in cache.layers]


def side_by_side(config: Any, rows: list[Row], room: int) -> tuple[DynamicCache, list[int]]:
    """One cache of several rows, each ending at the same place, and where each begins in it: what lies before is empty
    and must not be read. `room` tokens can follow without a copy. The rows are emptied, layer by layer."""
    cache: Any = new_cache(config)
    lengths = [row[0][0].shape[-2] for row in rows]
    longest = max(lengths)
    starts = [longest - length for length in lengths]
    for number, layer in enumerate(cache.layers):
        buffers = []
        for part in (0, 1):
            first = rows[0][number][part]
            shape = (len(rows), first.shape[1], longest + room, first.shape[-1])
            buffer = torch.empty(shape, dtype=first.dtype, device=first.device)
            for place, (row, start) in enumerate(zip(rows, starts, strict=True)):
                buffer[place, :, start:longest] = row[number][part][0]
            buffers.append(buffer)
        layer.hold(*(buffer[..., :longest, :] for buffer in buffers))
        layer.buffers = tuple(buffers)
        for row in rows:
            row[number] = (first.new_empty(0), first.new_empty(0))
        del first
        if not buffers[0].is_cuda:
            trim()  # else the rows' pieces and the cache made of them are in memory both
    return cache, starts

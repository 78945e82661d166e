"""Data in latent blocks: ways to make a dependence as wide as a block, all ours (the paper's own is not known).

A sequence is cut into blocks of `size` tokens, the first cut at a random place, and nothing marks the cuts. Symbols are
uniform over SYMBOLS ids. Forms:

- `recall`: a block has a hidden symbol, which a quarter of its tokens show; all others are noise. At one fixed offset,
  the block's last place, the hidden symbol is to be recalled (what stands there is noise as well); nothing else counts.
  The nearest to the paper's words: latent blocks, and a target at a fixed offset. What the target depends on is spread
  evenly over the size − 1 tokens before it, and ends sharply.
- `recall_short`, `recall_fixed`: the same in a context of two blocks in place of four, or of CONTEXT tokens whatever
  the size.
- `repeat`: hidden symbols likewise, and every token counts: the model does not know where in its block a token stands,
  so the dependence falls off linearly.
- `nearest`: one token of the block is a symbol of the upper half, at a random place, the others of the lower half; the
  symbol is to be recalled at the block's last place.
- `copy`: no blocks: three quarters of the tokens equal the one `size` back. One distance, not a width.

In all but `recall_fixed` the context has the same number of blocks at every size, so that data of one size are data of
another, dilated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ropebench.lens.experiment.small import Batch

SYMBOLS = 16
SHOWN = 0.25  # of a block's tokens show its symbol
COPIED = 0.75
CONTEXT = 256

Make = Callable[[np.random.Generator, int, int, int], Batch]  # stream, rows, tokens, size


@dataclass(frozen=True)
class Form:
    """`blocks` in a context, or (None) CONTEXT tokens. `chance`: accuracy of the best guess without looking back."""

    make: Make
    blocks: int | None
    chance: float
    said: str

    def context(self, size: int) -> int:
        return CONTEXT if self.blocks is None else self.blocks * size


def _places(
    rng: np.random.Generator, rows: int, tokens: int, size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Per token its block's number, its place in the block (0 … size − 1), and its block's symbol."""
    at = np.arange(tokens) + rng.integers(0, size, (rows, 1))
    symbols = rng.integers(0, SYMBOLS, (rows, tokens // size + 2))
    return at // size, at % size, np.take_along_axis(symbols, at // size, 1)


def recall(rng: np.random.Generator, rows: int, tokens: int, size: int) -> Batch:
    block, place, symbol = _places(rng, rows, tokens, size)
    last = place == size - 1
    shown = (rng.random((rows, tokens)) < SHOWN) & ~last
    ids = np.where(shown, symbol, rng.integers(0, SYMBOLS, (rows, tokens)))
    return Batch(ids, symbol, last & (block > 0))  # the first block may be seen in part only


def repeat(rng: np.random.Generator, rows: int, tokens: int, size: int) -> Batch:
    _, _, symbol = _places(rng, rows, tokens, size)
    shown = rng.random((rows, tokens)) < SHOWN
    ids = np.where(shown, symbol, rng.integers(0, SYMBOLS, (rows, tokens)))
    return Batch(ids, ids, np.ones(ids.shape, bool))


def nearest(rng: np.random.Generator, rows: int, tokens: int, size: int) -> Batch:
    half = SYMBOLS // 2
    block, place, symbol = _places(rng, rows, tokens, size)
    symbol = half + symbol % half
    chosen = np.take_along_axis(rng.integers(0, size - 1, (rows, tokens // size + 2)), block, 1)
    ids = np.where(place == chosen, symbol, rng.integers(0, half, (rows, tokens)))
    return Batch(ids, symbol, (place == size - 1) & (block > 0))


def copy(rng: np.random.Generator, rows: int, tokens: int, size: int) -> Batch:
    ids = rng.integers(0, SYMBOLS, (rows, tokens))
    copied = rng.random((rows, tokens)) < COPIED
    for first in range(size, tokens, size):
        here = slice(first, min(first + size, tokens))
        back = slice(here.start - size, here.stop - size)
        ids[:, here] = np.where(copied[:, here], ids[:, back], ids[:, here])
    return Batch(ids, ids, np.broadcast_to(np.arange(tokens) >= size, ids.shape).copy())


FORMS = {
    "recall": Form(recall, 4, 1 / SYMBOLS, "a block's symbol, recalled at its last place; 4 blocks in a context"),
    "recall_short": Form(recall, 2, 1 / SYMBOLS, "the same, 2 blocks in a context"),
    "recall_fixed": Form(recall, None, 1 / SYMBOLS, f"the same, {CONTEXT} tokens in a context"),
    "repeat": Form(repeat, 4, 1 / SYMBOLS, "a block's symbol, shown by a quarter of its tokens; every token counts"),
    "nearest": Form(nearest, 4, 2 / SYMBOLS, "the one symbol among a block's noise, recalled at its last place"),
    "copy": Form(copy, 4, 1 / SYMBOLS, "the token one fixed distance back"),
}

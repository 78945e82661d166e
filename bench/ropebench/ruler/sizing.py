"""How many units of haystack make a prompt of the wanted length, and the stream of samples that are so sized.

The tokens that a unit adds are counted once per tokenizer, alone; their sum says how many units fit. The whole prompt
is then encoded, once or twice, and its own ids decide: where tokens join across units, the sum is corrected and the
count taken again. Every search has a bracket that shrinks, so none can hang.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ropebench.errors import UsageError
from ropebench.prompt import Encoder
from ropebench.task import Example

# What a unit follows when its tokens are counted: a tokenizer that marks the beginning of a text (Llama 2) would count
# one token too many for a word that stands alone.
_ANCHOR = "a"

_MOST_KNOWN = 500_000  # units whose count is kept per tokenizer (about 60 MB)
_KNOWN: WeakKeyDictionary[Any, dict[str, int]] = WeakKeyDictionary()

_TRIED = 16  # samples looked at to name the smallest length


@dataclass(frozen=True)
class Draft:
    """A sample before its size is chosen.

    `render(units)` → the prompt's text and its meta, for least ≤ units ≤ most. `extra(units)` estimates the ids that
    `units` add over `least`; it never falls.
    """

    targets: tuple[str, ...]
    answer_prefix: str
    least: int
    most: int
    extra: Callable[[int], int]
    render: Callable[[int], tuple[str, Mapping[str, Any]]]


def added_tokens(encoder: Encoder, pieces: Sequence[str]) -> NDArray[np.int64]:
    """Ids that each piece adds where it continues a text, shape (len(pieces),). Counted once per tokenizer."""
    known = _KNOWN.setdefault(encoder.tokenizer, {})
    if len(known) > _MOST_KNOWN:
        known.clear()
    new = [piece for piece in dict.fromkeys(pieces) if piece not in known]
    if new:
        start = len(encoder.text(_ANCHOR))
        texts = [_ANCHOR + piece for piece in new]
        encoded = encoder.tokenizer(
            texts, add_special_tokens=False, split_special_tokens=True, verbose=False, return_attention_mask=False
        )["input_ids"]
        known.update((piece, max(len(ids) - start, 0)) for piece, ids in zip(new, encoded, strict=True))
    return np.fromiter((known[piece] for piece in pieces), np.int64, len(pieces))


def running_total(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tokens before each unit, and after the last: shape (units + 1,)."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(tokens)])


def take_until(encoder: Encoder, units: Iterator[tuple[Any, str]], tokens: int) -> tuple[list[Any], NDArray[np.int64]]:
    """From a stream of (unit, its text in the prompt) as many as have `tokens` ids together, and some more (fewer where
    the stream ends): the units and their counts."""
    taken: list[Any] = []
    counts: list[NDArray[np.int64]] = []
    total = 0
    while total <= tokens:
        average = total / len(taken) if taken and total else 300.0  # the first batch is small: documents are long
        batch = list(islice(units, min(max(int((tokens - total) / average) + 2, 8), 4096)))
        if not batch:
            return taken, np.concatenate([np.zeros(0, np.int64), *counts])
        taken += [unit for unit, _ in batch]
        counts.append(added_tokens(encoder, [text for _, text in batch]))
        total += int(counts[-1].sum())
        if len(taken) > 8 * (tokens + 8):  # units without tokens: no tokenizer should, and it must not go on for ever
            break
    return taken, np.concatenate(counts)


def fitted(draft: Draft, encoder: Encoder, budget: int) -> tuple[int, tuple[int, ...], Mapping[str, Any]] | int:
    """The most units whose prompt has at most `budget` ids, with its ids and meta; or, when not even the least fits,
    how many ids that one has."""

    def encode(units: int) -> tuple[tuple[int, ...], Mapping[str, Any]]:
        text, meta = draft.render(units)
        return encoder.prompt(text, draft.answer_prefix), meta

    ids, meta = encode(draft.least)
    base = len(ids)
    if base > budget:
        return base
    low, high, best = draft.least, draft.most + 1, (draft.least, ids, meta)
    rate, at, size, tries = 1.0, draft.least, base, 0  # real ids per estimated one; the prompt that was encoded last
    while high - low > 1:
        room = draft.extra(at) + (budget - size) / rate
        units = bisect_right(range(low, high), room, key=draft.extra) + low - 1
        if units <= low:
            if low == at or low > draft.least or tries > 3:  # it fits, and the next would not
                break
            units = low + 1
        if tries > 6:
            units = (low + high) // 2
        units = min(units, high - 1)
        ids, meta = encode(units)
        tries, at, size = tries + 1, units, len(ids)
        if draft.extra(units) > 0:
            rate = min(max((size - base) / draft.extra(units), 0.25), 4.0)
        if size <= budget:
            low, best = units, (units, ids, meta)
        else:
            high = units
    return best


def stream(
    name: str,
    length: int,
    encoder: Encoder,
    new_tokens: int,
    draft: Callable[[int, int], Draft | None],
    alike: bool = True,
    start: int = 0,
) -> Iterator[Example]:
    """Samples of `length` tokens (prompt and answer budget), from number `start` on. `draft(i, length)` is sample i,
    None after the last one.

    Raises UsageError with the smallest length that works when `length` is too short: for any of the first samples, or,
    where they are not `alike` (documents of all sizes), for all of them. A single sample that does not fit is skipped
    with its reason, never cut.
    """
    budget = length - new_tokens
    first = draft(0, length)
    margin = 4.0 if alike else 1.0  # how much longer than the first sample another one can be
    if first is not None and margin * _need(first, encoder) > budget:
        needs = _needs(draft, length, encoder)
        if budget < (max(needs) if alike else min(needs)):
            smallest = _smallest(draft, 1, encoder, new_tokens)
            which = f"the smallest that works is {smallest}"
            if smallest < length:  # a task that asks for more from some length on
                longer = _smallest(draft, max(needs) + new_tokens, encoder, new_tokens)
                which = f"the next that works is {longer}, and below it {smallest}"
            raise UsageError(f"{name}: length {length} is too short; {which}")
    for i in count(start):
        drawn = draft(i, length)
        if drawn is None:
            return
        made = fitted(drawn, encoder, budget)
        if isinstance(made, int):
            yield Example(targets=drawn.targets, skip=f"needs {made + new_tokens} tokens", meta={"sample": i})
            continue
        units, ids, meta = made
        following = min(units + 1, drawn.most)
        about = {"units": units, "unit_tokens": drawn.extra(following) - drawn.extra(following - 1)}
        short = units == drawn.most and len(ids) + new_tokens < 0.95 * length
        skip = f"the data fills {len(ids)} of {budget} tokens only" if short else None
        yield Example(ids, drawn.targets, new_tokens, meta={**meta, **about}, skip=skip)


def _need(draft: Draft, encoder: Encoder) -> int:
    return len(encoder.prompt(draft.render(draft.least)[0], draft.answer_prefix))


def _needs(draft: Callable[[int, int], Draft | None], length: int, encoder: Encoder) -> list[int]:
    """Ids of the shortest prompt of each of the first samples."""
    drawn = (draft(i, length) for i in range(_TRIED))
    return [_need(one, encoder) for one in drawn if one is not None]


def _smallest(draft: Callable[[int, int], Draft | None], length: int, encoder: Encoder, new_tokens: int) -> int:
    """The smallest length, from `length` on, at which all of the first samples fit. Settings change with the length, so
    each guess is tried; a guess is never too long, since none asks for less at a longer length."""
    while True:
        needed = max(_needs(draft, length, encoder)) + new_tokens
        if needed <= length:
            return length
        length = needed

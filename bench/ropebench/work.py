"""What a pass costs in the model's own terms, counted and not run: ids, pairs of attention, rows of the LM head.

`DryRunner` stands where the engine stands and follows its rules of reuse, so that a plan asks for the passes that a
run asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ropebench.answers import Answer, Asked

WORTH = 1 / 8  # a common beginning shorter than this share of a prompt is not gone on from (engine)


@dataclass(frozen=True)
class Work:
    """`prefill` and `steps`: ids fed at once, and one by one; `pairs`: (query, key) of causal attention, for one head
    of one layer; `rows`: states that go through the LM head. `plain` and `cached`: the longest pass without a cache,
    and the most tokens held in one."""

    prefill: int = 0
    steps: int = 0
    pairs: int = 0
    rows: int = 0
    plain: int = 0
    cached: int = 0

    @property
    def tokens(self) -> int:
        return self.prefill + self.steps

    def __add__(self, other: Work) -> Work:
        return Work(
            self.prefill + other.prefill, self.steps + other.steps, self.pairs + other.pairs, self.rows + other.rows,
            max(self.plain, other.plain), max(self.cached, other.cached),
        )  # fmt: skip

    def scaled(self, times: float, longer: float = 1.0) -> Work:
        """As many samples, each `longer` than these: pairs grow with the square; the number of new tokens stays."""
        rows = self.rows * longer if self.rows > 2 * (self.steps + 1) else self.rows
        return Work(
            round(self.prefill * longer * times), round(self.steps * times), round(self.pairs * longer**2 * times),
            round(rows * times), round(self.plain * longer), round(self.cached * longer),
        )  # fmt: skip


def one_pass(new: int, held: int = 0) -> Work:
    """Ids and pairs of `new` ids over `held` ones."""
    return Work(prefill=new, pairs=new * held + new * (new + 1) // 2)


class DryRunner:
    """A `Runner` that counts what `Engine` would do, one sample at a time, every answer as long as its budget.
    `holds`: the model can go on from a cache."""

    def __init__(self, holds: bool = True) -> None:
        self.work = Work()
        self.tokens_fed = 0
        self._holds = holds
        self._held: tuple[int, ...] = ()
        self._known = 0  # values of NLL held

    def nll(self, ids: Sequence[int], keep: bool = False, reuse: bool = True) -> Any:
        """Nothing, counted."""
        if len(ids) < 2:
            return ()
        own, keep = tuple(ids), keep and reuse and self._holds
        start = self._start(min(self._common(own) - 1, self._known), len(own), reuse)
        done = replace(one_pass(len(own) - start, start), rows=len(own) - 1 - start)
        self._add(replace(done, **{"cached" if keep or start else "plain": len(own)}))
        self._held, self._known = (own, len(own) - 1) if keep or start else ((), 0)
        return ()

    def generate(self, ids: Sequence[int], max_new_tokens: int, stop: Sequence[str] = (), reuse: bool = True) -> Answer:
        """No text, counted."""
        own, common = tuple(ids), self._common(tuple(ids))
        start = self._start(min(common, len(own) - 1), len(own), reuse)
        steps = max(max_new_tokens - 1, 0)
        done = one_pass(len(own) - start, start)
        pairs = done.pairs + steps * len(own) + steps * (steps + 1) // 2
        self._add(replace(done, steps=steps, pairs=pairs, rows=steps + 1, cached=len(own) + steps))
        self._known = min(self._known, max(common - 1, 0)) if start else 0
        self._held = own if reuse and self._holds else ()
        return "", ()

    def nll_of_each(self, texts: Sequence[Sequence[int]]) -> list[Any]:
        """Each by itself: a batch feeds no other ids."""
        return [self.nll(ids) for ids in texts]

    def begin(self, asked: Asked) -> Any:
        """Counted at once."""
        return self.generate(asked.ids, asked.budget)

    def finish(self, begun: Sequence[Any]) -> list[Answer]:
        """What `begin` counted."""
        return list(begun)

    def batch(self, length: int) -> int:
        """One at a time."""
        return 1

    def halve(self) -> bool:
        """Nothing runs out."""
        return False

    @property
    def sizes(self) -> dict[str, int]:
        """None of its own."""
        return {}

    def _add(self, done: Work) -> None:
        self.work += done
        self.tokens_fed = self.work.tokens

    def _common(self, ids: tuple[int, ...]) -> int:
        most = min(len(self._held), len(ids))
        if self._held[:most] == ids[:most]:
            return most
        return next(n for n in range(most) if self._held[n] != ids[n])

    def _start(self, common: int, total: int, reuse: bool) -> int:
        return common if reuse and self._holds and common > 0 and common >= total * WORTH else 0

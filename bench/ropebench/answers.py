"""A prompt to be answered, and where an answer ends."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ropebench.prompt import Encoder

Answer = tuple[str, tuple[int, ...]]  # text, and ids


@dataclass(frozen=True)
class Asked:
    """A prompt to answer: at most `budget` new tokens, up to an end-of-text id or the first of the strings `stop`."""

    ids: tuple[int, ...]
    budget: int
    stop: tuple[str, ...] = ()

    def goes_on(self, encoder: Encoder, end_ids: Collection[int], new: list[int], token: int) -> bool:
        """Whether an answer goes on behind `token`, which is added to it unless it ends the text."""
        if token in end_ids:
            return False
        new.append(token)
        if len(new) == self.budget:
            return False
        return not (self.stop and any(stop in encoder.decode(new) for stop in self.stop))

    def text(self, encoder: Encoder, new: list[int]) -> Answer:
        """The finished answer, its text up to the first stop string."""
        text = encoder.decode(new)
        return text[: min((text.index(stop) for stop in self.stop if stop in text), default=len(text))], tuple(new)


@dataclass
class Begun:
    """A prompt that has been through the model: a copy of its keys and values (a `kv.Row`), and the state (1, width)
    that its first new token is read off."""

    asked: Asked
    row: Any
    state: Any

"""Likelihood that has already been paid for: the NLL of a document's beginning is the beginning of its NLL."""

from __future__ import annotations

from typing import Any


class Prefixes:
    """NLL of passes already made under the table at hand. A causal model's NLL of a prefix is the prefix of its NLL, so
    a shorter length of the same document costs nothing. Made anew whenever the table changes."""

    def __init__(self, most: int = 64) -> None:
        self._held: list[tuple[tuple[int, ...], Any]] = []
        self._most = most

    def find(self, ids: tuple[int, ...]) -> Any | None:
        """The NLL of `ids` (len(ids) − 1 values), where a held pass begins with them."""
        for longer, nll in self._held:
            if longer[: len(ids)] == ids:
                return nll[: len(ids) - 1]
        return None

    def add(self, ids: tuple[int, ...], nll: Any) -> None:
        """Hold one pass, dropping the oldest beyond the limit."""
        self._held = [*self._held[max(len(self._held) + 1 - self._most, 0) :], (ids, nll)]

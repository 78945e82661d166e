"""Likelihood that has already been paid for: the NLL of a document's beginning is the beginning of its NLL."""

from __future__ import annotations

from typing import Any

_HEAD = 64  # ids by which passes that cannot serve are told at once


class Prefixes:
    """NLL of passes already made of one document under the table at hand. A causal model's NLL of a prefix is the
    prefix of its NLL, so a shorter length of the same document costs nothing. Made anew for the next document and for
    another table, so that it holds one document's passes at most."""

    def __init__(self) -> None:
        self._held: list[tuple[tuple[int, ...], Any]] = []

    def find(self, ids: tuple[int, ...]) -> Any | None:
        """The NLL of `ids` (len(ids) − 1 values), where a held pass begins with them."""
        for longer, nll in self._held:
            if longer[: min(_HEAD, len(ids))] == ids[:_HEAD] and longer[: len(ids)] == ids:
                return nll[: len(ids) - 1]
        return None

    def add(self, ids: tuple[int, ...], nll: Any) -> None:
        """Hold one pass."""
        self._held.append((ids, nll))

"""Token ids as the strings that lm-eval passes around, and back.

lm-eval hands text to a model, and the model encodes it: ids that no text encodes to cannot be said that way (a document
cut inside a word, a prompt that quotes `<s>`). So every string of ours carries its ids, and whether lm-eval's Hugging
Face model gets the very same ones from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Encode = Callable[[str], Sequence[int]]


class Spelled(str):
    """A string with the ids that it stands for. `exact`: encoding the string gives these ids."""

    ids: tuple[int, ...]
    exact: bool

    def __new__(cls, text: str = "", ids: Iterable[int] = (), exact: bool = True) -> Spelled:
        """The defaults are for pickle, which puts the attributes back itself."""
        made = super().__new__(cls, text)
        made.ids, made.exact = tuple(ids), exact
        return made


class Likelihood(tuple[float, bool]):
    """lm-eval's answer to a likelihood request, (log-probability, whether greedy), with `nll` of each scored token."""

    nll: tuple[float, ...]

    def __new__(cls, pair: tuple[float, bool], nll: Iterable[float] = ()) -> Likelihood:
        made = super().__new__(cls, pair)
        made.nll = tuple(nll)
        return made


def spelled(tokenizer: Any, encode: Encode, ids: Sequence[int]) -> Spelled:
    """A prompt as a string: without its BOS where `encode` puts one there, else with all its markup."""
    whole = _text(tokenizer, ids)
    tried = [whole]
    if len(ids) > 1 and ids[0] == getattr(tokenizer, "bos_token_id", None):
        tried.insert(0, _text(tokenizer, ids[1:]))
    exact = next((text for text in tried if list(encode(text)) == list(ids)), None)
    return Spelled(whole if exact is None else exact, ids, exact is not None)


def spelled_pair(tokenizer: Any, encode: Encode, ids: Sequence[int], first_scored: int) -> tuple[Spelled, Spelled]:
    """A likelihood window as lm-eval's (context, continuation)."""
    before, after = list(ids[:first_scored]), list(ids[first_scored:])
    rest = _text(tokenizer, after)
    tried = [_text(tokenizer, before)]
    if before[0] == getattr(tokenizer, "bos_token_id", None):
        tried.insert(0, _text(tokenizer, before[1:]))  # "" where there is nothing else: lm-eval then puts the BOS there
    exact = next((text for text in tried if _split(tokenizer, encode, text, rest) == (before, after)), None)
    # A model that takes strings reads the inexact ones for nothing, but is not to stumble over an empty one.
    context = exact if exact is not None else tried[-1] if tried[-1].strip() else "."
    return Spelled(context, before, exact is not None), Spelled(rest, after, exact is not None)


def _split(tokenizer: Any, encode: Encode, context: str, continuation: str) -> tuple[list[int], list[int]]:
    """The ids of context and continuation as lm-eval's Hugging Face model makes them."""
    if not context:
        plain = list(tokenizer.encode(continuation, add_special_tokens=False))
        return [tokenizer.bos_token_id], plain
    kept = context.rstrip()
    head = list(encode(kept))
    return head, list(encode(kept + context[len(kept) :] + continuation))[len(head) :]


def pair_ids(encode: Encode, context: str, continuation: str, prefix: int | None) -> tuple[tuple[int, ...], int]:
    """The ids of context and continuation encoded in one piece, and the first that belongs to the continuation.

    Spaces at the end of a context belong to the continuation, as in lm-eval. Where a token holds the end of one and the
    beginning of the other it is scored; lm-eval would join two encodings that do not fit there. `prefix` (BOS, else
    end of text) stands before a continuation that nothing else stands before: its first token needs something to
    depend on.
    """
    ids, head = tuple(encode(context + continuation)), tuple(encode(context.rstrip()))
    first = next((n for n, (a, b) in enumerate(zip(head, ids, strict=False)) if a != b), min(len(head), len(ids)))
    if first:
        return ids, first
    return ((prefix,) if prefix is not None else ()) + ids, 1


def as_lm_eval_encodes(tokenizer: Any, add_bos_token: bool | None = None) -> Encode:
    """How lm-eval's Hugging Face model encodes a string: the tokenizer's own way, or with or without special tokens
    where `add_bos_token` says so; without where the string brings its BOS along."""
    bos = getattr(tokenizer, "bos_token", None)

    def encode(text: str) -> list[int]:
        special = False if bos and text.startswith(bos) else add_bos_token
        return list(tokenizer.encode(text, **({} if special is None else {"add_special_tokens": special})))

    return encode


def _text(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

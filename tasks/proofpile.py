"""Perplexity on long documents, under a named protocol.

`truncated` (default) is what the YaRN and MrRoPE papers report, although they write "sliding window S=256": each
document is cut to the first L ids, one forward pass, every id after the first scored, and the result is exp of the mean
over documents of the document's mean NLL. `sliding` moves a window of L ids by `stride` over the document's first
`min_doc_tokens` ids (so over the same text at every L) and scores each token once, in the first window that holds it;
tokens weigh equally. L counts the BOS, where the tokenizer adds one or the BOS rule asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Literal

from ropebench.corpus import PROOFPILE, Corpus, Document
from ropebench.errors import UsageError
from ropebench.prompt import Encoder
from ropebench.task import Example, Metric, Output, Task, Window

# Data sets behind published numbers, whose protocol takes the first documents of at least so many tokens, at every L.
_PUBLISHED = (PROOFPILE, "hub:emozilla/proofpile-test-tokenized", "hub:emozilla/proofpile-test-tokenized-mistral")
_PUBLISHED_LEAST = 131072


@dataclass(frozen=True)
class Proofpile(Task):
    name, version = "proofpile", 1
    metrics = (
        Metric("perplexity", "lower", 1.0, None, None, "per token", derived=("exp", "nll")),
        Metric("nll", "lower", 0.0, None, None, "nats per token"),
        Metric("bits_per_byte", "lower", 0.0, None, None, "bits per byte"),
        Metric("word_perplexity", "lower", 1.0, None, None, "per word", derived=("exp", "nats_per_word")),
        Metric("nats_per_word", "lower", 0.0, None, None, "nats per word"),
    )
    scorer = "token_nll"
    minimum_length, default_n, needs_corpus, chat, default_docs = 16, 10, True, False, PROOFPILE
    summary = "perplexity of long documents cut to the tested length"
    source = "YaRN, arXiv:2309.00071, and its code (--truncate); MrRoPE, arXiv:2601.22181, Table 1"

    protocol: Literal["truncated", "sliding"] = "truncated"
    stride: int = 256
    # Documents shorter than this are left out; default: the longest length, and 131072 for the published sets.
    min_doc_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("stride", self.stride), ("min_doc_tokens", self.min_doc_tokens)):
            if value is not None and value < 1:
                raise UsageError(f"proofpile: {name}={value} must be at least 1")
        if self.protocol == "truncated" and self.stride != Proofpile.stride:
            raise UsageError("proofpile: stride changes nothing under protocol=truncated; add protocol=sliding")

    def resolved(self, lengths: Sequence[int], corpus: Corpus | None = None) -> Proofpile:
        if self.min_doc_tokens:
            return self
        least = _PUBLISHED_LEAST if corpus is not None and corpus.source in _PUBLISHED else 1
        return replace(self, min_doc_tokens=max(least, *lengths))

    def variant_name(self) -> str:
        return "" if self.protocol == "truncated" else f"sliding-{self.stride}"

    def examples(self, length: int, encoder: Encoder, seed: int, corpus: Corpus | None = None) -> Iterator[Example]:
        """The documents with at least min_doc_tokens ids, in the corpus's order (`seed` changes nothing here)."""
        assert corpus is not None
        least, longest, found = max(self.min_doc_tokens or length, length), 0, False
        shorter = ""  # the longest text that need not be tokenised to know that it is too short
        for document in corpus.documents():
            if document.ids is None and len(document.text.encode()) < least - 1:  # a token is at least a byte
                shorter = max(shorter, document.text, key=len)
                continue
            ids = encoder.text(document.text) if document.ids is None else ready_made(document, encoder)
            longest = max(longest, len(ids))
            if len(ids) < least:
                continue
            found = True
            if self.protocol == "truncated":
                windows: tuple[Window, ...] = (Window(encoder.document(ids, length)),)
                ids = ids[: length - encoder.adds_bos]
            else:
                ids = ids[:least]
                windows = tuple(sliding(encoder, ids, length, self.stride))
            text = encoder.decode(ids if encoder.adds_bos else ids[1:])
            about = {"document": document.name, "document_sha256": document.sha256, "cluster": document.name}
            size = {"bytes": max(size_in_bytes(text), 1), "words": max(len(text.split()), 1)}
            scored = sum(len(window.ids) - window.first_scored for window in windows)
            yield Example(windows=windows, meta={**about, **size, "windows": len(windows), "tokens_scored": scored})
        if not found:
            longest = max(longest, len(encoder.text(shorter)))
            raise UsageError(
                f"proofpile: no document of {corpus.label} has {least} tokens (the longest has {longest}); choose "
                f"shorter --lengths or longer --docs"
                + (f", or proofpile:min_doc_tokens={length}" if longest >= length else "")
            )

    def score(self, example: Example, output: Output) -> dict[str, float]:
        total = float(sum(float(sum(part)) for part in output.nll))
        return likelihood(total, sum(len(part) for part in output.nll), example.meta["words"], example.meta["bytes"])


def likelihood(total: float, tokens: int, words: int, size: int) -> dict[str, float]:
    """The measures of a total NLL in nats: per token, per word, and bits per byte; each is named, since papers and
    harnesses mean different ones by "perplexity"."""
    return {"nll": total / tokens, "nats_per_word": total / words, "bits_per_byte": total / size / log(2)}


def sliding(encoder: Encoder, ids: Sequence[int], length: int, stride: int) -> Iterator[Window]:
    """Windows of at most `length` ids (BOS included) every `stride`; each text id is scored once, in the first window
    that holds it. Without BOS the document's first id has no prediction."""
    head = int(encoder.adds_bos)
    room, done = length - head, 0
    if stride > room:
        raise UsageError(
            f"proofpile: length {length} is too short for stride {stride}: tokens between two windows would go "
            f"unscored; give a smaller stride, or a length of at least {stride + head}"
        )
    for begin in range(0, len(ids), stride):
        end = min(begin + room, len(ids))
        yield Window(encoder.document(ids[begin:end]), max(head + done - begin, 1))
        done = end
        if end == len(ids):
            return


def size_in_bytes(text: str) -> int:
    """UTF-8 bytes of decoded tokens. A cut through a character leaves a replacement character at that end, which counts
    as one byte: exact at the beginning, at most 2 bytes too few at the end."""
    whole = text.strip("\ufffd")
    return len(whole.encode()) + len(text) - len(whole)


def ready_made(document: Document, encoder: Encoder) -> Sequence[int]:
    """Ids that come pre-tokenised, without their BOS. They must be this tokenizer's own: the inner half of the first
    256 is to come back from the text that they decode to (at the ends tokens may join differently)."""
    assert document.ids is not None
    ids = document.ids[1:] if document.ids[:1] == (encoder.bos_id,) else document.ids
    head = list(ids[:256])
    inner, again = head[len(head) // 4 : -(len(head) // 4) or None], encoder.text(encoder.decode(head))
    if not any(again[at : at + len(inner)] == inner for at in range(len(again) - len(inner) + 1)):
        raise UsageError(
            f"proofpile: {document.name} was tokenised for another model; use the raw documents (--docs {PROOFPILE})"
        )
    return ids

"""Perplexity on long documents, under a named protocol.

`truncated` (default) is what the YaRN and MrRoPE papers report although they write "sliding window S=256": each document
is cut to the first L ids, one forward pass, every id after the first scored, and the result is exp of the mean over
documents of the document's mean NLL. `sliding` moves a window of L ids by `stride` over the document's first
`min_doc_tokens` ids and scores each token once, in the first window that holds it; tokens weigh equally.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ropebench.corpus import PROOFPILE, Corpus, Document
from ropebench.errors import UsageError
from ropebench.prompt import Encoder
from ropebench.task import Example, Metric, Output, Task, Window


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
    min_doc_tokens: int | None = None  # documents shorter than this are left out; default: the longest length

    def resolved(self, lengths: Sequence[int]) -> Proofpile:
        return self if self.min_doc_tokens else replace(self, min_doc_tokens=max(lengths))

    def variant_name(self) -> str:
        return "" if self.protocol == "truncated" else f"sliding-{self.stride}"

    def examples(self, length: int, encoder: Encoder, seed: int, corpus: Corpus | None = None) -> Iterator[Example]:
        """The documents with at least min_doc_tokens ids, in the corpus's order (`seed` changes nothing here)."""
        least, seen, longest = max(self.min_doc_tokens or length, length), 0, 0
        assert corpus is not None
        for document in corpus.documents():
            ids = _ids(document, encoder)
            longest = max(longest, len(ids))
            if len(ids) < least:
                continue
            seen += 1
            if self.protocol == "truncated":
                windows: tuple[Window, ...] = (Window(encoder.document(ids, length)),)
            else:
                windows = tuple(sliding(encoder, ids[:least], length, self.stride))
            scored = ids[: len(windows[0].ids) - encoder.adds_bos] if self.protocol == "truncated" else ids[:least]
            text = encoder.decode(scored if encoder.adds_bos else scored[1:])
            size = {"bytes": len(text.encode()), "words": max(len(text.split()), 1)}
            about = {"document": document.name, "document_sha256": document.sha256, "cluster": document.name}
            yield Example(windows=windows, meta={**about, **size, "windows": len(windows)})
        if not seen:
            raise UsageError(
                f"proofpile: no document of {corpus.label} has {least} tokens (the longest has {longest}); choose "
                f"shorter --lengths, longer --docs, or proofpile:min_doc_tokens={length}"
            )

    def score(self, example: Example, output: Output) -> dict[str, float]:
        total = float(sum(float(sum(part)) for part in output.nll))
        return likelihood(
            total, sum(len(part) for part in output.nll), example.meta["words"], example.meta["bytes"]
        )


def likelihood(total: float, tokens: int, words: int, size: int) -> dict[str, float]:
    """The measures of a total NLL in nats: per token, per word, and bits per byte; each is named, since papers and
    harnesses mean different ones by "perplexity"."""
    return {"nll": total / tokens, "nats_per_word": total / words, "bits_per_byte": total / size / 0.6931471805599453}


def sliding(encoder: Encoder, ids: Sequence[int], length: int, stride: int) -> Iterator[Window]:
    """Windows of at most `length` ids (BOS included) every `stride`; each text id is scored once, in the first window
    that holds it. Without BOS the document's first id has no prediction."""
    head = int(encoder.adds_bos)
    room, done = length - head, 0
    if not 0 < stride <= room:
        raise UsageError(f"proofpile: stride {stride} must be from 1 to {room}, or tokens between windows go unscored")
    for begin in range(0, len(ids), stride):
        end = min(begin + room, len(ids))
        yield Window(encoder.document(ids[begin:end]), max(head + done - begin, 1))
        done = end
        if end == len(ids):
            return


def _ids(document: Document, encoder: Encoder) -> Sequence[int]:
    """A document's ids without special tokens; ids that come ready-made must be this tokenizer's own."""
    if document.ids is None:
        return encoder.text(document.text)
    ids = document.ids[1:] if document.ids[:1] == (encoder.bos_id,) else document.ids
    head = list(ids[:256])
    if encoder.text(encoder.decode(head))[-128:] != head[-128:]:
        raise UsageError(
            f"proofpile: {document.name} was tokenised for another model; use the raw documents (--docs {PROOFPILE})"
        )
    return ids

"""Text for the lens: prompts of one length out of a corpus, and a corpus as groups of texts that share nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np

from ropebench.corpus import Corpus, Document, texts
from ropebench.errors import UsageError
from ropebench.prompt import Encoder

GROUPS = 20  # parts of a corpus: independent enough for an interval, and few enough to be long
_CHARACTERS = 12  # per token, more than any text has
_TOGETHER = 256  # drills in one text, as examples stand in a prompt


def prompts(corpus: Corpus, encoder: Encoder, n: int, length: int) -> list[tuple[int, ...]]:
    """`n` prompts of exactly `length` ids, BOS by rule: pieces of documents that do not overlap, spread evenly over all
    that there are in the beginning of the corpus. Raises UsageError where there are fewer."""
    found: list[tuple[int, ...]] = []
    room = len(encoder.document([0] * length, length)) - len(encoder.document([]))
    most = 0
    for text in texts("lens", corpus, 4 * n * length * _CHARACTERS):
        ids = encoder.text(text)
        most = max(most, len(ids) + length - room)
        found += [encoder.document(ids[at : at + room]) for at in range(0, len(ids) - room + 1, room)]
    if len(found) < n:
        raise UsageError(
            f"--docs {corpus.label}: its texts hold {len(found)} prompts of {length} tokens and {n} are wanted; give "
            f"--n {len(found)} or less, a smaller --length (its longest text has {most} tokens), or more text"
        )
    return [found[place * len(found) // n] for place in range(n)]


def corpus_texts(corpus: Corpus, most_bytes: int) -> list[str]:
    """The beginning of a corpus, document by document; the last one is cut to make `most_bytes`."""
    found: list[str] = []
    left = most_bytes
    for document in corpus.documents():
        text = _text(corpus, document)[:left]
        found.append(text.encode()[:left].decode("utf-8", "ignore"))
        left -= len(found[-1].encode())
        if left <= 0:
            break
    if not any(text.strip() for text in found):
        raise UsageError(f"--docs {corpus.label}: its documents hold no text; give others, such as installed")
    return found


def _text(corpus: Corpus, document: Document) -> str:
    if document.ids is not None:
        raise UsageError(f"--docs {corpus.label} is pre-tokenised; the lens needs text (such as --docs installed)")
    return document.text


def drills(task: Any, samples: int, seed: int) -> list[str]:
    """A task's exercises without the text around them, 64 to a text, as its examples stand in a prompt. Raises
    UsageError for a task that has none."""
    if not hasattr(task, "drill"):
        raise UsageError(f"task {task.name!r} has no drills to look at; allowed: the arithmetic/… tasks, or use --docs")

    def every() -> Iterator[str]:
        for i in range(samples):
            question, answer = task.drill(Random(f"lens {task.name} {seed} {i}"))
            yield f"Question: {question}\nAnswer: {answer}\n\n"

    made = list(every())
    return ["".join(made[at : at + _TOGETHER]) for at in range(0, len(made), _TOGETHER)]


def in_groups(whole: Sequence[str], groups: int = GROUPS) -> list[list[str]]:
    """Texts as `groups` parts of about one size, in order; a text longer than a part is cut, and nothing is lost.
    (Where there are fewer texts than would fill them, a part may be larger or fewer parts come out.)"""
    total = sum(len(text) for text in whole)
    size = max(1, -(-total // groups))
    found: list[list[str]] = [[] for _ in range(groups)]
    at = 0
    for text in whole:
        begin = 0
        while begin < len(text):
            place = min(at // size, groups - 1)
            room = (place + 1) * size - at
            # A text is cut only where the part has no room for it and it is long itself: short ones stay whole.
            end = len(text) if len(text) <= size // 4 else min(len(text), begin + room)
            found[place].append(text[begin:end])
            at += end - begin
            begin = end
    return [part for part in found if part]


def as_bytes(text: str) -> np.ndarray:
    """UTF-8 bytes as int64."""
    return np.frombuffer(text.encode(), np.uint8).astype(np.int64)


def bpe(whole: Sequence[str], size: int) -> Any:
    """A byte-level BPE vocabulary of `size` trained on texts. Raises UsageError, with the bound, where the text has not
    so many merges or is too short for them."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    characters = sum(len(text) for text in whole)
    if size < 257:
        raise UsageError(f"vocabulary {size}: a byte-level one has at least 257 tokens")
    if characters < 50 * size:
        raise UsageError(
            f"vocabulary {size}: too large for a text of {characters:,} characters; it takes 50 for each token, so at "
            f"most {characters // 50:,} here"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, min_frequency=2, show_progress=False)
    tokenizer.train_from_iterator(whole, trainer)
    if tokenizer.get_vocab_size() < size:
        raise UsageError(f"vocabulary {size}: this text has merges for {tokenizer.get_vocab_size()} tokens only")
    return tokenizer

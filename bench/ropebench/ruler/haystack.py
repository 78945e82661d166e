"""What needles are hidden in: the repeated noise line, lines that are needles themselves, or any corpus's prose."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, cycle, islice
from random import Random

import numpy as np
from numpy.typing import NDArray

from ropebench.corpus import Corpus, texts
from ropebench.prompt import Encoder
from ropebench.ruler.sizing import added_tokens, running_total

# Words, each with the space after it; a character of a script without spaces; a part of an endless word.
_UNIT = re.compile(r"[\u2e80-\U0003ffff] ?|[^ \u2e80-\U0003ffff]{1,99} ?")
_SENTENCE_END = re.compile(r"[.!?][\"')\]]* $|[。！？][”’」』）]* ?$")


@dataclass(frozen=True)
class Prose:
    """A corpus as words. `tokens`: what each adds, shape (words,); `ends`: whether a sentence ends after it."""

    words: list[str]
    tokens: NDArray[np.int64]
    ends: NDArray[np.bool_]

    def begins(self) -> NDArray[np.int64]:
        """Numbers of the words at which a sentence begins."""
        return np.flatnonzero(np.roll(self.ends, 1))


def prose(name: str, corpus: Corpus, encoder: Encoder, length: int) -> Prose:
    """The corpus's text with white space collapsed, as the original does with its essays; the first 40 characters per
    token of `length`, which leaves room for other beginnings. Below 4096 tokens the text is that of 4096, so that a
    short length does not change which sentences samples begin with."""
    most = 40 * max(length, 4096)
    parts = texts(name, corpus, most)
    text = " ".join(" ".join(parts)[: most + len(parts) - 1].split())
    words = _UNIT.findall(text + " ")
    pieces = [f" {word.rstrip()}" if before.endswith(" ") else word.rstrip() for before, word in _pairs(words)]
    ends = np.fromiter((bool(_SENTENCE_END.search(word)) for word in words), np.bool_, len(words))
    ends[-1] = True
    return Prose(words, added_tokens(encoder, pieces), ends)


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    return list(zip([" ", *words], words, strict=False))


@dataclass(frozen=True)
class Stretch:
    """The words of a prose from one of its sentences on, round and round: as many as a sample can need."""

    words: list[str]
    total: NDArray[np.int64]  # tokens before each word, and after the last
    ends: NDArray[np.int64]  # numbers of words before each end of a sentence

    def places(self, words: int) -> NDArray[np.int64]:
        """Numbers of words before which a needle may stand in the first `words`: sentence ends, beginning and end."""
        inner = self.ends[: int(np.searchsorted(self.ends, words))]
        return np.concatenate([[0], inner, [words]]).astype(np.int64)

    def text(self, start: int, stop: int) -> str:
        return "".join(self.words[start:stop]).strip()


def stretch(prose: Prose, start: int, words: int) -> Stretch:
    """`words` words of a prose from word `start` on; at its end it begins again."""
    order = (start + np.arange(words)) % len(prose.words)
    again = list(islice(chain(prose.words[start:], cycle(prose.words)), words))
    return Stretch(again, running_total(prose.tokens[order]), np.flatnonzero(prose.ends[order]) + 1)


def any_beginning(prose: Prose, rng: Random) -> int:
    """The word with which one of the sentences begins."""
    return int(rng.choice(prose.begins().tolist()))


def with_needles(segments: Sequence[str], needles: Sequence[str], joint: str) -> str:
    """segment, needle, segment, needle, …, segment, joined; empty segments leave no trace."""
    parts = chain.from_iterable(zip(segments, [*needles, ""], strict=True))
    return joint.join(part for part in parts if part)

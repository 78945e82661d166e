"""RULER's two question tasks: the documents that answer a question, among others from the same data set.

The data are SQuAD v2.0 (dev) and HotpotQA (dev, distractor), both CC BY-SA 4.0, read from the files that their authors
publish or from the hub's own layout of the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from ropebench.prompt import Encoder
from ropebench.ruler.depth import even_depths, nearest
from ropebench.ruler.frequency import NVIDIA_SEED
from ropebench.ruler.prompts import DOCUMENT, QA
from ropebench.ruler.sizing import Draft, added_tokens, running_total, stream, take_until
from ropebench.task import Example


@dataclass(frozen=True)
class Question:
    """`gold`: numbers of the documents that answer it; `context`: those that come with it, gold ones included, in the
    file's order; `related`: others of the same article; `article`: what questions with the same documents share."""

    query: str
    answers: tuple[str, ...]
    gold: tuple[int, ...]
    context: tuple[int, ...]
    related: tuple[int, ...]
    article: str


@dataclass(frozen=True)
class Questions:
    """A data set: questions in the file's order, all documents sorted and without repeats, and the hash of its file."""

    questions: tuple[Question, ...]
    documents: tuple[str, ...]
    sha256: str


def question_examples(
    name: str, layout: str, length: int, encoder: Encoder, seed: int, data: Questions, start: int
) -> Iterator[Example]:
    """The samples of a question task, each question once: in an order drawn by the seed (the original's first 500 come
    from a few articles), or in the file's with layout=nvidia. See `ropebench.ruler` for what they promise."""
    order = list(range(len(data.questions)))
    if layout != "nvidia":
        Random(f"{name} questions {seed}").shuffle(order)

    def draft(i: int, length: int) -> Draft | None:
        return _draft(name, layout, length, encoder, seed, i, order[i], data) if i < len(order) else None

    return stream(name, length, encoder, QA.new_tokens, draft, alike=False, start=start)


def _others(asks: Question, documents: int, rng: Random) -> Iterator[int]:
    """Documents to add, one after the other: the question's own first, then its article's, then any."""
    own = [n for n in asks.context if n not in asks.gold]
    related = [n for n in asks.related if n not in asks.context]
    rng.shuffle(related)
    yield from (*own, *related)
    seen = {*asks.context, *related}
    while len(seen) < documents:
        if 2 * len(seen) > documents:  # few are left: drawing blindly would take ever longer
            rest = [n for n in range(documents) if n not in seen]
            rng.shuffle(rest)
            yield from rest
            return
        number = rng.randrange(documents)
        if number not in seen:
            seen.add(number)
            yield number


def _draft(
    name: str, layout: str, length: int, encoder: Encoder, seed: int, i: int, number: int, data: Questions
) -> Draft:
    asks = data.questions[number]

    def piece(document: int) -> str:
        return "\n\n" + DOCUMENT.format(i=10, document=data.documents[document])

    others = _others(asks, len(data.documents), Random(f"{name} documents {seed} {i}"))
    added, tokens = take_until(encoder, ((n, piece(n)) for n in others), length)
    gold_tokens = added_tokens(encoder, [piece(n) for n in asks.gold])
    tokens_of = dict(zip([*asks.gold, *added], [*gold_tokens.tolist(), *tokens.tolist()], strict=True))
    total = running_total(tokens)
    least = len(asks.gold)

    def arranged(units: int) -> list[int]:
        chosen = added[: units - least]
        if layout == "nvidia":
            context = [n for n in asks.context if n in asks.gold or n in chosen]
            listed = context + [n for n in chosen if n not in asks.context]
            Random(NVIDIA_SEED).shuffle(listed)
            return listed
        listed = list(chosen)
        Random(f"{name} order {seed} {i}").shuffle(listed)
        before = running_total(np.array([tokens_of[n] for n in listed], np.int64))
        places = nearest(before, even_depths(name, seed, i, least))
        for place, gold in sorted(zip(places, asks.gold, strict=True), reverse=True):
            listed.insert(place, gold)
        return listed

    def render(units: int) -> tuple[str, Mapping[str, Any]]:
        listed = arranged(units)
        context = "\n\n".join(DOCUMENT.format(i=k, document=data.documents[n]) for k, n in enumerate(listed, 1))
        # The slots are filled one after the other: documents may hold braces.
        before, after = QA.template.split("{context}")
        depths = _depths(listed, asks.gold, tokens_of)
        meta: dict[str, Any] = {"depth": sum(depths) / len(depths), "cluster": asks.article, "question": number}
        if len(depths) > 1:
            meta["depths"] = depths
        return before + context + after.replace("{query}", asks.query), meta

    return Draft(
        asks.answers,
        QA.answer_prefix,
        least,
        least + len(added),
        lambda units: int(total[units - least]),
        render,
    )


def _depths(listed: Sequence[int], gold: Sequence[int], tokens_of: Mapping[int, int]) -> list[float]:
    """Per gold document the share of the other documents' tokens that stand before it, 0–1."""
    before, found = 0, {}
    for number in listed:
        if number in gold:
            found[number] = before
        else:
            before += tokens_of[number]
    return [found[number] / max(before, 1) for number in gold]

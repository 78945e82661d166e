"""Samples from InfiniteBench's published rows: which ones, in which order, and how a long one is made to fit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from random import Random
from typing import Any, Literal

from ropebench.errors import UsageError
from ropebench.infinitebench.evidence import answer_cut, evidence
from ropebench.infinitebench.prompts import Prompts, filled
from ropebench.infinitebench.rows import Row, Rows
from ropebench.infinitebench.scoring import label_of
from ropebench.prompt import Encoder
from ropebench.task import Example

Truncate = Literal["middle", "skip"]

QUESTION_CUT = "not even the question fits"
ANSWER_CUT = "the answer was in the middle that was cut away"


@dataclass(frozen=True)
class Choice:
    """Which rows count, and how they are asked. `min_tokens` and `max_tokens` bound the whole prompt."""

    subset: str
    prompts: Prompts
    truncate: Truncate
    min_tokens: int
    max_tokens: int | None
    new_tokens: int

    @property
    def name(self) -> str:
        return f"infinitebench/{self.subset}"


def middle(ids: Sequence[int], room: int) -> tuple[Sequence[int], Sequence[int]]:
    """The first and the last of `ids`, `room` together; of an odd number the end has one more, as the original's
    truncate_input has.

    >>> middle(range(20), 7)
    (range(0, 3), range(16, 20))
    """
    return ids[: room // 2], ids[len(ids) - (room - room // 2) :]


def row_examples(choice: Choice, rows: Rows, length: int, encoder: Encoder, seed: int) -> Iterator[Example]:
    """The rows in an order drawn by the seed, each once: a larger n goes on where a smaller one ended.

    Raises UsageError where the question alone does not fit into `length`, and where no row has the wanted size.
    """
    order = list(range(len(rows)))
    Random(f"{choice.name} rows {seed}").shuffle(order)
    room = length - choice.new_tokens
    sizes: list[int] = []
    used = 0
    for number in order:
        row = rows[number]
        text = filled(choice.subset, choice.prompts, row)
        ids = encoder.prompt(text)
        sizes.append(len(ids))
        if not choice.min_tokens <= len(ids) <= (choice.max_tokens or len(ids)):
            continue
        example = _example(choice, row, text, ids, room, encoder)
        if not used and example.skip == QUESTION_CUT:
            least = min(len(ids), 2 * max(_around(choice, row, ids, encoder))) + choice.new_tokens
            raise UsageError(
                f"{choice.name}: length {length} is too short for an instruction, a question and "
                f"{choice.new_tokens} new tokens (max_new_tokens=N sets those); the smallest that works is {least}"
            )
        used += 1
        yield example
    if not used:
        raise UsageError(
            f"{choice.name}: none of the {len(sizes)} rows has a prompt of {choice.min_tokens} to "
            f"{choice.max_tokens or 'any number of'} tokens; with this tokenizer they have {min(sizes)} to {max(sizes)}"
        )


def _example(
    choice: Choice, row: Row, text: str, ids: tuple[int, ...], room: int, encoder: Encoder
) -> Example:  # fmt: skip
    targets = targets_of(choice, row)
    meta: dict[str, Any] = {
        "row": row.number,
        "id": row.id,
        "cluster": hashlib.sha256(row.context.encode()).hexdigest()[:12],
        "prompt_tokens": len(ids),
        "truncated": False,
        "tokens_cut": 0,
        "answer_cut": False,
    }
    if row.options:
        meta["options"] = list(row.options)
    if choice.subset == "math_calc":
        meta["values"] = len(row.answers)
    if len(ids) <= room:
        return Example(ids, targets, choice.new_tokens, meta=meta | _depth(choice, row, [text]))
    if choice.truncate == "skip":
        return Example(targets=targets, skip=f"the prompt has {len(ids)} tokens, {room} fit", meta=meta)
    head, tail = middle(ids, max(room, 0))
    before, after = _around(choice, row, ids, encoder)
    if room < 1 or before > len(head) or after > len(tail):
        return Example(targets=targets, skip=QUESTION_CUT, meta=meta)
    kept = encoder.decode(head), encoder.decode(tail)
    bare = filled(choice.subset, choice.prompts, replace(row, context=""))
    cut = answer_cut(choice.subset, row, bare, text, kept, choice.new_tokens)
    meta |= {"truncated": True, "tokens_cut": len(ids) - room, "answer_cut": cut, **_depth(choice, row, kept)}
    return Example((*head, *tail), targets, choice.new_tokens, meta=meta, skip=ANSWER_CUT if cut else None)


def _around(choice: Choice, row: Row, ids: Sequence[int], encoder: Encoder) -> tuple[int, int]:
    """How many ids stand before the context, and how many after it, chat template and BOS included: those that are the
    same in the prompt without it."""
    bare = encoder.prompt(filled(choice.subset, choice.prompts, replace(row, context="")))
    return _alike(ids, bare), _alike(ids[::-1], bare[::-1])


def _alike(some: Sequence[int], others: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=False)))


def targets_of(choice: Choice, row: Row) -> tuple[str, ...]:
    """The accepted answers, as they are stored with a sample: `B. option` for the choices, and of math_calc's 30,000
    values no more than an answer can have, a value being a token at least.

    Raises UsageError for labels that the subset cannot have.
    """
    try:
        label = label_of(choice.subset, row.answers, row.options)
    except ValueError as error:
        raise UsageError(f"{choice.name}: the label of row {row.number} is none of this subset ({error})") from None
    if choice.subset in ("code_debug", "longbook_choice_eng"):
        return (f"{label[1]}. {label[0]}",)
    return row.answers[: choice.new_tokens] if choice.subset == "math_calc" else row.answers


def _depth(choice: Choice, row: Row, kept: Sequence[str]) -> dict[str, float]:
    """Where in the prompt the needle is (0–1), for the subsets that have one."""
    if choice.subset not in ("passkey", "number_string", "kv_retrieval"):
        return {}
    text = "".join(kept)
    at = [text.find(piece) for group in evidence(choice.subset, row, choice.new_tokens) for piece in group]
    return {"depth": min(at) / len(text)} if at and min(at) >= 0 else {}

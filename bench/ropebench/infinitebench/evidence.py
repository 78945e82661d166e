"""What the answer to a row rests on, and whether a cut in the middle took it away.

Evidence is literal text, compared without white space, in what the model is really fed. Where an answer rests on no
literal piece (a summary, a name that stands nowhere in the book), nothing can be said, and None is the result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ropebench.infinitebench.prompts import CALL
from ropebench.infinitebench.rows import Row
from ropebench.infinitebench.structure import chain_of, key_asked, number_asked, number_of, pair

MASK = "$$MASK$$"


def evidence(subset: str, row: Row, new_tokens: int) -> list[list[str]]:
    """Groups of text pieces; of each group one must be there."""
    answer = row.answers[0]
    if subset in ("passkey", "number_string"):
        return [[answer]]
    if subset == "kv_retrieval":
        key = key_asked(row.input)
        return [[pair(key, answer)]] if key else []
    if subset == "code_run":
        call = CALL.search(row.input)
        return [[text] for text in chain_of(row.context, call[0].split("(")[0])] if call else []
    if subset == "code_debug":
        return [[f"def {answer.rpartition('.')[2]}("]]
    if subset == "longdialogue_qa_eng":
        return [[MASK]]
    if subset == "math_calc":
        # An operator and a number per value, and no value is answered in less than a token.
        return [[" ".join(row.context.split()[: 2 * new_tokens])]]
    return [] if subset == "longbook_sum_eng" else [list(row.answers)]


def answer_cut(
    subset: str, row: Row, bare: str, whole: str, kept: tuple[str, str], new_tokens: int
) -> bool | None:  # fmt: skip
    """Whether the answer can no longer be found in the two parts of the prompt that are kept. `whole` is the prompt,
    `bare` the prompt without its context."""
    if subset == "math_find":
        return _other_number(row, kept)
    known = True
    for group in evidence(subset, row, new_tokens):
        there, possible = (
            any(_count(piece, texts) > _count(piece, [bare]) for piece in group) for texts in (kept, [whole])
        )
        if possible and not there:
            return True
        known = known and possible
    return False if known and evidence(subset, row, new_tokens) else None


def _count(piece: str, texts: Sequence[str]) -> int:
    return sum(_squeezed(text).count(_squeezed(piece)) for text in texts)


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _other_number(row: Row, kept: tuple[str, str]) -> bool | None:
    """Whether what is left of math_find's list has another answer. The numbers at the cut may be torn and are left
    out."""
    kind = number_asked(row.input)
    if kind is None:
        return None
    head, tail = (re.findall(r"\d+", text) for text in (kept[0].partition("[")[2], kept[1].rpartition("]")[0]))
    left = [int(number) for number in (*head[:-1], *tail[1:])]
    return number_of(kind, left) != float(row.answers[0])

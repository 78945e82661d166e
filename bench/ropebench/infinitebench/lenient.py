"""InfiniteBench's lenient scorer: what a reader would call right, in the type and wording that models answer with.

- passkey, number_string: the label is any whole run of digits.
- kv_retrieval: the value stands anywhere, upper or lower case.
- code_run: the last number of the first line that has one; a number that belongs to a name or a call is none.
- math_find: the first number, compared as a number, with or without a point.
- math_calc: signs are read, and the first term may come before the values or not.
- choices: a letter behind "answer" or "option is"; or at the beginning and set off; or the last that stands alone in
  the first line that has one (the rule of lm-eval and kvpress); or, without a letter, the text of one option.
- longdialogue_qa_eng: any of the accepted names, as whole words, upper or lower case.
- longbook_qa_*: the F1 of the first line, since a base model goes on to the next question.
- longbook_sum_eng: ROUGE-Lsum on word stems.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ropebench.infinitebench.scoring import best_f1, chinese, english, prefix, rouge_lsum

NAME = "infinitebench_lenient_1"

_STATED = re.compile(r"(?:[Aa]nswer(?:\s+is)?|(?:[Oo]ption|[Cc]hoice)\s+is)\s*:?[\s\"'*`(\[]*([A-D])\b")
_SET_OFF = re.compile(r"[\s\"'*`(\[#-]*([A-D])[ \t\"'*`)\]]*(?:[.:),]|\n|$)")
_ALONE = re.compile(r"\b([A-D])\b")
_STANDALONE_NUMBER = re.compile(r"(?<![\w.(])-?\d+(?:\.\d+)?(?![\w(])")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def lenient(subset: str, prediction: str, answers: Sequence[str], options: Sequence[str] = ()) -> float:
    """The score (0–1) of one prediction against a row's labels, as text."""
    if subset in ("passkey", "number_string"):
        return float(any(run in answers for run in re.findall(r"[0-9]+", prediction)))
    if subset == "kv_retrieval":
        return float(any(answer.lower() in prediction.lower() for answer in answers))
    if subset == "code_run":
        lines = (_STANDALONE_NUMBER.findall(line) for line in prediction.splitlines())
        return _equal(next((numbers[-1] for numbers in lines if numbers), None), answers)
    if subset == "math_find":
        return _equal(next(iter(_NUMBER.findall(prediction)), None), answers)
    if subset == "math_calc":
        numbers = re.findall(r"-?\d+", prediction)
        wanted = [int(answer) for answer in answers]
        return max(prefix(numbers, wanted), prefix(numbers[1:], wanted)) / len(wanted)
    if subset in ("code_debug", "longbook_choice_eng"):
        letter = choice(prediction, options)
        texts = dict(zip("ABCD", options, strict=False))
        return float(letter is not None and (letter in answers or texts.get(letter) in answers))
    if subset == "longdialogue_qa_eng":
        said = f" {_plain(prediction)} "
        return float(any(f" {_plain(answer)} " in said for answer in answers if _plain(answer)))
    if subset == "longbook_sum_eng":
        return rouge_lsum(prediction, answers, stem=True)
    line = next((line for line in prediction.splitlines() if line.strip()), "")
    return best_f1(chinese if subset == "longbook_qa_chn" else english, line, answers)


def choice(prediction: str, options: Sequence[str]) -> str | None:
    """The letter of the option that a prediction means; None where it means none, or several.

    >>> [choice(text, ()) for text in ("**C. f_c**", "Not A, the answer is B.", "I say A or D", "b", "yes")]
    ['C', 'B', 'D', 'B', None]
    """
    stated = _STATED.findall(prediction)
    if stated:
        return str(stated[-1])
    start = _SET_OFF.match(prediction)
    if start:
        return start[1]
    for line in prediction.splitlines():
        letters = _ALONE.findall(line)
        if letters:
            return str(letters[-1])
    bare = re.sub(r"\W", "", prediction).upper()
    if bare in ("A", "B", "C", "D"):
        return bare
    # Where one option's text is part of another's, the longer one is meant.
    said = [option for option in options if option and option.lower() in prediction.lower()]
    meant = {option for option in said if not any(option != other and option in other for other in said)}
    return "ABCD"[list(options).index(meant.pop())] if len(meant) == 1 else None


def _equal(number: str | None, answers: Sequence[str]) -> float:
    if number is None or len(number) > 300:  # beyond what a float holds
        return 0.0
    return float(any(float(number) == float(answer) for answer in answers))


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s]", " ", text.upper()).split())

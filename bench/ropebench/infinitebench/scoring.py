"""InfiniteBench's official scorer: src/compute_scores.py of OpenBMB/InfiniteBench at commit 88b3daa, to the letter.

`official` gives for a prediction and a label what `get_score_one` gives, its slips included:

- passkey, number_string: the first run of digits decides, so "0 71432" is wrong.
- kv_retrieval: a label that is a list is never found; `label_of` takes it out.
- code_run: the last word must be a whole number; a label that is text is never equal. "." parts words, so "3.14" is 14.
- code_debug: a letter counts at the beginning with "." or ":" behind it, or behind one of four phrases; "B" alone is
  wrong, and behind a phrase any word that begins with the letter is right.
- longbook_choice_eng: any first character of ABCD decides, so "A bad answer" is an A and "Answer: B" is wrong; phrases
  count in lower case only.
- longdialogue_qa_eng: only the first label counts, in capitals and as one word: "STAMP PAID" is never right.
- math_find: a label that is text is a TypeError, and a number with a point where a whole one is asked a ValueError.
- math_calc: minus signs are not seen; for GPT-4 the first number is left out. The values of the label begin after the
  first operator, while the worked examples of `yarn_mistral` begin with the first term.
- longbook_qa_*: a label that is text and not a list is compared letter by letter.

Where the original stops with an error, a sample of ours is wrong (`score` in the task).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

NAME = "infinitebench_official_2024_06"

_RETRIEVAL_MARKS = ("\n", ":", '"', "'", ".", ",", "?", "!", "{", "}")
_CHOICE_MARKS = ("\n", '"', "'", ".", ",", "?", "!", "{", "}")
_RUN_MARKS = ("\n", ".", "`", "'", '"', ":")
_DEBUG_MARKS = ("\n", "`", "'", '"', "-", "*", "Option", "option")
_CHOICE_PHRASES = ("answer is:", "answer:", "answer is", "option is")
_DEBUG_PHRASES = ("answer is:", "is:", "answer:", "correct option is:")

# Not the full set of Chinese marks: 《 and 〈 are missing, for one.
_CHINESE_MARKS = (
    "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」"
    "『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏."
)


def label_of(subset: str, answers: Sequence[str], options: Sequence[str] = ()) -> Any:
    """A row's labels in the type that the official scorer compares: numbers as numbers, a single one out of its list,
    and with the two choice subsets [option, letter].

    Raises ValueError for labels that are none of the subset.
    """
    if subset in ("code_debug", "longbook_choice_eng"):
        if len(answers) == 2 and answers[1] in ("A", "B", "C", "D"):
            return list(answers)
        return [answers[0], "ABCD"[list(options).index(answers[0])]]
    if subset == "code_run":
        return int(answers[0])
    if subset == "math_find":
        return float(answers[0]) if "." in answers[0] else int(answers[0])
    if subset == "math_calc":
        return [int(answer) for answer in answers]
    return answers[0] if subset == "kv_retrieval" else list(answers)


def official(subset: str, prediction: str, label: Any, model: str = "yarn-mistral") -> float:
    """The score (0–1) of one prediction. `label` may have any type that a row's answer has; `model` is the original's
    name for who answers. Raises an error where the original does."""
    if subset == "math_calc":
        return _math_calc(prediction, label, model)
    return float(_SCORERS[subset](prediction, label))


def words(text: str, marks: Sequence[str]) -> list[str]:
    """The words of a text, each of the marks being a space."""
    return _unmarked(text, marks).split()


def _unmarked(text: str, marks: Sequence[str]) -> str:
    for mark in marks:
        text = text.replace(mark, " ")
    return text


def _only(label: Any) -> Any:
    return label[0] if isinstance(label, list) else label


def _first_digits(prediction: str, label: Any) -> bool:
    run = re.search("[0-9]+", prediction)
    return bool(_only(label) == (run[0] if run else ""))


def _kv_retrieval(prediction: str, label: Any) -> bool:
    return label in words(prediction, _RETRIEVAL_MARKS)


def _code_run(prediction: str, label: Any) -> bool:
    found = words(prediction.strip(), _RUN_MARKS)
    try:
        return bool(found) and int(found[-1]) == _only(label)
    except ValueError:
        return False


def _behind(text: str, phrases: Sequence[str], wanted: Sequence[str]) -> bool | None:
    """Whether what stands one character behind the first of the phrases that occurs begins with one of `wanted`; None
    where no phrase occurs."""
    for phrase in phrases:
        at = text.find(phrase)
        if at >= 0:
            # Past the end of the text this is empty, which begins with nothing but an empty label.
            behind = text[at + len(phrase) + 1 :]
            return len(text) > at + len(phrase) and behind.startswith(tuple(wanted))
    return None


def _code_debug(prediction: str, label: Sequence[str]) -> bool:
    function, letter = label[0], label[1]
    prediction = prediction.strip()
    if prediction[:2] in (f"{letter}.", f"{letter}:"):
        return True
    text = re.sub(" +", " ", _unmarked(prediction, _DEBUG_MARKS))
    return bool(_behind(text, _DEBUG_PHRASES, (letter, function)))


def _longbook_choice(prediction: str, label: Sequence[str]) -> bool:
    prediction = prediction.strip()
    if not prediction:
        return False
    if prediction[0] in "ABCD":
        return prediction[0] in label
    if prediction in label:
        return True
    text = re.sub(" +", " ", _unmarked(prediction, _CHOICE_MARKS))
    stated = _behind(text, _CHOICE_PHRASES, label)
    if stated is not None:
        return stated
    letters = [word for word in text.split() if word in "ABCD"]
    return bool(letters) and letters[0] in label


def _longdialogue(prediction: str, label: Sequence[str]) -> bool:
    return label[0] in [word.upper() for word in words(prediction.strip(), _RETRIEVAL_MARKS)]


def _math_find(prediction: str, label: Any) -> bool:
    wanted = _only(label)
    if not isinstance(wanted, int | float):
        raise TypeError(f"math_find's label must be a number, not {type(wanted).__name__}")
    number = re.search(r"\d+\.\d+|\d+", prediction)
    if number is None:
        return False
    return (int(number[0]) if isinstance(wanted, int) else float(number[0])) == wanted


def _math_calc(prediction: str, label: Any, model: str) -> float:
    if not isinstance(label, list):
        raise TypeError(f"math_calc's label must be a list, not {type(label).__name__}")
    wanted = label[0] if isinstance(label[0], list) else label
    return prefix(re.findall("[0-9]+", prediction)[1 if model == "gpt4" else 0 :], wanted) / len(wanted)


def prefix(numbers: Sequence[str], wanted: Sequence[int]) -> int:
    """How many values are right before the first that is not. A number of thousands of digits, which a model that
    repeats itself writes and Python does not read, is none of them."""
    right = 0
    for number, value in zip(numbers, wanted, strict=False):
        if len(number) > 4000 or int(number) != value:
            break
        right += 1
    return right


def f1(prediction: Sequence[str], reference: Sequence[str]) -> float:
    """F1 (0–1) of two bags of tokens."""
    same = sum((Counter(prediction) & Counter(reference)).values())
    if not same:
        return 0.0
    precision, recall = same / len(prediction), same / len(reference)
    return 2 * precision * recall / (precision + recall)


def english(text: str) -> list[str]:
    """The tokens that English answers are compared by: SQuAD's, without case, punctuation and articles."""
    bare = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def chinese(text: str) -> list[str]:
    """The tokens that Chinese answers are compared by: characters, without punctuation and white space."""
    marks = set(string.punctuation + _CHINESE_MARKS)
    return list("".join("".join(letter for letter in text.lower() if letter not in marks).split()))


def best_f1(tokens: Callable[[str], list[str]], prediction: str, labels: Sequence[str]) -> float:
    """The F1 with the label that is nearest."""
    return max((f1(tokens(prediction), tokens(label)) for label in labels), default=0.0)


def rouge_lsum(prediction: str, labels: str | Sequence[str], stem: bool = False) -> float:
    """ROUGE-Lsum F (0–1), by rouge-score, as Hugging Face's `evaluate` computes it: lines are sentences. With several
    labels the best."""
    from rouge_score import rouge_scorer

    scorer = rouge_scorer.RougeScorer(["rougeLsum"], use_stemmer=stem)
    references = [labels] if isinstance(labels, str) else list(labels)
    return float(scorer.score_multi(references, prediction)["rougeLsum"].fmeasure)


_SCORERS: dict[str, Callable[[str, Any], float]] = {
    "passkey": _first_digits,
    "number_string": _first_digits,
    "kv_retrieval": _kv_retrieval,
    "longbook_sum_eng": rouge_lsum,
    "longbook_qa_eng": lambda prediction, labels: best_f1(english, prediction, labels),
    "longbook_qa_chn": lambda prediction, labels: best_f1(chinese, prediction, labels),
    "longbook_choice_eng": _longbook_choice,
    "longdialogue_qa_eng": _longdialogue,
    "code_debug": _code_debug,
    "code_run": _code_run,
    "math_find": _math_find,
}

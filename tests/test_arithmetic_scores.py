"""The arithmetic probes: how answers are read, what one pass measures, what guessing scores, what parameters may be."""

from __future__ import annotations

import re
from collections import Counter
from random import Random
from typing import Any

import pytest

from arithmetic_samples import ALL, some, task_of
from ropebench.errors import UsageError
from ropebench.task import Example, Output


def output_for(example: Example, text: str, **nll: float) -> Output:
    """A text, and NLL by region: `answer`, `context`, and 9 nats elsewhere."""
    window = example.windows[0]
    values = [9.0] * (len(window.ids) - 1)
    for first, end in example.meta["context_spans"]:
        values[first - 1 : end - 1] = [nll.get("context", 0.0)] * (end - first)
    first = example.meta["answer_from"]
    values[first - 1 :] = [nll.get("answer", 0.0)] * (len(window.ids) - first)
    return Output(text, (), (values,))


# Reading answers


@pytest.mark.parametrize(
    "text, score",
    [
        (" 1234", 1), ("1234.", 1), ("1,234", 1), ("01234", 1), ("The sum is 1234 (and not 999)", 1), ("**1234**", 1),
        ("1234\nQuestion: What", 1), ("$1,234", 1), ("", 0), ("none", 0), ("1 234", 0), ("12 1234", 0), ("-1234", 0),
        ("−1234", 0), ("1234.5", 0), ("12345", 0), ("1,2345", 0), ("1,23", 0), ("123,4", 0), ("0.1234", 0), ("٣", 0),
    ],
)  # fmt: skip
def test_an_addition_is_read_as_its_first_integer(text: str, score: int) -> None:
    example = some("addition:shots=0", 1, 512)[0]
    example = Example(example.ids, ("1234",), 8, windows=example.windows, meta=example.meta)
    assert task_of("addition").score(example, output_for(example, text))["exact_match"] == score


@pytest.mark.parametrize(
    "text, score",
    [("0042", 1), (" 0042\n7", 1), ("is 0042.", 1), ("42", 0), ("00421", 0), ("0 0 4 2", 0), ("0,042", 0), ("", 0)],
)
def test_a_copy_is_read_as_its_first_run_of_digits(text: str, score: int) -> None:
    example = some("copy:digits=4:shots=0", 1, 512)[0]
    example = Example(example.ids, ("0042",), 8, windows=example.windows, meta=example.meta)
    assert task_of("copy").score(example, output_for(example, text))["exact_match"] == score
    assert task_of("digit_index").score(example, output_for(example, text))["exact_match"] == score


@pytest.mark.parametrize(
    "text, score",
    [
        ("Red balls in each tin box: 3 + 4 = 7. The answer is 7.", 1), ("The answer is 7", 1), ("the answer is: 7", 1),
        ("Red balls in each tin box: 3 + 4 = 7.", 0), ("7", 0), ("", 0), ("The answer is 17.", 0), ("The answer is", 0),
        ("The answer is 30.", 0), ("The answer is 8. The answer is 7.", 0),
    ],
)  # fmt: skip
def test_a_worked_solution_is_read_after_the_words_answer_is(text: str, score: int) -> None:
    example = some("igsm", 1)[0]
    example = Example(example.ids, ("3 + 4 = 7. The answer is 7.",), 8, windows=example.windows, meta=example.meta)
    assert task_of("igsm").score(example, output_for(example, text))["exact_match"] == score


@pytest.mark.parametrize("word", ALL)
def test_the_right_answer_scores_one_and_unrelated_text_nothing(word: str) -> None:
    task = task_of(word)
    unrelated = ["", "The quick brown fox jumps over the lazy dog.", "Answer: none of the above", "\n\n", "???"]
    for example in some(word, 3):
        assert task.score(example, output_for(example, f" {example.targets[0]}"))["exact_match"] == 1
        assert all(task.score(example, output_for(example, text))["exact_match"] == 0 for text in unrelated)


@pytest.mark.parametrize("word", ALL)
def test_one_pass_gives_both_likelihoods(word: str) -> None:
    for example in some(word, 3):
        found = task_of(word).score(example, output_for(example, "", answer=1.5, context=2.25))
        assert found == {"exact_match": 0.0, "answer_nll": 1.5, "context_nll": 2.25}


# Chance


def best_guess(answers: list[Any]) -> float:
    return max(Counter(answers).values()) / len(answers)


@pytest.mark.parametrize("digits, operands", [(1, range(10)), (2, range(10, 100))])
def test_chance_of_sums_and_differences_is_the_likeliest_answer(digits: int, operands: range) -> None:
    add = best_guess([a + b for a in operands for b in operands])
    subtract = best_guess([abs(a - b) for a in operands for b in operands])
    for operation, chance in (("add", add), ("subtract", subtract), ("both", (add + subtract) / 2)):
        task = task_of(f"addition:digits={digits}:operation={operation}")
        assert task.primary.chance == pytest.approx(chance)


def test_chance_of_the_others() -> None:
    assert task_of("digit_index").primary.chance == 0.1
    assert task_of("digit_index:digits=4").primary.chance == 0.25  # the number is there to be seen
    assert task_of("copy:digits=3").primary.chance == pytest.approx(1 / 900)
    copied = [task_of("copy:digits=2").drill(Random(i))[1] for i in range(2000)]
    assert set(copied) == {str(number) for number in range(10, 100)}  # no leading zero, which models drop
    assert task_of("igsm").primary.chance == pytest.approx(1 / 23)
    drills = [task_of("digit_index").drill(Random(i)) for i in range(2000)]
    assert all(len(set(re.search(r"\d{10}", question)[0])) == 10 for question, _ in drills)
    assert best_guess([answer for _, answer in drills]) < 0.125


# Parameters


@pytest.mark.parametrize(
    "word",
    ["addition:digits=0", "addition:digits=13", "addition:shots=9", "addition:depths=1", "copy:digits=1",
     "digit_index:digits=11", "digit_index:digits=-1", "igsm:operations=0", "igsm:distractors=31", "igsm:shots=-1"],
)  # fmt: skip
def test_parameters_out_of_range_are_refused(word: str) -> None:
    name, parameter = word.split(":")
    with pytest.raises(UsageError, match=f"arithmetic/{name}: {parameter} must be from"):
        task_of(word)


def test_labels_tell_the_variants_apart() -> None:
    labels = {word: f"{task_of(word).name}:{task_of(word).variant_name()}" for word in ALL}
    assert labels["addition:digits=1:operation=add"] == "arithmetic/addition:1-digit-add"
    assert labels["igsm:solution=direct"] == "arithmetic/igsm:2-op-direct"
    assert labels["copy:depths=5"] == "arithmetic/copy:12-digit-at-depth"
    assert len(set(labels.values())) == len(ALL)

"""The arithmetic probes: what stands in the prompt, and where; that length changes nothing but the text around it."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from arithmetic_samples import ALL, BPE, DEEP, REGISTRY, SHORT, TEXT, WORDS, encoder_of, some, task_of
from ropebench.corpus import Corpus, Document, open_corpus
from ropebench.errors import UsageError
from ropebench.prompt import Encoder
from ropebench.task import Example


def prompt_of(example: Example, encoder: Encoder = BPE) -> str:
    return encoder.decode(example.ids)


# Prompts


def test_the_four_are_registered() -> None:
    names = {entry.name for entry in REGISTRY.of("task")}
    assert {f"arithmetic/{name}" for name in ("addition", "copy", "digit_index", "igsm")} <= names


@pytest.mark.parametrize("word", ALL)
def test_questions_and_answers_are_spelled_out_with_one_newline_between(word: str) -> None:
    """The form that the cleaning of " Q: What is 12 plus 30?" + two newlines + "A:" aims at, from the start."""
    task = task_of(word)
    for example in some(word, 3):
        prompt = prompt_of(example)
        assert prompt.endswith("\nAnswer:")
        asked = re.findall(
            r"(?<=\n\n)Question: [^\n]+\?\nAnswer:|(?<=\n\n)Question: Copy the number \d+\.\nAnswer:", prompt
        )
        assert len(asked) == prompt.count("Question:") == prompt.count("Answer:") == task.shots + 1
        assert not re.search(r"\b[QA]:", prompt)


def test_the_words_of_an_addition() -> None:
    example = some("addition:operation=add:shots=1", 1)[0]
    tail = prompt_of(example).rsplit("\n\n", 2)
    assert re.fullmatch(r"Question: What is \d\d plus \d\d\?\nAnswer: \d+", tail[1])
    assert re.fullmatch(r"Question: What is \d\d plus \d\d\?\nAnswer:", tail[2])


@pytest.mark.parametrize("word", ALL)
def test_newlines_are_newlines(word: str) -> None:
    example = some(word, 1)[0]
    assert example.stop == ("\n",)
    assert "\\n" not in prompt_of(example)
    assert "\\n" not in "".join(example.targets)


def right_answer(question: str) -> str:
    if found := re.fullmatch(r"What is (\d+) (plus|minus) (\d+)\?", question):
        a, b = int(found[1]), int(found[3])
        return str(a + b if found[2] == "plus" else a - b)
    if found := re.fullmatch(r"Copy the number (\d+)\.", question):
        return found[1]
    found = re.fullmatch(r"What is digit (\d+) of the number (\d+)\?", question)
    return found[2][int(found[1]) - 1]


@pytest.mark.parametrize("word", SHORT)
def test_examples_and_target_are_right(word: str) -> None:
    for example in some(word, 10):
        asked = re.findall(r"Question: (.+)\nAnswer:(.*)", prompt_of(example))
        assert [right_answer(question) for question, _ in asked] == [
            *(answer.strip() for _, answer in asked[:-1]),
            example.targets[0],
        ]
        assert len({question for question, _ in asked}) == len(asked), "the problem is among its own examples"


@pytest.mark.parametrize("word", ["addition:depths=5", "copy:depths=5", "digit_index:depths=5"])
def test_problems_at_a_depth_are_asked_for_by_number(word: str) -> None:
    for example in some(word, 3):
        prompt = prompt_of(example)
        problems = dict(re.findall(r"Problem (\d+): (.+)", prompt))
        asked = re.findall(r"Question: What is the answer to problem (\d+)\?\nAnswer:(.*)", prompt)
        assert [number for number, _ in asked] == list(problems)
        answers = [*(answer.strip() for _, answer in asked[:-1]), example.targets[0]]
        assert [right_answer(problems[number]) for number, _ in asked] == answers


@pytest.mark.parametrize("digits", [1, 2, 3, 4, 5])
def test_operands_have_the_digits_that_are_asked_for(digits: int) -> None:
    task, seen = task_of(f"addition:digits={digits}"), Counter()
    for i in range(200):
        question, answer = task.drill(Random(i))
        a, sign, b = re.fullmatch(r"What is (\d+) (\w+) (\d+)\?", question).groups()
        assert len(a) == len(b) == digits
        assert int(answer) >= 0
        seen[sign] += 1
    assert min(seen["plus"], seen["minus"]) > 60


# The same problem, whatever stands around it


@pytest.mark.parametrize("word", ALL)
def test_a_problem_is_the_same_at_every_length(word: str) -> None:
    def words(example: Example) -> list[str]:
        prompt = prompt_of(example)
        lines = [line for line in prompt.splitlines() if line.startswith(("Question", "Answer", "Problem"))]
        return [*lines, *example.targets]

    at = [[words(example) for example in some(word, 3, length)] for length in (0, 3000)]
    assert at[0] == at[1]
    assert len({tuple(words) for words in at[0]}) == 3


@pytest.mark.parametrize("word", ALL)
def test_sample_i_depends_on_seed_and_i_alone(word: str) -> None:
    assert some(word, 3)[:2] == some(word, 2)
    assert some(word, 2) != some(word, 2, seed=4)


def test_a_problem_does_not_depend_on_the_number_of_examples() -> None:
    for word in ("addition", "copy", "digit_index", "igsm"):
        assert some(f"{word}:shots=0", 1)[0].targets == some(f"{word}:shots=2", 1)[0].targets


# Length and place


@pytest.mark.parametrize("length, name", [(1900, "bpe-bos"), (1000, "word"), (3000, "word-bos")])
@pytest.mark.parametrize("word", ["addition", "igsm", "igsm:depths=5"])
def test_at_least_95_percent_of_the_length_is_used(word: str, name: str, length: int) -> None:
    for example in some(word, 3, length, encoder_of(name)):
        assert example.skip is None
        assert 0.95 * length <= len(example.ids) + example.max_new_tokens <= length
        assert len(example.windows[0].ids) <= length
        assert example.windows[0].first_scored == 1


@pytest.mark.parametrize("name, chat", [("bpe", False), ("bpe-bos", True)])
@pytest.mark.parametrize("word", ALL)
def test_spans_are_the_corpus_text_and_the_answer(word: str, name: str, chat: bool) -> None:
    encoder = encoder_of(name, chat)
    for example in some(word, 3, 0, encoder):
        window, meta = example.windows[0].ids, example.meta
        assert window[: meta["answer_from"]] == example.ids[: meta["answer_from"]]
        assert encoder.decode(window[meta["answer_from"] :]).strip() == example.targets[0]
        assert len(window) - meta["answer_from"] < example.max_new_tokens
        inside = " ".join(encoder.decode(window[first:end]) for first, end in meta["context_spans"])
        outside = encoder.decode(
            [i for t, i in enumerate(window) if not any(a <= t < b for a, b in meta["context_spans"])]
        )
        assert set(re.findall(r"[a-z]{4,}", inside.lower())) <= {*WORDS, *inside_cuts(inside)}
        assert not re.search(r"\d|Question|Problem|user", inside)
        assert len(re.findall(rf"\b(?:{'|'.join(WORDS)})\b", outside)) <= 4  # a token over the boundary
        assert sum(end - first for first, end in meta["context_spans"]) > 0.1 * len(window)


def inside_cuts(text: str) -> set[str]:
    """Parts of words at the edges of a span."""
    return {part for word in WORDS for part in (word[i:] for i in range(len(word)))} | {
        word[:i] for word in WORDS for i in range(len(word))
    }


@pytest.mark.parametrize("word", DEEP)
def test_depths_are_evenly_spread_and_the_block_is_where_they_say(word: str) -> None:
    examples = some(word, 10, 2400)
    assert [e.meta["depth_wanted"] for e in examples[:5]] == [e.meta["depth_wanted"] for e in examples[5:]]
    assert sorted(e.meta["depth_wanted"] for e in examples[:5]) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert max(e.meta["depth_wanted"] for e in examples[:2]) - min(e.meta["depth_wanted"] for e in examples[:2]) >= 0.4
    assert [e.meta["cluster"] for e in examples] == ["text-0"] * 5 + ["text-1"] * 5
    for example in examples:
        assert example.meta["depth"] == pytest.approx(example.meta["depth_wanted"], abs=0.05)
        text = re.sub(r"\n\nQuestion:.*", "", prompt_of(example), flags=re.DOTALL)
        before, _, after = text.partition("Problem 1:")
        after = re.sub(r"^.*?\n\n", "", after, flags=re.DOTALL) if "\n\n" in after else ""
        assert len(before) / (len(before) + len(after)) == pytest.approx(example.meta["depth"], abs=0.06)


def test_a_depth_is_met_where_sentences_are_few() -> None:
    lines = Corpus("lines", "invented", lambda: iter([Document("lines", re.sub(r"[.]", ",\n", TEXT))]))
    for example in islice(task_of("copy:depths=5").examples(1024, BPE, 0, lines), 5):
        assert example.meta["depth"] == pytest.approx(example.meta["depth_wanted"], abs=0.06)


def test_without_depths_the_problem_is_at_the_end_and_no_depth_is_claimed() -> None:
    assert all("depth" not in example.meta for example in some("addition", 3))


@pytest.mark.parametrize("word", ALL)
def test_a_length_that_is_too_short_is_refused_with_the_smallest_that_works(word: str) -> None:
    with pytest.raises(UsageError, match=r"length 64 is too short; the smallest that works is (\d+)$") as caught:
        some(word, 1, 64)
    smallest = int(re.findall(r"\d+", str(caught.value))[-1])
    for example in some(word, 6, smallest):
        assert example.tokens <= smallest


def test_a_corpus_without_text_is_refused() -> None:
    task = task_of("addition")
    for documents, says in (
        ([Document("ids", ids=(1, 2))], "pre-tokenised"),
        ([Document("none", " ")], "hold no text"),
    ):
        empty = Corpus("odd", "invented", lambda documents=documents: iter(documents))
        with pytest.raises(UsageError, match=f"arithmetic/addition: .*{says}"):
            next(task.examples(512, BPE, 0, empty))


def test_a_tokenizer_that_encodes_nothing_is_said() -> None:
    nothing: Any = SimpleNamespace(text=lambda _: (), prompt=lambda *_: ())
    with pytest.raises(UsageError, match="arithmetic/addition: the tokenizer makes no tokens of text"):
        next(task_of("addition").examples(512, nothing, 0, open_corpus("noise")))


def test_the_noise_line_is_a_text_too() -> None:
    example = next(task_of("addition").examples(512, BPE, 0, open_corpus("noise")))
    assert example.skip is None
    assert prompt_of(example).count("The grass is green.") > 3

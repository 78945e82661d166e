"""InfiniteBench's synthetic subsets at any length: solved again from the prompt alone, and spread evenly over depth."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import islice, pairwise
from random import Random
from typing import Any

import pytest

from fakes import Letters, tokenizer
from ropebench.errors import UsageError
from ropebench.infinitebench.generated import ADDED, GENERATED, LEVELS, digit_string
from ropebench.infinitebench.judging import metrics_of
from ropebench.infinitebench.structure import KINDS, chain_of, number_of
from ropebench.prompt import Encoder
from ropebench.registry import Registry
from ropebench.task import Example, Output


class Characters(Letters):
    """One id per character, for several texts at once too."""

    def __call__(self, text: Any, add_special_tokens: bool = True, **more: Any) -> Any:
        if isinstance(text, str):
            return super().__call__(text, add_special_tokens, **more)
        return {"input_ids": [self(one, add_special_tokens)["input_ids"] for one in text]}


LETTERS = Encoder(Characters())

every_subset = pytest.mark.parametrize("subset", GENERATED)


@cache
def made(subset: str, words: str = "") -> Any:
    return Registry.load().build("task", f"infinitebench_generated/{subset}{words}")[0]


@cache
def samples(subset: str, length: int, n: int, seed: int = 0, words: str = "") -> list[Example]:
    return list(islice(made(subset, words).examples(length, LETTERS, seed), n))


# Solvers of their own: none of the generator's code, from what the model is shown.


def solve_needle(text: str) -> str:
    (found,) = set(re.findall(r"(?<=is )\d+(?=\. Remember it\.)", text))
    assert text.count(found) == 2
    return str(found)


def solve_pairs(text: str) -> str:
    table = json.loads(text[text.index("{") : text.index("}") + 1])
    value: str = table[re.findall(r'Key: "(.+)"', text)[0]]
    return value


def solve_code(text: str) -> str:
    code = text[text.index("def ") : text.index("Please compute")]
    scope: dict[str, Any] = {}
    exec(code, scope)
    (call,) = set(re.findall(r"value of (func_\d+\(-?\d+\))", text))
    return str(eval(call, scope))


def solve_numbers(text: str) -> str:
    numbers = [int(word) for word in text[text.index("[") + 1 : text.index("]")].split(",")]
    (kind,) = re.findall(r"What is the (.+) number in the following list\?", text)
    if kind == "median":
        ordered = sorted(numbers)
        assert len(ordered) % 2
        return str(ordered[len(ordered) // 2])
    step = {"second": 2, "third": 3}.get(kind.split()[0], 1)
    best = max if kind.endswith("largest") else min
    for _ in range(step - 1):
        numbers = [number for number in numbers if number != best(numbers)]
    return str(best(numbers))


SOLVERS = {
    "passkey": solve_needle,
    "number_string": solve_needle,
    "kv_retrieval": solve_pairs,
    "code_run": solve_code,
    "math_find": solve_numbers,
}


@every_subset
@pytest.mark.parametrize("seed, length", [(0, 1500), (1, 4000)])
def test_a_solver_of_its_own_agrees_on_every_answer(subset: str, seed: int, length: int) -> None:
    for example in samples(subset, length, 70, seed):
        assert (SOLVERS[subset](LETTERS.decode(example.ids)),) == example.targets
        assert made(subset).score(example, Output(f" {example.targets[0]}")) == {"accuracy": 1.0}


@every_subset
@pytest.mark.parametrize("length", [1400, 4096, 30_000])
def test_any_length_is_filled_and_never_passed(subset: str, length: int) -> None:
    for example in samples(subset, length, 5):
        assert example.skip is None
        assert 0.95 * length <= example.tokens <= length or length - example.tokens < example.meta["unit_tokens"]


@every_subset
@pytest.mark.parametrize("name, chat", [("bpe-bos", False), ("bpe-bos", True), ("word", False)])
def test_bos_and_chat_template_are_part_of_the_length(subset: str, name: str, chat: bool) -> None:
    encoder = Encoder(tokenizer(name), chat=chat)
    for example in islice(made(subset, ":prompts=gpt4").examples(4096, encoder, 0), 2):
        assert 0.95 * 4096 <= example.tokens <= 4096
        assert not encoder.adds_bos or [k for k, i in enumerate(example.ids) if i == encoder.bos_id] == [0]


@every_subset
def test_sample_i_depends_on_seed_and_i_alone(subset: str) -> None:
    first = samples(subset, 2000, 10)
    assert list(islice(made(subset).examples(2000, LETTERS, 0), 4)) == first[:4]
    assert samples(subset, 2000, 10, seed=1)[0].ids != first[0].ids
    assert len({example.ids for example in first}) == 10
    # The answer is the sample's, not the length's.
    assert [e.targets for e in samples(subset, 4000, 10)] == [e.targets for e in first]


@every_subset
def test_a_length_that_is_too_short_names_the_smallest_that_works(subset: str) -> None:
    with pytest.raises(UsageError, match=f"infinitebench_generated/{subset}: length 100 is too short") as error:
        samples(subset, 100, 1)
    smallest = int(re.findall(r"\d+", str(error.value))[-1])
    assert all(example.tokens <= smallest and not example.skip for example in samples(subset, smallest, 10))


@pytest.mark.parametrize("subset", ["passkey", "number_string", "kv_retrieval"])
def test_depth_is_even_is_where_the_needle_is_and_does_not_move_with_length(subset: str) -> None:
    short, long = samples(subset, 3000, 24), samples(subset, 9000, 24)
    for example in long:
        text = LETTERS.decode(example.ids)
        assert abs(text.index(example.targets[0]) / len(text) - example.meta["depth"]) < 0.1
    assert all(abs(a.meta["depth"] - b.meta["depth"]) < 0.1 for a, b in zip(short, long, strict=True))
    for k, depth in enumerate(sorted(example.meta["depth"] for example in long)):
        assert abs(depth - (k + 0.5) / 24) < 0.1


def test_the_functions_of_a_call_are_spread_over_the_context() -> None:
    drawn = samples("code_run", 9000, 60)
    assert [example.meta["levels"] for example in drawn[:5]] == list(LEVELS)
    first = [example.meta["depths"][0] for example in drawn]
    for k, depth in enumerate(sorted(first)):
        assert abs(depth - (k + 0.5) / 60) < 0.15
    for example in drawn:
        text = LETTERS.decode(example.ids)
        name = re.findall(r"value of (func_\d+)\(", text)[0]
        chain = chain_of(text, name)
        assert len(chain) == example.meta["levels"]
        places = [text.index(function) / len(text) for function in chain]
        assert all(abs(a - b) < 0.1 for a, b in zip(places, example.meta["depths"], strict=True))
        parts = sorted(int(depth * len(chain)) for depth in example.meta["depths"])
        assert len(set(parts)) > 0.7 * len(chain)  # one in each part, but for rounding
        numbers = [int(n) for n in re.findall(r"def func_(\d+)", text)]
        assert numbers == sorted(set(numbers))


def test_kinds_of_numbers_take_turns() -> None:
    assert [example.meta["kind"] for example in samples("math_find", 2000, 14)] == [*KINDS, *KINDS]


def test_keys_begin_with_no_zero_and_strings_repeat_five_digits() -> None:
    for example in (*samples("passkey", 1500, 70), *samples("number_string", 1500, 70)):
        assert example.targets[0][0] != "0"
    for seed in range(200):
        key = digit_string(Random(seed))
        assert len(key) == 10
        assert sum(a == b for a, b in pairwise(key)) >= 5


def test_the_median_is_the_same_however_many_numbers_fit() -> None:
    assert number_of("median number", [5, 1, 9]) == 5
    assert number_of("third largest number", [1, 2, 2]) is None
    for i in (6, 13, 20):
        assert samples("math_find", 1500, 21)[i].targets == samples("math_find", 4000, 21)[i].targets


def test_chance_is_what_the_best_guess_without_reading_scores() -> None:
    span = range(ADDED[0], ADDED[1] + 1)
    best = []
    for levels in LEVELS:  # the sum of as many numbers; the argument stands in the question
        sums = {0: 1.0}
        for _ in range(levels):
            more: dict[int, float] = {}
            for total, p in sums.items():
                for number in span:
                    more[total + number] = more.get(total + number, 0.0) + p / len(span)
            sums = more
        best.append(max(sums.values()))
    assert sum(best) / len(best) == pytest.approx(metrics_of("code_run")[0].chance, abs=0.005)
    # What each kind's answer can be, and how often.
    high = dict.fromkeys(range(79, 100), 1 / 21)
    low = dict.fromkeys(range(20), 1 / 20)
    medians: dict[int, float] = {}
    for bounds, other in ((high, 0), (low, 99)):
        for bound, p in bounds.items():
            medians[(bound + other) // 2] = medians.get((bound + other) // 2, 0.0) + p / 2
    can_be = [{n - step: p for n, p in high.items()} for step in range(3)]
    can_be += [{n + step: p for n, p in low.items()} for step in range(3)] + [medians]
    for example in samples("math_find", 1500, 70):
        assert int(example.targets[0]) in can_be[KINDS.index(example.meta["kind"])]
    best = [max(answers.values()) for answers in can_be]
    assert sum(best) / len(best) == pytest.approx(metrics_of("math_find")[0].chance, abs=0.005)


def test_a_label_tells_generated_rows_from_published_ones() -> None:
    registry = Registry.load()
    words = registry.expanded("task", "infinitebench_generated")
    assert words == [f"infinitebench_generated/{subset}" for subset in sorted(GENERATED)]
    assert not set(words) & set(registry.expanded("task", "infinitebench"))
    assert len(registry.expanded("task", "infinitebench")) == 12
    assert made("code_run", ":max_new_tokens=9").variant_name() == "max_new_tokens=9"
    with pytest.raises(UsageError, match="max_new_tokens=0 must be at least 1"):
        made("code_run", ":max_new_tokens=0")


def test_31_a_length_that_only_short_chains_fit_is_too_short() -> None:
    """Skipping the deep ones would make the task easier the shorter it is."""
    task = made("code_run")
    with pytest.raises(UsageError, match="the smallest that works is") as error:
        next(task.examples(256, LETTERS, 0))
    smallest = int(str(error.value).split()[-1])
    drawn = list(islice(task.examples(smallest, LETTERS, 0), 10))
    assert [example.skip for example in drawn] == [None] * 10
    shortest = next(len(LETTERS.prompt(text)) for text in [LETTERS.decode(drawn[0].ids)])
    with pytest.raises(UsageError, match=f"the smallest that works is {smallest}"):
        next(task.examples((smallest + shortest) // 2 if shortest < smallest - 8 else smallest - 1, LETTERS, 0))


class Deaf(Characters):
    """Hears nothing but the letter e."""

    def __call__(self, text: Any, add_special_tokens: bool = True, **more: Any) -> Any:
        found = super().__call__(text, add_special_tokens, **more)["input_ids"]
        heard = {2 + ord("e")}
        if isinstance(text, str):
            return {"input_ids": [i for i in found if i in heard]}
        return {"input_ids": [[i for i in one if i in heard] for one in found]}


def test_33_a_prompt_that_cannot_reach_its_length_is_skipped() -> None:
    (example,) = islice(made("math_find").examples(2048, Encoder(Deaf()), 0), 1)
    assert example.skip is not None
    assert "tokens only" in example.skip

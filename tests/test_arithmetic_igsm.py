"""Word problems over an instance graph: a second solver, which knows nothing but the text, agrees on every answer.

The generator walks its graph from the question backwards. The solver here reads sentences with regular expressions and
substitutes values until nothing changes; totals it takes over what the sentences say is held by what.
"""

from __future__ import annotations

import re
from collections import Counter
from math import prod
from random import Random

import pytest

from ropebench.errors import UsageError
from ropebench.igsm import MODULUS, Problem, draw

PHRASE = re.compile(r"the (total )?number of ([a-z ]+?) in each ([a-z]+ [a-z]+)")
SENTENCE = re.compile(r"The (number of [a-z ]+? in each [a-z]+ [a-z]+) is ([^.]+)\.")


def parts_of(phrase: str) -> tuple[str | None, str, str]:
    """Of "the total number of balls in each tin box": "total ", "balls", "tin box"."""
    return PHRASE.fullmatch(phrase).groups()


def sentences_of(statement: str) -> dict[str, str]:
    """What each stated parameter is said to be; a parameter that is stated twice has no one answer."""
    found = SENTENCE.findall(statement)
    rest = SENTENCE.sub("", statement).strip()
    assert re.fullmatch(rf"What is {PHRASE.pattern}\?", rest), rest
    assert len({name for name, _ in found}) == len(found)
    return {f"the {name}": said for name, said in found}


def total(kind: str, holder: str, values: dict[str, int | None]) -> int | None:
    """The total of a kind in a holder over what is stated to be held, None while a part of it is unknown."""
    parts: list[int | None] = []
    for name, value in values.items():
        _, thing, where = parts_of(name)
        if where == holder:
            inside = 1 if thing.split()[-1] == kind else total(kind, singular(thing, values), values)
            parts.append(None if None in (value, inside) else value * inside)
    return None if None in parts or not parts else sum(parts)


def singular(plural: str, values: dict[str, int | None]) -> str:
    """The thing as it is called where it holds something itself."""
    holders = [parts_of(name)[2] for name in values]
    return next((holder for holder in holders if plural in (holder + "s", holder + "es")), "")


def said_value(said: str, values: dict[str, int]) -> int | None:
    """The value of one sentence's right side, None while an operand is unknown."""
    operands = []
    for match in PHRASE.finditer(said):
        is_total, kind, holder = parts_of(match[0])
        operands.append(total(kind, holder, values) if is_total else values[match[0]])
    if None in operands:
        return None
    pattern = PHRASE.sub("P", said)
    number = int(found[0]) if (found := re.findall(r"\d+", pattern)) else 0
    if pattern.isdigit():
        return number
    if pattern == "P minus P":
        return operands[0] - operands[1]
    if re.fullmatch(r"\d+ more than P", pattern):
        return number + operands[0]
    if re.fullmatch(r"\d+ times P", pattern):
        return number * operands[0]
    factor = re.fullmatch(r"(\d+ times )?the sum of P(?:, P)? and P", pattern)[1]
    return (number if factor else 1) * sum(operands)


def solve(statement: str) -> dict[str, int]:
    """Every stated parameter modulo 23, and the question's under ""."""
    said = sentences_of(statement)
    values: dict[str, int] = dict.fromkeys(said)
    while True:
        new = {name: said_value(what, values) for name, what in said.items() if values[name] is None}
        new = {name: value % MODULUS for name, value in new.items() if value is not None}
        if not new:
            break
        values |= new
    assert None not in values.values(), "something is defined by itself"
    question = re.search(r"What is (.+)\?$", statement)[1]
    is_total, kind, holder = parts_of(question)
    return values | {"": (total(kind, holder, values) if is_total else values[question]) % MODULUS}


def check_solution(problem: Problem, values: dict[str, int]) -> int:
    """Each line of the worked solution defines one parameter, from what is defined above it, and every step is right.
    Returns how many operations there are."""
    said, done, operations = sentences_of(problem.statement), {}, 0
    body, answer = problem.solution.rsplit(" The answer is ", 1)
    assert answer == f"{problem.answer}."
    for line in body.removesuffix(".").split(". "):
        words, worked = line.split(": ")
        is_total, what = re.fullmatch(r"(total )?(.+)", words.lower()).groups()
        name = f"the {is_total or ''}number of {what}"
        assert name not in done
        if is_total:  # what this holder holds, and what is known of the kind that is counted
            _, kind, holder = parts_of(name)
            allowed = [v for other, v in done.items() if parts_of(other)[2] == holder or kind in parts_of(other)[1]]
        else:
            allowed = [done[match[0]] for match in PHRASE.finditer(said[name])]  # KeyError: used before it is defined
            allowed += map(int, re.findall(r"\d+", said[name]))
        results = []
        for step in worked.split("; "):
            parts = step.split(" = ")
            if len(parts) == 1:  # a number that the problem states
                results.append(int(step))
                continue
            left, sign, right = parts[0].split(" ")
            assert {int(left), int(right)} <= {*allowed, *results}, (line, allowed)
            exact = {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}[sign]
            assert int(parts[1]) == exact
            assert int(parts[-1]) == exact % MODULUS
            assert len(parts) == (2 if 0 <= exact < MODULUS else 3)
            results.append(exact % MODULUS)
            operations += 1
        done[name] = results[-1]
        assert is_total or done[name] == values[name]
    assert done[name] == problem.answer
    return operations


def check(seed: int, operations: int, distractors: int) -> Problem:
    problem = draw(Random(f"problem {seed}"), operations, distractors)
    values = solve(problem.statement)
    assert values[""] == problem.answer
    assert check_solution(problem, values) == operations == problem.operations
    # What the solution does not name is a distractor: without these sentences the answer is the same.
    named = {line.split(": ")[0].lower() for line in problem.solution.split(". ")[:-1]}
    needed, extra = [], 0
    for name, said in sentences_of(problem.statement).items():
        if name.removeprefix("the number of ") in named:
            needed.append(f"The {name[4:]} is {said}.")
        else:
            extra += 1
    assert extra == distractors
    question = problem.statement[problem.statement.index("What is") :]
    assert solve(" ".join([*needed, question]))[""] == problem.answer
    return problem


SIZES = [(1, 0), (1, 3), (2, 2), (3, 1), (4, 2), (6, 4), (8, 0), (10, 6), (15, 10), (21, 8)]


@pytest.mark.parametrize("operations, distractors", SIZES)
def test_a_second_solver_agrees(operations: int, distractors: int) -> None:
    for seed in range(30):
        check(seed, operations, distractors)


@pytest.mark.slow
@pytest.mark.parametrize("operations, distractors", SIZES)
def test_a_second_solver_agrees_on_ten_thousand_problems(operations: int, distractors: int) -> None:
    for seed in range(100, 1100):
        check(seed, operations, distractors)


def test_the_largest_problems_can_be_drawn() -> None:
    for seed in range(3):
        check(seed, 30, 30)


def test_answers_are_uniform_and_no_kind_of_sentence_is_missing() -> None:
    problems = [draw(Random(f"uniform {i}"), 3, 2) for i in range(460)]
    counts = Counter(problem.answer for problem in problems)
    chi_square = sum((counts[answer] - 20) ** 2 / (20) for answer in range(23))
    assert sum(counts.values()) == 460
    assert chi_square < 48.3  # the 99.9th percentile with 22 degrees of freedom
    said = " ".join(problem.statement for problem in problems)
    for words in (
        "total number of",
        " minus ",
        " more than ",
        " times the sum of ",
        " is the sum of ",
        " times the number",
    ):
        assert words in said
    assert re.search(r"What is the total number", said)
    assert prod(int(f"{sign} " in " ".join(p.solution for p in problems)) for sign in "+-*")


def test_order_of_sentences_does_not_give_the_solution_away() -> None:
    first = 0
    for i in range(200):
        problem = draw(Random(f"order {i}"), 4, 0)
        asked = re.search(r"What is the (.+)\?", problem.statement)[1]
        first += problem.statement.rsplit("What is", 1)[0].strip().split(". ")[-1].startswith(f"The {asked} ")
    assert first < 80  # the parameter that is asked for is not always, or mostly, the last one stated


def test_a_problem_depends_on_its_random_source_alone() -> None:
    assert draw(Random("a"), 4, 2) == draw(Random("a"), 4, 2) != draw(Random("b"), 4, 2)
    # The very text: whoever changes it raises the version of arithmetic/igsm.
    problem = draw(Random("golden"), 2, 1)
    assert problem.statement == (
        "The number of red pens in each leather bag is 17. The number of leather bags in each art class is the sum of "
        "the number of red pens in each leather bag and the number of cotton bags in each art class. The number of "
        "cotton bags in each art class is 2. The number of cotton bags in each music class is the sum of the number of "
        "music classes in each city school and the number of leather bags in each art class. The number of music "
        "classes in each city school is 2 times the number of leather bags in each art class. What is the number of "
        "music classes in each city school?"
    )
    assert problem.solution == (
        "Red pens in each leather bag: 17. Cotton bags in each art class: 2. Leather bags in each art class: "
        "17 + 2 = 19. Music classes in each city school: 2 * 19 = 38 = 15. The answer is 15."
    )


@pytest.mark.parametrize("operations, distractors", [(0, 1), (31, 1), (2, -1), (2, 31)])
def test_sizes_out_of_range_are_refused(operations: int, distractors: int) -> None:
    with pytest.raises(UsageError, match="must be from"):
        draw(Random(0), operations, distractors)

"""Word problems over an instance graph, of the kind that iGSM poses (arXiv:2407.20311, "Physics of Language Models:
Part 2.1"). Written from the paper's description; no code or wording of its authors' release is used, so numbers are not
comparable with theirs.

Four kinds of thing stand above one another (houses hold rooms, rooms hold boxes, boxes hold balls). An *instance
parameter* is how many of one thing each of another holds; the problem says what it is, as a number or from other
parameters. An *abstract parameter* is a total over a kind ("the total number of balls in each north room"); nobody
states it, it follows from the instance parameters. All arithmetic is modulo 23. Sentences come in random order.

What is guaranteed for `draw(rng, operations, distractors)`:

- the worked solution has exactly `operations` additions, subtractions and multiplications of two numbers, and no
  parameter that the answer does not need; it defines each parameter before it is used
- exactly `distractors` sentences define parameters that the answer does not need; they may use those that it does need,
  never the other way round
- there is one answer, and over problems it is uniform on 0 … 22, so guessing is right 1 time in 23
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from ropebench.errors import UsageError
from ropebench.igsm.graph import MODULUS, MOST, Graph, Parameter, solved, steps

__all__ = ["MODULUS", "MOST", "RULE", "Problem", "draw"]

RULE = f"In the following problems every number is taken modulo {MODULUS}."

# Singular, plural and the names of each kind of thing, from what holds to what is held.
THEMES = (
    (
        ("house", "houses", "old new tall small stone brick"),
        ("room", "rooms", "north south east west upper lower"),
        ("box", "boxes", "tin oak glass paper iron straw"),
        ("ball", "balls", "red blue green black white yellow"),
    ),
    (
        ("school", "schools", "city village river hill lake forest"),
        ("class", "classes", "art music history science math dance"),
        ("bag", "bags", "leather cotton silk wool canvas plastic"),
        ("pen", "pens", "red blue green black silver gold"),
    ),
    (
        ("ship", "ships", "fast slow old new royal trade"),
        ("cabin", "cabins", "front rear left right upper lower"),
        ("chest", "chests", "iron oak pine bronze stone steel"),
        ("coin", "coins", "gold silver copper round square thin"),
    ),
    (
        ("market", "markets", "day night summer winter spring autumn"),
        ("stall", "stalls", "corner center north south east west"),
        ("basket", "baskets", "large small deep flat round square"),
        ("apple", "apples", "red green yellow sweet sour fresh"),
    ),
)


@dataclass(frozen=True)
class Problem:
    """One problem. `statement` ends with the question; `solution` with "The answer is N."; `answer` is N (0 … 22)."""

    statement: str
    solution: str
    answer: int
    operations: int


def draw(rng: Random, operations: int, distractors: int = 2) -> Problem:
    """A problem whose solution takes `operations` operations. Raises UsageError for numbers out of range."""
    for name, value, least in (("operations", operations, 1), ("distractors", distractors, 0)):
        if not least <= value <= MOST:
            raise UsageError(f"igsm: {name}={value} must be from {least} to {MOST}")
    theme, wanted = rng.choice(THEMES), rng.randrange(MODULUS)
    while True:  # a graph is dropped where the names ran out, or where no numbers lead to the wanted answer
        graph = Graph(rng, operations, distractors)
        if graph.grown and (numbers := graph.numbers(wanted)):
            return _worded(graph, numbers, theme, operations)


def _worded(
    graph: Graph, numbers: Mapping[Parameter, int], theme: tuple[tuple[str, str, str], ...], operations: int
) -> Problem:
    """The graph in words: its sentences in random order, the question, and the solution in the order of its steps."""

    def things(parameter: Parameter) -> str:
        kind, which, holder = parameter.kind, parameter.which, parameter.holder
        named = theme[kind][1] if which is None else f"{theme[kind][2].split()[which]} {theme[kind][1]}"
        return f"{named} in each {theme[holder[0]][2].split()[holder[1]]} {theme[holder[0]][0]}"

    def phrase(parameter: Parameter) -> str:
        return f"the {'total ' if parameter.which is None else ''}number of {things(parameter)}"

    def sentence(parameter: Parameter) -> str:
        form, number = graph.rules[parameter].form, numbers.get(parameter, 0)
        named = [phrase(operand) for operand in graph.rules[parameter].operands]
        whole = f"the sum of {', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else ""
        said = {
            "number": f"{number}",
            "sum": whole,
            "minus": " minus ".join(named),
            "more": f"{number} more than {named[0] if named else ''}",
            "times": f"{number} times {named[0] if named else ''}",
            "times_sum": f"{number} times {whole}",
        }
        return f"The {phrase(parameter)[4:]} is {said[form]}."

    sentences = [sentence(parameter) for parameter in graph.rules if parameter.which is not None]
    graph.rng.shuffle(sentences)
    values = solved(graph.needed, graph.rules, numbers)
    lines = []
    for parameter in graph.needed:
        taken = steps(graph.rules[parameter], numbers.get(parameter, 0), values)
        worked = "; ".join(map(str, taken)) if taken else str(values[parameter])
        name = ("total " if parameter.which is None else "") + things(parameter)
        lines.append(f"{name[0].upper()}{name[1:]}: {worked}.")
    answer = values[graph.question]
    statement = f"{' '.join(sentences)} What is {phrase(graph.question)}?"
    return Problem(statement, f"{' '.join(lines)} The answer is {answer}.", answer, operations)

"""Parameters over an instance graph and how they follow from one another: grown and solved, not yet worded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

MODULUS = 23
NAMES = 6  # things of a kind, at most
MOST = 30  # operations, and distractors: what that many names are enough for

Thing = tuple[int, int]  # its kind (0 … 3, from what holds to what is held) and which of the kind


class Parameter(NamedTuple):
    """How many things of `kind` each `holder` holds: of one thing (instance), or of the whole kind (which = None)."""

    holder: Thing
    kind: int
    which: int | None


class Rule(NamedTuple):
    """How a parameter follows from others. Forms: number, sum, minus, more, times, times_sum; and for what nobody
    states: sum (a total over what is held directly) and products (a total one kind further down: operands in pairs)."""

    form: str
    operands: tuple[Parameter, ...] = ()


class Step(NamedTuple):
    """One operation on two numbers; its result is taken modulo 23."""

    left: int
    sign: str
    right: int

    @property
    def result(self) -> int:
        return {"+": self.left + self.right, "-": self.left - self.right, "*": self.left * self.right}[self.sign]

    def __str__(self) -> str:
        result, reduced = self.result, self.result % MODULUS
        return f"{self.left} {self.sign} {self.right} = {result}" + (f" = {reduced}" if reduced != result else "")


@dataclass
class Graph:
    """Parameters and their rules, grown from the question backwards: whatever gets a rule uses only parameters that
    have none yet, so nothing is ever defined by itself."""

    rng: Random
    operations: int
    distractors: int
    rules: dict[Parameter, Rule] = field(default_factory=dict)
    waiting: list[Parameter] = field(default_factory=list)  # needed, and without a rule so far
    held: dict[Thing, list[Thing]] = field(default_factory=dict)
    closed: set[Thing] = field(default_factory=set)  # what a total was taken over holds nothing else from then on

    def __post_init__(self) -> None:
        edges = 1.5 * (2 * self.operations + self.distractors + 3)
        self.width = next((w for w in range(2, NAMES) if 3 * w * w >= edges), NAMES)
        self.grown = self._grow() and self._distract()

    def _grow(self) -> bool:
        total = self._total(self.operations) if self.rng.random() < 0.4 else None
        question = total or self._instance()
        if question is None:
            return False
        self.question, self.left = question, self.operations - sum(map(cost, self.rules.values()))
        while self.left > 0:
            parameter = self.waiting.pop(self.rng.randrange(len(self.waiting)))
            if not self._define(parameter):
                return False
        for parameter in self.waiting:
            self.rules[parameter] = Rule("number")
        self.needed = ordered(self.question, self.rules)
        return True

    def _define(self, parameter: Parameter) -> bool:
        """Give a parameter a rule that takes one or two operations (as many as are left), and its operands their
        place."""
        forms = {"more": 1, "times": 1, "minus": 2, "sum": 2}
        if self.left > 1:
            forms |= {"times_sum": 2, "sum3": 3}
        form = self.rng.choice(list(forms))
        self.left -= 1 if form not in ("times_sum", "sum3") else 2
        operands: list[Parameter] = []
        for _ in range(forms[form]):
            operand = self._operand(operands)
            if operand is None:
                return False
            operands.append(operand)
        self.rules[parameter] = Rule(form.rstrip("3"), tuple(operands))
        return True

    def _operand(self, taken: list[Parameter]) -> Parameter | None:
        """A new total, a parameter that waits for its rule anyway, or a new one."""
        if self.left > 0 and self.rng.random() < 0.3:
            before = set(self.rules)
            if total := self._total(self.left):
                self.left -= sum(cost(self.rules[p]) for p in self.rules if p not in before)
                return total
        shared = [p for p in self.waiting if p not in taken]
        if shared and self.rng.random() < 0.3:
            return self.rng.choice(shared)
        return self._instance() or (self.rng.choice(shared) if shared else None)

    def _free(self) -> list[tuple[Thing, Thing]]:
        """Pairs of an open holder and a thing that it does not hold yet."""
        things = range(self.width)
        pairs = [((kind, a), (kind + 1, b)) for kind in range(3) for a in things for b in things]
        return [(a, b) for a, b in pairs if a not in self.closed and b not in self.held.get(a, ())]

    def _instance(self) -> Parameter | None:
        """A new instance parameter, waiting for its rule; None when the names are used up."""
        free = self._free()
        return self._hold(*self.rng.choice(free)) if free else None

    def _hold(self, holder: Thing, thing: Thing) -> Parameter:
        self.held.setdefault(holder, []).append(thing)
        self.waiting.append(Parameter(holder, *thing))
        return self.waiting[-1]

    def _total(self, most: int) -> Parameter | None:
        """A new total of at most `most` operations, its rule and what it needs; None where the one tried does not
        work: all that it is taken over must still be without a rule."""
        rng = self.rng
        holder = (rng.randrange(3), rng.randrange(self.width))
        span = 1 if holder[0] == 2 else rng.randint(1, 2)
        wanted: dict[Thing, list[Thing]] = {}
        level = [holder]
        for depth in range(span):
            for thing in level:
                there = self.held.get(thing, [])
                size = max(rng.randint(2, 3) if span == 1 else rng.randint(1, 2), len(there))
                rest = [(thing[0] + 1, i) for i in range(self.width) if (thing[0] + 1, i) not in there]
                wanted[thing] = there + rng.sample(rest, min(size - len(there), len(rest)))
                if thing in self.closed or any(Parameter(thing, *t) not in self.waiting for t in there):
                    return None
            level = wanted[holder] if depth == 0 else []
        rules: dict[Parameter, Rule] = {}
        operands: list[Parameter] = []
        for thing in wanted[holder]:
            operands.append(Parameter(holder, *thing))
            if span == 2:  # times what each of these holds: one parameter, or a total of its own
                inner = [Parameter(thing, *t) for t in wanted[thing]]
                whole = Parameter(thing, thing[0] + 1, None)
                if len(inner) > 1:
                    rules[whole] = Rule("sum", tuple(inner))
                operands.append(whole if len(inner) > 1 else inner[0])
        total = Parameter(holder, holder[0] + span, None)
        rules[total] = Rule("products" if span == 2 else "sum", tuple(operands))
        if sum(map(cost, rules.values())) > most or any(p in self.rules for p in rules):
            return None
        for thing, things in wanted.items():
            for new in things[len(self.held.get(thing, ())) :]:
                self._hold(thing, new)
        self.closed.update(wanted)
        self.rules.update(rules)
        return total

    def _distract(self) -> bool:
        """Parameters that the answer does not need, from any that are defined already."""
        for _ in range(self.distractors):
            free = self._free()
            if not free:
                return False
            holder, thing = self.rng.choice(free)
            self.held.setdefault(holder, []).append(thing)
            forms = {"number": 0, "more": 1, "times": 1, "minus": 2, "sum": 2}
            known = list(self.rules)
            form = self.rng.choice([form for form, size in forms.items() if size <= len(known)])
            self.rules[Parameter(holder, *thing)] = Rule(form, tuple(self.rng.sample(known, forms[form])))
        return True

    def numbers(self, wanted: int) -> dict[Parameter, int]:
        """The numbers that the sentences state, drawn until the answer is the wanted one; empty if it never is."""
        for _ in range(40 * MODULUS):
            numbers = {
                parameter: self.rng.randint(2, 9) if rule.form.startswith("times") else self.rng.randint(1, 22)
                for parameter, rule in self.rules.items()
                if rule.form in ("number", "more", "times", "times_sum")
            }
            if solved(self.needed, self.rules, numbers)[self.question] == wanted:
                return numbers
        return {}


def ordered(question: Parameter, rules: Mapping[Parameter, Rule]) -> list[Parameter]:
    """The parameters that a question needs, each after all that it is defined by; the question last."""
    order: list[Parameter] = []

    def visit(parameter: Parameter) -> None:
        if parameter not in order:
            for operand in rules[parameter].operands:
                visit(operand)
            order.append(parameter)

    visit(question)
    return order


def steps(rule: Rule, number: int, values: Mapping[Parameter, int]) -> list[Step]:
    """The operations that a rule takes, in order; none for a number, or for a total over one."""
    given = [values[p] for p in rule.operands]
    if rule.form in ("more", "times"):
        return [Step(given[0], "+", number) if rule.form == "more" else Step(number, "*", given[0])]
    found: list[Step] = []
    if rule.form == "products":
        found = [Step(a, "*", b) for a, b in zip(given[::2], given[1::2], strict=True)]
        given = [step.result % MODULUS for step in found]
    for value in given[1:]:
        found.append(Step(given[0], "-" if rule.form == "minus" else "+", value))
        given[0] = found[-1].result % MODULUS
    if rule.form == "times_sum":
        found.append(Step(number, "*", given[0]))
    return found


def cost(rule: Rule) -> int:
    """Operations that a rule takes, whatever the numbers are."""
    return len(steps(rule, 1, dict.fromkeys(rule.operands, 1)))


def solved(
    order: list[Parameter], rules: Mapping[Parameter, Rule], numbers: Mapping[Parameter, int]
) -> dict[Parameter, int]:
    """The value of each parameter of `order`, modulo 23."""
    values: dict[Parameter, int] = {}
    for parameter in order:
        taken = steps(rules[parameter], numbers.get(parameter, 0), values)
        values[parameter] = taken[-1].result % MODULUS if taken else numbers[parameter]
    return values

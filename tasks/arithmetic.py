"""Does stretching positions damage exact local alignment while perplexity improves? Four probes in a long context:
addition (and subtraction), copy, digit_index, and igsm (word problems over an instance graph).

Layout. Without `depths` a prompt is corpus text, `shots` solved examples, and the problem: "Question: …", a newline,
"Answer:". With `depths=k` the statements of examples and problem stand together at one of k evenly spaced depths of the
text, numbered; the end asks for them by number, the examples first and with answers, so that operands are fetched from
afar. Depths come in an order whose every beginning is spread evenly. Examples and problem depend on (seed, i) alone and
are the same at every length, and so is the difficulty: only the text around them grows.

One pass over prompt and right answer gives both likelihoods, means over tokens: `answer_nll` of the answer (or of the
whole worked solution), `context_nll` of the corpus text. `exact_match` is read from the first line of generated text.

What it shows: the dissociation. A method whose context_nll beats the baseline's while exact_match does not, on the same
samples, fits the text but has lost exact positions (or something else that it changes, such as the temperature). What
not: anything about a model at chance inside its own window, or across models, whose tokenizers cut digits differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, Literal, NamedTuple

from ropebench.corpus import Corpus, sentences, texts
from ropebench.errors import UsageError
from ropebench.igsm import MODULUS, MOST, RULE, draw
from ropebench.prompt import Encoder, fill
from ropebench.task import Example, Metric, Output, Task, Window

GOLDEN = 0.6180339887498949  # its multiples modulo 1 spread evenly, however many are taken
UNIT = re.compile(r"\S{1,16}\s?|\s")  # what the text grows by


def first_integer(text: str) -> int | None:
    """The first number of a text, commas between groups of three digits left out; None where there is none, or where it
    has a fraction. A minus sign right before it belongs to it, spaces end it, leading zeros do not matter."""
    found = re.search(r"[-−]?[0-9]+(?:,[0-9]{3}(?![0-9]))*(?:\.[0-9]+)?", text)
    return int(found[0].replace(",", "").replace("−", "-")) if found and "." not in found[0] else None


def answer_is(text: str) -> int | None:
    """The first number after the first "answer is"; None without these words: numbers in the steps are no answers."""
    return first_integer(text.partition("answer is")[2])


def digit_run(text: str) -> str:
    """The first unbroken run of digits, to be equal digit by digit: leading zeros count; commas and spaces end it."""
    return "".join(re.findall(r"[0-9]+", text)[:1])


def measures(chance: float) -> tuple[Metric, ...]:
    """The metrics of a probe. `chance` is what always giving the likeliest answer scores."""
    return (
        Metric("exact_match", "higher", chance=chance),
        Metric("answer_nll", "lower", 0.0, None, None, "nats per token"),
        Metric("context_nll", "lower", 0.0, None, None, "nats per token"),
        Metric("context_perplexity", "lower", 1.0, None, None, "per token", derived=("exp", "context_nll")),
    )


def scores(example: Example, output: Output, right: bool) -> dict[str, float]:
    """`right`, and the likelihoods of answer and context out of the one pass over both."""
    nll, meta = output.nll[0], example.meta  # nll[t − 1] belongs to id t
    context = [float(value) for first, end in meta["context_spans"] for value in nll[first - 1 : end - 1]]
    answer = [float(value) for value in nll[meta["answer_from"] - 1 :]]
    found = {"context_nll": sum(context) / len(context)} if context else {}
    return {"exact_match": float(right), "answer_nll": sum(answer) / len(answer), **found}


class Layout(NamedTuple):
    """One sample's words: `block` stands within the text (empty without depths), `tail` at its end."""

    block: str
    tail: str
    answer: str

    def around(self, text: str, wanted: float | None) -> list[str]:
        """Text, block (at the end of a sentence or line), text and tail, with blank lines between what is there."""
        ends = [*sentences(text), *(found.end() for found in re.finditer(r"\n", text))]
        at = len(text) if wanted is None else min(ends, key=lambda end: abs(end - wanted * len(text)))
        pieces: list[str] = []
        for part in (text[:at].rstrip(), self.block, text[at:].rstrip(), self.tail):
            pieces.append("\n\n" + part if part and any(pieces) else part)
        return pieces

    def budget(self, encoder: Encoder) -> int:
        """New tokens: one and a half times those of the right answer, and 8."""
        prompt, whole = (len(encoder.prompt(self.tail, "Answer:" + answer)) for answer in ("", " " + self.answer))
        return (whole - prompt) * 3 // 2 + 8


def layout(task: Any, seed: int, i: int) -> Layout:
    """Sample i's problem, drawn before its examples (so it does not depend on their number), which differ from it."""
    rng = Random(f"{task.name} {seed} {i}")
    drills = [task.drill(rng)]  # a question, and what is right after "Answer: "
    while len(drills) <= task.shots:
        more = task.drill(rng)
        if more[0] not in [question for question, _ in drills]:
            drills.insert(-1, more)
    rule, block, asked = [task.rule] if task.rule else [], "", [question for question, _ in drills]
    if task.depths is not None:
        block = "\n".join([*rule, *(f"Problem {n}: {question}" for n, question in enumerate(asked, 1))])
        rule, asked = [], [f"What is the answer to problem {n}?" for n in range(1, len(asked) + 1)]
    shown = [f"Question: {q}\nAnswer: {answer}" for q, (_, answer) in zip(asked[:-1], drills, strict=False)]
    return Layout(block, "\n\n".join([*rule, *shown, f"Question: {asked[-1]}\n"]), drills[-1][1])


def probes(task: Any, length: int, encoder: Encoder, seed: int, corpus: Any = None) -> Iterator[Example]:
    """Sample i: its problem and examples in a text that begins at a sentence of the corpus."""
    text, least = haystack(task, corpus, 12 * length), task.minimum_length
    if not encoder.text(text[:200]):
        raise UsageError(f"{task.name}: the tokenizer makes no tokens of text; is it the one of this model?")
    for words in (layout(task, seed, i) for i in range(32)):  # so many decide on the smallest length that works
        least = max(least, len(encoder.prompt("".join(words.around("", None)), "Answer:")) + words.budget(encoder))
    if length < least:
        raise UsageError(f"{task.name}: length {length} is too short; the smallest that works is {least}")
    starts, order = sentences(text)[:-1], sorted(range(task.depths or 1), key=lambda step: step * GOLDEN % 1.0)
    for i in count():
        group, step = divmod(i, len(order))
        start = Random(f"{task.name} text {seed} {group}").choice(starts)
        wanted = None if task.depths is None else order[step] / (task.depths - 1)
        around = (text[start:] + text[:start])[: 12 * length]
        yield example(layout(task, seed, i), around, wanted, length, encoder, f"text-{group}")


def example(words: Layout, text: str, wanted: float | None, length: int, encoder: Encoder, cluster: str) -> Example:
    """The ids of a sample, and where in the one window over prompt and right answer its text and its answer are."""
    units, budget, grain = UNIT.findall(text), words.budget(encoder), max(length // 512, 1)

    def pieces(size: int) -> list[str]:
        return words.around("".join(units[n % len(units)] for n in range(size * grain)).rstrip(), wanted)

    def prompt(size: int, answer: str = "") -> tuple[int, ...]:
        return encoder.prompt("".join(pieces(size)), "Answer:" + answer)

    room, rate = length - budget - len(prompt(0)), len(encoder.text("".join(units[:512]))) / min(len(units), 512)
    size = fill(prompt, length - budget, int(room / rate / grain), 4 * length // grain)
    if size < 0:
        return Example(skip=f"its problem needs {length - room} tokens")
    parts, ids, whole = pieces(size), prompt(size), prompt(size, " " + words.answer)
    ends = [shared(encoder.prompt("".join(parts[:n])), whole) for n in range(4)]
    spans = [[max(ends[0], 1), ends[1]], [ends[2], ends[3]]]  # the first id of all has no prediction
    spans = [[first, end] for first, end in spans if first < end]
    meta: dict[str, Any] = {"answer_from": shared(ids, whole), "context_spans": spans, "cluster": cluster}
    if wanted is not None:
        meta |= {"depth": (before := ends[1] - ends[0]) / max(before + ends[3] - ends[2], 1), "depth_wanted": wanted}
    skip = None if len(ids) + budget >= 0.95 * length else f"fills {len(ids) + budget} of {length} tokens only"
    return Example(ids, (words.answer,), budget, ("\n",), (Window(whole),), meta, skip)


def shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """How many ids two sequences begin with in common."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def haystack(task: Any, corpus: Corpus, enough: int) -> str:
    """The corpus's documents with blank lines after them, until there are more than `enough` characters."""
    return "".join(text + "\n\n" for text in texts(task.name, corpus, enough + 1, between=2))


def check(task: Any, **ranges: tuple[int, int]) -> None:
    """Raise UsageError for a parameter that is out of its range."""
    for name, (least, most) in {**ranges, "shots": (0, 8), "depths": (2, 101)}.items():
        if (value := getattr(task, name)) is not None and not least <= value <= most:
            raise UsageError(f"{task.name}: {name}={value} must be from {least} to {most}")


@dataclass(frozen=True)
class Addition(Task):
    name, version, scorer = "arithmetic/addition", 1, "first_integer"
    metrics = measures(0.0)  # an instance has those of its parameters
    minimum_length, default_n, needs_corpus, default_docs = 256, 50, True, "installed"
    summary = "sum or difference of two n-digit numbers at the end of a long text, or at a depth in it"
    source = "the arithmetic tasks of GPT-3, arXiv:2005.14165, section 3.9.1; prompts and sampling are ours"
    rule, examples, gated = "", probes, True

    digits: int = 2  # of both operands, exactly (one digit: 0 … 9)
    operation: Literal["add", "subtract", "both"] = "both"  # a difference is the larger minus the smaller
    shots: int = 4
    depths: int | None = None

    def __post_init__(self) -> None:
        check(self, digits=(1, 12))
        m = len(self.operands)  # of m² pairs m have the likeliest sum, 2(m − 1) the likeliest difference, 1
        add, subtract = 1 / m, 2 * (m - 1) / m**2
        chance = {"add": add, "subtract": subtract, "both": (add + subtract) / 2}
        object.__setattr__(self, "metrics", measures(chance[self.operation]))

    @property
    def operands(self) -> range:
        return range(10 ** (self.digits - 1) if self.digits > 1 else 0, 10**self.digits)

    def variant_name(self) -> str:
        return f"{self.digits}-digit-{self.operation}" + "-at-depth" * (self.depths is not None)

    def drill(self, rng: Random) -> tuple[str, str]:
        a, b = rng.choice(self.operands), rng.choice(self.operands)
        if self.operation == "add" or (self.operation == "both" and rng.random() < 0.5):
            return f"What is {a} plus {b}?", str(a + b)
        return f"What is {max(a, b)} minus {min(a, b)}?", str(abs(a - b))

    def score(self, example: Example, output: Output) -> dict[str, float]:
        return scores(example, output, first_integer(output.text) == int(example.targets[0]))


@dataclass(frozen=True)
class Copy(Task):
    name, version, scorer = "arithmetic/copy", 1, "digit_run"
    metrics = measures(0.0)  # an instance has those of its parameters
    minimum_length, default_n, needs_corpus, default_docs = 256, 50, True, "installed"
    summary, source = "exact copy of a digit string at the end of a long text, or at a depth in it", "ours"
    rule, examples, gated = "", probes, True

    digits: int = 12
    shots: int = 4
    depths: int | None = None

    def __post_init__(self) -> None:
        check(self, digits=(2, 64))
        object.__setattr__(self, "metrics", measures(1 / (9 * 10 ** (self.digits - 1))))

    def variant_name(self) -> str:
        return f"{self.digits}-digit" + "-at-depth" * (self.depths is not None)

    def drill(self, rng: Random) -> tuple[str, str]:
        number = str(rng.randrange(10 ** (self.digits - 1), 10**self.digits))  # no leading zero: models drop it
        return f"Copy the number {number}.", number

    def score(self, example: Example, output: Output) -> dict[str, float]:
        return scores(example, output, digit_run(output.text) == example.targets[0])


@dataclass(frozen=True)
class DigitIndex(Task):
    name, version, scorer = "arithmetic/digit_index", 1, "digit_run"
    metrics = measures(0.1)  # an instance has those of its parameters
    minimum_length, default_n, needs_corpus, default_docs = 256, 50, True, "installed"
    summary, source = "the k-th digit of a number at the end of a long text, or at a depth in it", "ours"
    rule, examples, gated = "Digits are counted from the left. The first one is digit 1.", probes, True

    digits: int = 10  # all different, or a digit that stands twice would be the better guess
    shots: int = 4
    depths: int | None = None

    def __post_init__(self) -> None:
        check(self, digits=(2, 10))
        object.__setattr__(self, "metrics", measures(1 / self.digits))

    def variant_name(self) -> str:
        return f"{self.digits}-digit" + "-at-depth" * (self.depths is not None)

    def drill(self, rng: Random) -> tuple[str, str]:
        number, place = "".join(rng.sample("0123456789", self.digits)), rng.randint(1, self.digits)
        return f"What is digit {place} of the number {number}?", number[place - 1]

    def score(self, example: Example, output: Output) -> dict[str, float]:
        return scores(example, output, digit_run(output.text) == example.targets[0])


@dataclass(frozen=True)
class Igsm(Task):
    name, version = "arithmetic/igsm", 1
    metrics = measures(1 / MODULUS)  # answers are uniform on 0 … 22
    minimum_length, default_n, needs_corpus, default_docs = 512, 50, True, "installed"
    summary = "a word problem over an instance graph, modulo 23, at the end of a long text, or at a depth in it"
    source = "after iGSM, arXiv:2407.20311, from its description; problems and wording are ours"
    rule, examples, gated = RULE, probes, True

    operations: int = 2  # additions, subtractions and multiplications in the solution
    distractors: int = 2  # sentences that the answer does not need
    solution: Literal["worked", "direct"] = "worked"  # what an answer is: every step and the answer, or the answer
    shots: int = 2
    depths: int | None = None

    def __post_init__(self) -> None:
        check(self, operations=(1, MOST), distractors=(0, MOST))

    def scorer_name(self) -> str:
        return "integer_after_answer_is" if self.solution == "worked" else "first_integer"

    def variant_name(self) -> str:
        return f"{self.operations}-op-{self.solution}" + "-at-depth" * (self.depths is not None)

    def drill(self, rng: Random) -> tuple[str, str]:
        problem = draw(rng, self.operations, self.distractors)
        return problem.statement, problem.solution if self.solution == "worked" else str(problem.answer)

    def score(self, example: Example, output: Output) -> dict[str, float]:
        read = answer_is if self.solution == "worked" else first_integer
        return scores(example, output, read(output.text) == read(example.targets[0]))

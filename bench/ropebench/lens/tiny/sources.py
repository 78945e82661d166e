"""The words that training rows take from our own tasks: needles, questions, pairs, chains and drills."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Any

from ropebench.registry import Registry
from ropebench.ruler.needles import Setting, needle
from ropebench.ruler.prompts import NIAH, singular
from ropebench.ruler.words import word_pair

NUMBER = Setting("needle")  # word keys, 7-digit numbers
PER_ROW = 64  # samples of niah that one row may take its needles from


class Sources:
    """The tasks, and what is drawn from them. All randomness comes with the arguments."""

    def __init__(self) -> None:
        tasks = Registry.load()

        def task(name: str, **parameters: Any) -> Any:
            return tasks.entry("task", name).cls(**parameters)

        self.niah, self.passkey = task("niah"), task("niah", variant="passkey")
        self.kv, self.vt = task("kv"), task("vt")
        addition = "arithmetic/addition"
        self.drills = {
            task(addition, digits=2, operation="add"): 9,
            task(addition, digits=1, operation="add"): 3,
            task(addition, digits=2, operation="subtract"): 3,
            task("arithmetic/copy", digits=4): 1,
            task("arithmetic/copy", digits=8): 2,
            task("arithmetic/copy", digits=12): 2,
        }
        # RULER's question for one number: before the context, after it, and what the answer begins with.
        template = singular(NIAH.template).replace("{type_needle_v}", "number").replace("{query}", "{key}")
        prefix = singular(NIAH.answer_prefix).replace("{type_needle_v}", "number").replace("{query}", "{key}")
        self.needle_words = (*template.split("{context}"), prefix)

    @staticmethod
    def needles(rng: Random) -> Iterator[tuple[str, str]]:
        """RULER's keys (all different) and numbers, without end."""
        seen: set[str] = set()
        while True:
            key, value = word_pair(rng), str(rng.randint(10**6, 10**7 - 1))
            if key not in seen:
                seen.add(key)
                yield key, value

    def needles_with_questions(
        self, rng: Random, seed: int, number: int, count: int
    ) -> tuple[str, list[tuple[str, str, str]]]:
        """What stands before the context, and per needle its text, its question with answer prefix, and its value;
        with keys of `niah` or of RULER, half of the rows each."""
        if rng.random() < 0.5:
            head, ask, prefix = self.needle_words
            pairs = islice(self.needles(rng), count)
            return head, [(needle(NUMBER, key, value), (ask + prefix).format(key=key), value) for key, value in pairs]
        head, found = "", dict[str, tuple[str, str, str]]()
        for i in range(PER_ROW):
            question, prefix, text, value = self.niah.words(seed, number * PER_ROW + i)
            head, ask = question.split("{context}")
            found.setdefault(ask, (text, ask + prefix, value))
            if len(found) == count:
                break
        return head, list(found.values())

    def drill(self, rng: Random) -> tuple[str, str]:
        """A question as the arithmetic tasks put it, and its answer."""
        (task,) = rng.choices(list(self.drills), list(self.drills.values()))
        question, answer = task.drill(rng)
        return f"Question: {question}\nAnswer:", answer

    def texts(self, seed: int, number: int) -> Iterator[str]:
        """What the vocabulary sees of the tasks, so that their words are whole tokens: each kind `number` times."""
        for i in range(number):
            rng = Random(f"tiny vocabulary {seed} {i}")
            for task in (self.niah, self.passkey):
                question, prefix, text, value = task.words(seed, i)
                yield f"{question}\n{text}{prefix} {value}"
            head, ask, prefix = self.needle_words
            key, value = next(self.needles(rng))
            yield f"{head}\n{needle(NUMBER, key, value)}{(ask + prefix).format(key=key)} {value}"
            pairs = list(islice(self.kv.pairs(rng), 4))
            yield self.kv.header + "\n".join(f"{key}: {value}" for key, value in pairs)
            yield (self.kv.question + self.kv.answer_prefix).format(key=pairs[0][0])
            names, value = self.vt.drawn(rng)[0]
            asked = (self.vt.question + self.vt.answer_prefix).format(name=names[-1])
            yield self.vt.header + "\n".join(self.vt.assignments(names, value)) + asked
            yield "\n\n".join(f"{question} {answer}" for question, answer in (self.drill(rng) for _ in range(4)))

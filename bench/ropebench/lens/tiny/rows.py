"""Training rows: natural text, and samples in the words of our own tasks with several questions each.

A task's sample has one answer in 512 tokens; a row asks as often as there is room, which is what makes a small budget
enough. The words are the tasks' own (`niah`, `kv`, `vt`, `arithmetic/*`, RULER's needles), drawn with seeds of which no
evaluation has one. Kinds:

- `prose`: natural text
- `echo`: natural text, and the same again (this is where looking things up begins: every token is an answer)
- `niah`: needles in natural text
- `lines`: nothing but needles, one a line
- `passkey`: the pass key in repeated noise
- `kv`: lines of `key: value`
- `vt`: chains of assignments in noise; answers write the steps
- `drills`: sums, differences and numbers to copy, after natural text or none

An answer ends with the END token, and where another drill follows, with the line. Room at a row's end holds drills.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from random import Random

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from ropebench.corpus import NOISE, sentences
from ropebench.errors import UsageError
from ropebench.lens.tiny.recipe import FIRST_TRAINING_SEED, Stage
from ropebench.lens.tiny.sources import Sources
from ropebench.lens.tiny.vocabulary import BEGIN, END, id_of
from ropebench.ruler.haystack import with_needles
from ropebench.ruler.needles import Setting, needle

OTHER, PROSE, ANSWER = 0, 1, 2  # what a token is; how much it counts is the recipe's
Part = tuple[str, int]
Turn = list[Part]  # all that stands before an END token: a question and its answer; the first has the context, too

_GOLDEN = 0.6180339887498949  # multiples of it, modulo 1, spread evenly: every few rows hold all kinds
_NUMBER = Setting("needle")
_SLACK = 6  # ids; where parts join, a text can have a few more than its parts


@dataclass(frozen=True)
class Row:
    """ids and their roles, shape (width,); ids from `filled` on are padding."""

    kind: str
    ids: NDArray[np.int64]
    roles: NDArray[np.int8]
    filled: int


class Rows:
    """The rows of a run. `prose` is its natural text; `tokenizer` has the tokens BEGIN and END."""

    def __init__(self, tokenizer: Tokenizer, prose: str, seed: int) -> None:
        self.tokenizer, self.text = tokenizer, prose
        self.begin, self.end = id_of(tokenizer, BEGIN), id_of(tokenizer, END)
        encoding = tokenizer.encode(prose, add_special_tokens=False)
        self.prose_ids = np.array(encoding.ids, np.int64)
        self.offsets = [start for start, _ in encoding.offsets]
        self.beginnings = sentences(prose)[:-1]
        self.seed = FIRST_TRAINING_SEED + seed
        self.sources = Sources()

    def row(self, stage: Stage, number: int) -> Row:
        """Row `number` of a run: a function of the seed, the number, and the stage that it belongs to."""
        ends = list(accumulate(stage.shares.values()))
        place = bisect_right(ends, number * _GOLDEN % 1.0 * ends[-1])
        return self.of_kind(list(stage.shares)[min(place, len(ends) - 1)], stage.width, number)

    def of_kind(self, kind: str, width: int, number: int) -> Row:
        rng = Random(f"tiny {kind} {self.seed} {number}")
        if kind == "prose":
            first = rng.randrange(max(len(self.prose_ids) - width, 1))
            found = self.prose_ids[first : first + width - 1].tolist()
            return self._padded(kind, [self.begin, *found], [PROSE] * (len(found) + 1), width)
        make: Callable[[Random, int, int], Iterator[Turn]] = getattr(self, f"_{kind}")
        room, state = width - 2, rng.getstate()
        while True:
            rng.setstate(state)
            turns = make(rng, number, room)
            ids, roles = self.encoded(next(turns))
            if len(ids) < width:
                break
            room -= len(ids) - width + _SLACK
            if room < 0:
                raise UsageError(f"no row of kind {kind!r} fits into {width} tokens; give its stage wider rows")
        ids, roles = [self.begin, *ids], [OTHER, *roles]
        for following in (turns, self._single_drills(rng)):
            for turn in following:
                more, what = self.encoded(turn)
                if len(ids) + len(more) > width:
                    break
                ids, roles = ids + more, roles + what
        return self._padded(kind, ids, roles, width)

    def encoded(self, turn: Turn) -> tuple[list[int], list[int]]:
        """Ids and roles of a turn, END included. A token has the role of the part that it begins in."""
        encoding = self.tokenizer.encode("".join(text for text, _ in turn), add_special_tokens=False)
        ends = np.cumsum([len(text) for text, _ in turn])
        places = np.searchsorted(ends, [start for start, _ in encoding.offsets], side="right")
        roles = [role for _, role in turn]
        return [*encoding.ids, self.end], [*(roles[place] for place in places.tolist()), ANSWER]

    def _padded(self, kind: str, ids: list[int], roles: list[int], width: int) -> Row:
        left = width - len(ids)
        whole, what = [*ids, *[self.end] * left], [*roles, *[OTHER] * left]
        return Row(kind, np.array(whole, np.int64), np.array(what, np.int8), len(ids))

    def _tokens(self, text: str) -> int:
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def _some_prose(self, rng: Random, tokens: int) -> str:
        """Natural text of about so many tokens, from the beginning of a sentence on."""
        first = bisect_left(self.offsets, rng.choice(self.beginnings))
        first = min(first, max(len(self.offsets) - tokens - 1, 0))
        return self.text[self.offsets[first] : self.offsets[first + max(tokens, 0)]].strip()

    # Kinds: each yields turns without end or until there is nothing more to ask; the first has about `room` ids at most

    def _echo(self, rng: Random, number: int, room: int) -> Iterator[Turn]:
        while True:
            text = self._some_prose(rng, rng.randint(8, max((room - _SLACK) // 2, 9)))
            yield [(text + "\n", PROSE), (text, ANSWER)]

    def _kv(self, rng: Random, number: int, room: int) -> Iterator[Turn]:
        task = self.sources.kv
        ask = task.question + task.answer_prefix
        return self._listed(rng, room, task.pairs(rng), task.header, "{key}: {value}", ask, task.answer_prefix)

    def _lines(self, rng: Random, number: int, room: int) -> Iterator[Turn]:
        head, question, prefix = self.sources.needle_words
        line = needle(_NUMBER, "{key}", "{value}")
        return self._listed(rng, room, self.sources.needles(rng), head, line, question + prefix, "\n" + prefix.strip())

    def _listed(
        self, rng: Random, room: int, pairs: Iterator[tuple[str, str]], head: str, line: str, ask: str, again: str
    ) -> Iterator[Turn]:
        """A list of pairs, then questions about them in another order, from the second on without ceremony (`again`) in
        half of the rows. The list takes from a third of the room to all that one question leaves."""
        key, value = next(pairs)
        shown, text = [(key, value)], line.format(key=key, value=value)
        used = self._tokens(head + text + ask.format(key=key) + " " + value) + _SLACK
        wanted = used + (room - used) * rng.uniform(0.2, 1.0)
        for key, value in pairs:
            text = "\n" + line.format(key=key, value=value)
            used += self._tokens(text)
            if used > wanted:
                break
            shown.append((key, value))
        context = head + "\n".join(line.format(key=key, value=value) for key, value in shown)
        short = rng.random() < 0.5
        for n, (key, value) in enumerate(rng.sample(shown, len(shown))):
            asked = (again if short and n else ask).format(key=key)
            yield [((context if n == 0 else "") + asked, OTHER), (f" {value}", ANSWER)]

    def _niah(self, rng: Random, number: int, room: int) -> Iterator[Turn]:
        most = room // 100 + 1
        count = rng.choice((1, rng.randint(min(2, most), most)))
        head, found = self.sources.needles_with_questions(rng, self.seed, number, count)
        asks = rng.sample(found, rng.randint(max(count // 2, 1), count))
        own = self._tokens(head + " ".join(text for text, _, _ in found)) + _SLACK
        own += sum(self._tokens(f"{ask} {value}") + 1 for _, ask, value in asks)
        hay = self._some_prose(rng, room - own)
        places = sorted(rng.choices(sentences(hay), k=count))
        *before, last = (hay[a:b] for a, b in pairwise([0, *places, len(hay)]))
        context: Turn = [(head, OTHER)]
        for n, (piece, (text, _, _)) in enumerate(zip(before, found, strict=True), 1):
            context.append((piece if not piece or piece[-1].isspace() else piece + " ", PROSE))
            context.append((f"{text} " if n < count or last else text, OTHER))
        context.append((last, PROSE))
        for _, ask, value in asks:
            yield [*context, (ask, OTHER), (f" {value}", ANSWER)]
            context = []

    def _passkey(self, rng: Random, number: int, room: int) -> Iterator[Turn]:
        question, prefix, text, value = self.sources.passkey.words(self.seed, number)
        head, ask = question.split("{context}")
        own = self._tokens(head + text + ask + prefix + " " + value) + _SLACK
        parts = [part + "." for part in NOISE.split(".") if part]  # each but the first with its space
        first, each = rng.randrange(len(parts)), self._tokens(" " + NOISE) / len(parts)
        size = max(int((room - own) * rng.uniform(0.3, 1.0) / each), 1)
        hay = [parts[(first + n) % len(parts)].strip() for n in range(size)]
        hay.insert(rng.randint(0, size), text)
        yield [(head + " ".join(hay) + ask + prefix, OTHER), (f" {value}", ANSWER)]

    def _vt(self, rng: Random, number: int, room: int) -> Iterator[Turn]:
        task = replace(self.sources.vt, chains=rng.randint(2, max(min(room // 64, 5), 2)))
        drawn = task.drawn(rng)
        order = [n for n in range(task.chains) for _ in range(task.hops + 1)]
        rng.shuffle(order)
        left = [iter(task.assignments(*one)) for one in drawn]
        lines = [next(left[n]) for n in order]  # any order in which a name is assigned before it is referred to
        ask = task.question + task.answer_prefix
        own = self._tokens(task.header + "\n".join(lines) + ask.format(name="AAA") + " VAR AAA = 12345") + _SLACK
        spare = max(int((room - own) * rng.uniform(0.0, 1.0)), 0) // self._tokens("\n" + NOISE)
        places = sorted(rng.choices(range(spare + 1), k=len(lines)))
        gaps = ["\n".join([NOISE] * (b - a)) for a, b in pairwise([0, *places, spare])]
        context = task.header + with_needles(gaps, lines, "\n")
        steps = [(names[: n + 1][::-1], value) for names, value in drawn for n in range(len(names))]
        for (name, *more), value in rng.sample(steps, len(steps)):
            answer = "".join(f" VAR {other} =" for other in more) + f" {value}"
            yield [(context + ask.format(name=name), OTHER), (answer, ANSWER)]
            context = ""

    def _drills(self, rng: Random, number: int, room: int) -> Iterator[Turn]:
        """Natural text or none, and drills up to the room's end in one turn."""
        turn: Turn = []
        if rng.random() < 0.6:
            turn.append((self._some_prose(rng, int(room * rng.uniform(0.1, 0.8))), PROSE))
        used, gap = sum(self._tokens(text) for text, _ in turn) + _SLACK, "\n\n" * len(turn)
        while True:
            question, answer = self.sources.drill(rng)
            used += self._tokens(f"\n\n{question} {answer}")
            if used > room and gap == "\n":
                break
            turn += [(gap + question, OTHER), (f" {answer}\n", ANSWER)]
            gap = "\n"  # the first of two line ends belongs to the answer: it says that the number is over
        yield [*turn[:-1], (turn[-1][0].rstrip(), ANSWER)]

    def _single_drills(self, rng: Random) -> Iterator[Turn]:
        while True:
            question, answer = self.sources.drill(rng)
            yield [(question, OTHER), (f" {answer}", ANSWER)]

"""Many guests are born in some month; one is asked for. Guessing the month is right one time in twelve."""

import calendar
import random
from dataclasses import dataclass
from itertools import count

from ropebench import Example, Metric, Task
from ropebench.prompt import fill

MONTHS = tuple(calendar.month_name)[1:]
GOLDEN = 0.6180339887498949  # multiples of it, modulo 1, spread evenly however many are drawn


@dataclass(frozen=True)
class Guests(Task):
    name, version = "guests", 1
    metrics = (Metric("accuracy", "higher", chance=1 / len(MONTHS)),)
    scorer = "answer begins with the month"
    minimum_length = 128
    summary = "the month in which one of many guests was born"

    def examples(self, length, encoder, seed, corpus=None):
        for index in count():
            draw = random.Random(f"guests/{seed}/{index}")
            months = draw.choices(MONTHS, k=length)
            depth = (random.Random(seed).random() + index * GOLDEN) % 1.0

            def prompt(guests, months=months, depth=depth):
                lines = [f"Guest {i} was born in {months[i]}." for i in range(guests)]
                return encoder.prompt("\n".join(lines) + "\nWhen?\n", f"Guest {int(depth * guests)} was born in")

            budget = 6
            guests = fill(prompt, length - budget, guess=length // 10, most=length)
            if guests < 1:
                yield Example(skip=f"no guest fits into {length} tokens")
                continue
            guest = int(depth * guests)
            yield Example(
                ids=prompt(guests),
                targets=(months[guest],),
                max_new_tokens=budget,
                meta={"depth": guest / guests, "cluster": index},
            )

    def score(self, example, output):
        return {"accuracy": float(output.text.strip().lower().startswith(example.targets[0].lower()))}

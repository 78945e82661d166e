"""RULER's tasks that need no text and no data: `ruler/vt`, `ruler/cwe`, `ruler/fwe`.

vt: all variables that a chain of assignments in repeated noise gives one value; cwe: the ten words that stand most
often in a numbered list; fwe: the three most frequent words of a coded text. vt and cwe come with a worked example.

`layout=nvidia` reproduces the original's layouts: in cwe and fwe one order of positions for all samples, in vt random
ones. The default draws an order per sample, and spreads vt's assignments evenly over depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ropebench.corpus import Corpus
from ropebench.prompt import Encoder
from ropebench.ruler.chains import chain_examples
from ropebench.ruler.frequency import common_words_examples, frequent_words_examples
from ropebench.ruler.scoring import cleaned, match_all
from ropebench.task import Example, Metric, Output, Task

GENERATORS = {
    "vt": (chain_examples, "the variables of one chain of assignments in noise"),
    "cwe": (common_words_examples, "the ten commonest words of a list"),
    "fwe": (frequent_words_examples, "the three most frequent words of a coded text"),
}


def synthetic_task(called: str) -> type[Task]:
    """The task of one generator. A class each, since a task is found by its class."""
    generate, what = GENERATORS[called]

    @dataclass(frozen=True)
    class RulerSynthetic(Task):
        name, version = f"ruler/{called}", 1
        metrics = (Metric("score", "higher"),)
        scorer, minimum_length, default_n = "ruler_all", 256, 50
        summary = what
        source = "RULER, arXiv:2404.06654; NVIDIA/RULER @ c3f5e3b"

        layout: Literal["balanced", "nvidia"] = "balanced"

        def variant_name(self) -> str:
            return "" if self.layout == "balanced" else self.layout

        def examples(
            self, length: int, encoder: Encoder, seed: int, corpus: Corpus | None = None, start: int = 0
        ) -> Iterator[Example]:
            return generate(self.name, self.layout, length, encoder, seed, start)

        def score(self, example: Example, output: Output) -> dict[str, float]:
            return {"score": match_all(cleaned(output.text), example.targets)}

    return RulerSynthetic


Vt = synthetic_task("vt")
Cwe = synthetic_task("cwe")
Fwe = synthetic_task("fwe")

"""RULER's eight needle tasks: `ruler/niah_single_1` … `ruler/niah_multiquery`.

Needles name a special magic value of a key; distractors differ in the key (multikey), one key has four values
(multivalue), or four keys are asked for (multiquery). Haystacks: a repeated line of noise (single_1), nothing but
other needles (multikey_2, multikey_3), or prose (the other five). The prose of the paper, Paul Graham's essays, has no
licence that lets it be shipped; whoever has them puts them into a folder as text files and gives `--docs
essays=FOLDER`. Any other corpus works too, and the label names the one that was used.

`layout=nvidia` draws depths from the original's 40-point grid (its random lines, in haystacks of lines) and begins each
haystack with the corpus's first word; the default spreads them evenly over samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from ropebench.corpus import Corpus
from ropebench.prompt import Encoder
from ropebench.ruler.needles import Setting, needle_examples
from ropebench.ruler.scoring import cleaned, match_all
from ropebench.task import Example, Metric, Output, Task


def needle_task(called: str, asks: Setting, what: str) -> type[Task]:
    """The task of one setting. A class each, since a task is found by its class; alike but for the setting."""
    prose = asks.haystack == "essay"

    @dataclass(frozen=True)
    class RulerNiah(Task):
        name, version = f"ruler/{called}", 1
        metrics = (Metric("score", "higher"),)
        scorer, minimum_length, default_n = "ruler_all", 256, 50
        needs_corpus, default_docs = prose, "installed" if prose else None
        summary = what
        source = "RULER, arXiv:2404.06654; NVIDIA/RULER @ c3f5e3b"
        setting: ClassVar[Setting] = asks

        layout: Literal["balanced", "nvidia"] = "balanced"

        def variant_name(self) -> str:
            return "" if self.layout == "balanced" else self.layout

        def examples(
            self, length: int, encoder: Encoder, seed: int, corpus: Corpus | None = None, start: int = 0
        ) -> Iterator[Example]:
            return needle_examples(self.name, self.setting, self.layout, length, encoder, seed, corpus, start)

        def score(self, example: Example, output: Output) -> dict[str, float]:
            return {"score": match_all(cleaned(output.text), example.targets)}

    return RulerNiah


NiahSingle1 = needle_task("niah_single_1", Setting("noise"), "one number in repeated noise")
NiahSingle2 = needle_task("niah_single_2", Setting("essay"), "one number in prose")
NiahSingle3 = needle_task("niah_single_3", Setting("essay", value="uuids"), "one UUID in prose")
NiahMultikey1 = needle_task("niah_multikey_1", Setting("essay", keys=4), "one of four keys in prose")
NiahMultikey2 = needle_task("niah_multikey_2", Setting("needle"), "one key among nothing but other keys")
NiahMultikey3 = needle_task(
    "niah_multikey_3", Setting("needle", key="uuids", value="uuids"), "one UUID key among nothing but other UUID keys"
)
NiahMultivalue = needle_task("niah_multivalue", Setting("essay", values=4), "all four values of one key in prose")
NiahMultiquery = needle_task("niah_multiquery", Setting("essay", keys=4, queries=4), "the values of four keys in prose")

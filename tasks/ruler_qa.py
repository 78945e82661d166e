"""RULER's two question tasks: `ruler/qa_1` (SQuAD v2.0) and `ruler/qa_2` (HotpotQA, distractor setting).

The data come from the hub ids that people know (rajpurkar/squad_v2, hotpotqa/hotpot_qa), from another hub data set with
the authors' own file (`data=OWNER/NAME`), or from a folder (`data=FOLDER`) that holds dev-v2.0.json or
hotpot_dev_distractor_v1.json. The SHA-256 of the file is part of a cell's identity, the folder is not; given as
`data_sha256`, any other file is refused.

`layout=nvidia` takes the questions in the file's order and shuffles every sample's documents in the same way, which
puts the answer at one depth per number of documents; the default draws the questions, and spreads answers over depth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

from ropebench.corpus import Corpus
from ropebench.errors import UsageError
from ropebench.prompt import Encoder
from ropebench.ruler.data import HOTPOT, SQUAD, Source, file_of, hotpot, sha256_of, squad
from ropebench.ruler.questions import Questions, question_examples
from ropebench.ruler.scoring import cleaned, match_part
from ropebench.task import Example, Metric, Output, Task


def question_task(called: str, of: Source, reader: Callable[[str, Path], Questions], what: str) -> type[Task]:
    """The task of one data set. A class each, since a task is found by its class."""

    @dataclass(frozen=True)
    class RulerQa(Task):
        name, version = f"ruler/{called}", 1
        metrics = (Metric("score", "higher"),)
        scorer, minimum_length, default_n = "ruler_part", 256, 50
        summary = what
        source = "RULER, arXiv:2404.06654; NVIDIA/RULER @ c3f5e3b"
        needs_data: ClassVar[Source] = of

        layout: Literal["balanced", "nvidia"] = "balanced"
        data_sha256: str | None = None
        data: str = field(default=of.hub, compare=False)  # a folder, or a hub data set; no part of a cell
        offline: bool = field(default=False, compare=False)  # the hub is not asked

        def variant_name(self) -> str:
            return "" if self.layout == "balanced" else self.layout

        def resolved(self, lengths: Sequence[int], corpus: Corpus | None = None) -> Task:
            return replace(self, data_sha256=sha256_of(self.file()))

        def file(self) -> Path:
            """The data file. Raises UsageError where it cannot be had, or is not the one that data_sha256 names."""
            file = file_of(self.name, self.needs_data, self.data, self.offline)
            if self.data_sha256 not in (None, sha256_of(file)):
                raise UsageError(
                    f"{self.name}: {file.name} is another file than data_sha256={self.data_sha256} "
                    f"(it has {sha256_of(file)}); name the right one with {self.name}:data=FOLDER"
                )
            return file

        def examples(
            self, length: int, encoder: Encoder, seed: int, corpus: Corpus | None = None, start: int = 0
        ) -> Iterator[Example]:
            data = reader(self.name, self.file())
            return question_examples(self.name, self.layout, length, encoder, seed, data, start)

        def score(self, example: Example, output: Output) -> dict[str, float]:
            return {"score": match_part(cleaned(output.text), example.targets)}

    return RulerQa


Qa1 = question_task("qa_1", SQUAD, squad, "a question answered by one paragraph among many")
Qa2 = question_task("qa_2", HOTPOT, hotpot, "a question answered by two paragraphs among many")

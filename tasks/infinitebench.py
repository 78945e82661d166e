"""InfiniteBench's 12 subsets as published: `infinitebench/passkey` … `infinitebench/math_find`; `infinitebench` is all.

The rows come from the hub data set xinrongzhang2022/InfiniteBench at a pinned revision, or from a folder that holds
the files (`data=FOLDER`). They were not fetched live here: the tests read rows of our own in the same layout. The
SHA-256 of a file is part of a cell's identity, the folder is not. The synthetic subsets need no download as
`infinitebench_generated`.

A row is as long as it is, so the length is the most that is fed: prompt and answer budget together. A longer prompt
loses its middle, as in the original, but cut among token ids; where its answer was there, the sample is skipped and
counted (`truncate=skip` skips every longer prompt). `min_tokens` and `max_tokens` choose rows by the size of their
whole prompt under the model's own tokenizer. The order is drawn by the seed, so a larger n tops up.

The setting of the MrRoPE paper, 100 random samples of 100K to 128K tokens per subset (its seed is not published):

    ropebench run --model llama3-8b --method yarn,mrrope_pro --lengths 128k --n 100 \\
        --tasks infinitebench:min_tokens=100k:max_tokens=128k

`prompts=gpt4` asks as GPT-4 was asked; `scorer=lenient` reads answers as a reader would. math_calc asks for 30,000 new
tokens; `max_new_tokens` is 2,048 here, which no published score comes near, and stands in its label. longbook_sum_eng
needs rouge-score (`pip install 'ropebench[rouge]'`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import ClassVar

from ropebench.corpus import Corpus
from ropebench.errors import UsageError
from ropebench.infinitebench.generated import GENERATED
from ropebench.infinitebench.judging import SCORERS, Scorer, check_rouge, check_tokens, metrics_of, scores, variant_of
from ropebench.infinitebench.prompts import NEW_TOKENS, Prompts
from ropebench.infinitebench.rows import HUB, REVISION, rows_of
from ropebench.infinitebench.samples import Choice, Truncate, row_examples
from ropebench.prompt import Encoder
from ropebench.ruler.data import Source, file_of, sha256_of
from ropebench.task import Example, Output, Task


def subset_task(called: str, what: str) -> type[Task]:
    """The task of one subset. A class each, since a task is found by its class."""
    budget = min(NEW_TOKENS[called], 2048)

    @dataclass(frozen=True)
    class InfiniteBench(Task):
        name, version = f"infinitebench/{called}", 1
        metrics = metrics_of(called)
        minimum_length, default_n = max(512, 2 * budget), 100
        summary = what
        source = "InfiniteBench, arXiv:2402.13718; OpenBMB/InfiniteBench @ 88b3daa"
        needs_data: ClassVar[Source] = Source("InfiniteBench", f"{called}.jsonl", HUB, f"{called}.jsonl")

        prompts: Prompts = "yarn_mistral"  # the wording: for a base model, or GPT-4's
        scorer: Scorer = "official"  # the original's rules to the letter, or what a reader would call right
        truncate: Truncate = "middle"  # too long a prompt loses its middle, or is skipped
        min_tokens: int = 0  # the least a whole prompt has, under the model's tokenizer
        max_tokens: int | None = None  # the most it has
        max_new_tokens: int = budget  # of an answer; part of the length
        data_sha256: str | None = None  # any other file is refused
        data: str = field(default=f"{HUB}@{REVISION}", compare=False)  # a folder, or a hub data set; no part of a cell
        offline: bool = field(default=False, compare=False)  # the hub is not asked

        def __post_init__(self) -> None:
            own = {name: getattr(self, name) for name in ("min_tokens", "max_tokens", "max_new_tokens")}
            check_tokens(self.name, **own)
            if self.max_tokens is not None and self.max_tokens < self.min_tokens:
                raise UsageError(f"{self.name}: max_tokens={self.max_tokens} is below min_tokens={self.min_tokens}")

        def scorer_name(self) -> str:
            return SCORERS[self.scorer]

        def variant_name(self) -> str:
            return variant_of(called, self.params, {f.name: f.default for f in fields(self)})

        def resolved(self, lengths: Sequence[int], corpus: Corpus | None = None) -> Task:
            if called == "longbook_sum_eng":
                check_rouge(self.name)
            return replace(self, data_sha256=sha256_of(self.file()))

        def file(self) -> Path:
            """The data file. Raises UsageError where it cannot be had, or is not the one that data_sha256 names."""
            try:
                file = file_of(self.name, self.needs_data, self.data, self.offline)
            except UsageError as error:
                made = f"; infinitebench_generated/{called} needs no download" if called in GENERATED else ""
                raise UsageError(f"{error}{made}") from None
            if self.data_sha256 not in (None, sha256_of(file)):
                raise UsageError(
                    f"{self.name}: {file.name} is another file than data_sha256={self.data_sha256} "
                    f"(it has {sha256_of(file)}); name the right one with {self.name}:data=FOLDER"
                )
            return file

        def examples(self, length: int, encoder: Encoder, seed: int, corpus: Corpus | None = None) -> Iterator[Example]:
            how = (self.prompts, self.truncate, self.min_tokens, self.max_tokens, self.max_new_tokens)
            return row_examples(Choice(called, *how), rows_of(self.name, self.file()), length, encoder, seed)

        def score(self, example: Example, output: Output) -> dict[str, float]:
            return scores(called, self.scorer, self.prompts, example, output)

    return InfiniteBench


Passkey = subset_task("passkey", "a five-digit pass key in repeated noise")
NumberString = subset_task("number_string", "ten digits, some of them repeated, in repeated noise")
KvRetrieval = subset_task("kv_retrieval", "the value of one key of a JSON object, all of them UUIDs")
LongbookSum = subset_task("longbook_sum_eng", "a summary of a novel whose names were changed")
LongbookQa = subset_task("longbook_qa_eng", "a question about a novel whose names were changed")
LongbookChoice = subset_task("longbook_choice_eng", "a question about such a novel, with four options")
LongdialogueQa = subset_task("longdialogue_qa_eng", "whose name was masked in a script")
LongbookQaChn = subset_task("longbook_qa_chn", "a question about a Chinese novel")
CodeDebug = subset_task("code_debug", "which of four functions of a code base has an error put in")
CodeRun = subset_task("code_run", "the value of a call that runs through 2 to 10 functions that add a number")
MathCalc = subset_task("math_calc", "all intermediate values of a sum of 30,000 terms")
MathFind = subset_task("math_find", "the largest numbers, the smallest ones or the median of a long list")

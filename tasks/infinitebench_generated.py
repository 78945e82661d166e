"""InfiniteBench's synthetic subsets at any length, with no download: `infinitebench_generated/passkey`,
`…/number_string`, `…/kv_retrieval`, `…/code_run`, `…/math_find`; `infinitebench_generated` is all five.

Rows of our own making, built as the published ones are: same sentences, prompts, scorers and answer budgets, but as
long as asked for, with what is asked for spread evenly over depth. A number under this name is not one under
`infinitebench/…`, whose rows are the published ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from ropebench.corpus import Corpus
from ropebench.infinitebench.generated import generated_examples
from ropebench.infinitebench.judging import SCORERS, Scorer, check_tokens, metrics_of, scores, variant_of
from ropebench.infinitebench.prompts import NEW_TOKENS, Prompts
from ropebench.prompt import Encoder
from ropebench.task import Example, Output, Task


def generated_task(called: str, samples: int, what: str) -> type[Task]:
    """The task of one subset. A class each, since a task is found by its class."""

    @dataclass(frozen=True)
    class InfiniteBenchGenerated(Task):
        name, version = f"infinitebench_generated/{called}", 1
        metrics = metrics_of(called)
        minimum_length, default_n = 256, samples
        summary = what
        source = "InfiniteBench, arXiv:2402.13718; OpenBMB/InfiniteBench @ 88b3daa; the generator is our own"

        prompts: Prompts = "yarn_mistral"  # the wording: for a base model, or GPT-4's
        scorer: Scorer = "official"  # the original's rules to the letter, or what a reader would call right
        max_new_tokens: int = NEW_TOKENS[called]  # of an answer; part of the length

        def __post_init__(self) -> None:
            check_tokens(self.name, max_new_tokens=self.max_new_tokens)

        def scorer_name(self) -> str:
            return SCORERS[self.scorer]

        def variant_name(self) -> str:
            return variant_of(called, self.params, {f.name: f.default for f in fields(self)})

        def examples(self, length: int, encoder: Encoder, seed: int, corpus: Corpus | None = None) -> Iterator[Example]:
            return generated_examples(self.name, called, self.prompts, self.max_new_tokens, length, encoder, seed)

        def score(self, example: Example, output: Output) -> dict[str, float]:
            return scores(called, self.scorer, self.prompts, example, output)

    return InfiniteBenchGenerated


Passkey = generated_task("passkey", 50, "a five-digit pass key in repeated noise")
NumberString = generated_task("number_string", 50, "ten digits, some of them repeated, in repeated noise")
KvRetrieval = generated_task("kv_retrieval", 50, "the value of one key of a JSON object, all of them UUIDs")
CodeRun = generated_task("code_run", 50, "the value of a call that runs through 2 to 10 functions that add a number")
MathFind = generated_task("math_find", 70, "the largest numbers, the smallest ones or the median of a long list")

"""lm-eval's tasks as ropebench tasks: `lm_eval:NAME`, `lm_eval:GROUP`, `lm_eval:FOLDER`.

lm-eval makes the prompts and scores the answers (`scorer=lm_eval`); ropebench encodes the prompts, keeps BOS and length
as it does everywhere, and runs them under its methods. A prompt that does not fit is skipped and counted, never cut.
Texts for rolling likelihood are measured as proofpile measures them (`scorer=token_nll`), since lm-eval's own numbers
for them are no means over documents.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import datasets
from lm_eval.tasks import TaskManager

from ropebench.corpus import Corpus
from ropebench.errors import UsageError
from ropebench.lm_harness.asking import Asked, ask, text_of
from ropebench.lm_harness.index import VERSION, Source, config_of, sources
from ropebench.lm_harness.measures import Measure, declared, measures, value_of
from ropebench.lm_harness.network import network
from ropebench.lm_harness.samples import Rows, generated
from ropebench.prompt import Encoder
from ropebench.record import canonical
from ropebench.registry import Entry
from ropebench.task import Example, Metric, Output, Task

ROLLING = (
    Metric("perplexity", "lower", 1.0, None, None, "per token", derived=("exp", "nll")),
    Metric("nll", "lower", 0.0, None, None, "nats per token"),
    Metric("bits_per_byte", "lower", 0.0, None, None, "bits per byte"),
    Metric("word_perplexity", "lower", 1.0, None, None, "per word", derived=("exp", "nats_per_word")),
    Metric("nats_per_word", "lower", 0.0, None, None, "nats per word"),
)


def entries(word: str) -> tuple[list[Entry], list[str]]:
    """See `ropebench.lm_harness.found`."""
    name, *params = word.strip().removeprefix("lm_eval")[1:].split(":")
    made = [Entry("task", f"lm_eval/{one.name}", task_of(one), one.origin, one.code) for one in sources(name)]
    return made, [":".join([entry.name, *params]) for entry in made]


def task_of(of: Source) -> type[Task]:
    """The ropebench task of one lm-eval task. A class each, since a task is found by its class."""
    plain = config_of(of, functions=False)
    kind = plain.get("output_type", "generate_until")
    rolls = kind == "loglikelihood_rolling"

    @dataclass(frozen=True)
    class LmEval(Task):
        name, version = f"lm_eval/{of.name}", 1
        metrics = ROLLING if rolls else (Metric("score", "higher", chance=None),)  # an instance has its own
        scorer, default_n, chat = "token_nll" if rolls else "lm_eval", 100, not rolls
        minimum_length = 16
        summary, source = f"lm-eval's {of.name} ({kind})", of.origin
        of_lm_eval: ClassVar[Source] = of

        num_fewshot: int | None = None  # default: the task's own
        room: int | None = None  # tokens that generated samples leave free, where lm-eval leaves too few
        data_sha256: str | None = None
        offline: bool = field(default=False, compare=False)  # nothing is fetched

        @property
        def params(self) -> dict[str, Any]:
            """As of every task; and lm-eval's version, since its prompts and scores are lm-eval's."""
            return {**super().params, "lm_eval": VERSION}

        def variant_name(self) -> str:
            return "" if self.num_fewshot is None else f"{self.num_fewshot}-shot"

        def default_lengths(self, usual: Sequence[int]) -> Sequence[int]:
            """The longest alone, where the data are what they are whatever the length."""
            return usual if _sizes(of) else usual[-1:]

        def resolved(self, lengths: Sequence[int], corpus: Corpus | None = None) -> Task:
            """Fetches the data (generated ones excepted), whose hash becomes part of the cell; knows the metrics."""
            check(of, self.num_fewshot, self.room)
            with network(self.offline):
                found = None if _sizes(of) else data_sha256(of, self.num_fewshot)
                measured = () if rolls else measures_of(of, self.num_fewshot)
            made = replace(self, data_sha256=found)
            if self.data_sha256 not in (None, made.data_sha256):
                raise UsageError(f"{self.name}: its data have the SHA-256 {made.data_sha256}, not {self.data_sha256}")
            if measured:
                shown = [one.shown or one.metric for one in measured]
                hidden = [one.metric for one in measured if one.shown]
                object.__setattr__(made, "metrics", (*shown, *hidden))
            return made

        def examples(self, length: int, encoder: Encoder, seed: int, corpus: Corpus | None = None) -> Iterator[Example]:
            """lm-eval's documents, in its order, with its worked examples."""
            with network(self.offline):
                if _sizes(of):
                    task = sized(of, self.num_fewshot, length - (self.room or 0), encoder.tokenizer, seed)
                else:
                    task = loaded(of, self.num_fewshot)
            task = copy.copy(task)  # worked examples are drawn one after the other, by this stream alone
            if hasattr(task, "sampler"):
                task.sampler = copy.copy(task.sampler)
            task.set_fewshot_seed(1234 + seed)
            for index, doc in enumerate(task.eval_docs):
                example = ask(task, doc, index, encoder, length)
                if example.tokens > length:
                    example = replace(example, skip=f"needs {example.tokens} of {length} tokens")
                    if index == 0 and _sizes(of):
                        raise UsageError(
                            f"{self.name}: lm-eval made a sample for {length} tokens that needs {example.tokens} with "
                            f"its answer, and would cut it; write {self.name.replace('/', ':', 1)}:room="
                            f"{example.tokens - length + (self.room or 0) + 16}"
                        )
                elif not example.targets and _sizes(of):  # only the question fits, and lm-eval divides by its answers
                    raise UsageError(
                        f"{self.name}: lm-eval made a sample of {length} tokens without an answer; give a longer length"
                    )
                yield example

        def score(self, example: Example, output: Output) -> dict[str, float]:
            assert isinstance(example, Asked)
            if rolls:
                return per_token(example, output)
            given = example.answers(output)
            found = {}
            for one in measures_of(of, self.num_fewshot):
                size = example.doc.get("max_length") if isinstance(example.doc, dict) else None
                value = value_of(one, given[one.filter], size)
                if value is not None:
                    found[one.metric.name] = value
            return found

    return LmEval


def per_token(example: Example, output: Output) -> dict[str, float]:
    """Likelihood per token, word and byte of the scored text."""
    total = sum(float(value) for part in output.nll for value in part)
    size = example.meta
    return {
        "nll": total / size["tokens_scored"],
        "nats_per_word": total / size["words"],
        "bits_per_byte": total / size["bytes"] / math.log(2),
    }


def check(of: Source, num_fewshot: int | None, room: int | None) -> None:
    """Raise UsageError for a task that cannot be run here, and for parameters it does not take."""
    config, name = config_of(of, functions=False), f"lm_eval/{of.name}"
    if config.get("unsafe_code"):
        raise UsageError(f"{name}: runs code that the model has written; ropebench does not")
    if config.get("doc_to_image") or config.get("doc_to_audio"):
        raise UsageError(f"{name}: asks about images or sound; ropebench runs text only")
    if num_fewshot is not None and (num_fewshot < 0 or config.get("num_fewshot") == 0 != num_fewshot):
        fixed = "fixed at 0 by the task" if num_fewshot > 0 else "must be at least 0"
        raise UsageError(f"{name}: num_fewshot={num_fewshot}: {fixed}")
    if room is not None and not _sizes(of):
        raise UsageError(f"{name}: room={room}: its samples are not made to a length; leave it out")
    if room is not None and room < 0:
        raise UsageError(f"{name}: room={room}: must be at least 0 tokens")


def _custom_source(of: Source) -> str:
    """The file of a task's function that makes its data set, as text."""
    where = config_of(of, functions=False).get("custom_dataset")  # …/folder/module.function
    file = Path(str(where).rpartition(".")[0] + ".py")
    return file.read_text(encoding="utf-8") if where and file.is_file() else ""


@lru_cache(maxsize=256)
def _sizes(of: Source) -> bool:
    """Whether a task's samples are made, or chosen, by length."""
    return "max_seq_lengths" in _custom_source(of)


@lru_cache(maxsize=32)
def loaded(of: Source, num_fewshot: int | None) -> Any:
    """lm-eval's task over its own data. Raises UsageError where they cannot be had."""
    return _build(of, num_fewshot, {})


@lru_cache(maxsize=16)
def _sized(of: Source, num_fewshot: int | None, size: int, tokenizer: Any, seed: int) -> Any:
    if "get_tokenizer" not in _custom_source(of):  # a data set that has one part per length, named 4k, 8k …
        if size % 1024:
            raise UsageError(f"lm_eval/{of.name}: its lengths are multiples of 1024 tokens, and {size} is none")
        return _build(of, num_fewshot, {"max_seq_lengths": f"{size // 1024}k"})
    rows: Rows = generated(of, size, tokenizer, seed)
    splits = {name: datasets.Dataset.from_list(part) for name, part in rows.items()}
    return _build(of, num_fewshot, {}, custom_dataset=lambda **_: splits)


def sized(of: Source, num_fewshot: int | None, size: int, tokenizer: Any, seed: int) -> Any:
    """lm-eval's task over samples of `size` tokens. Raises UsageError where it makes none."""
    if size < 1:
        raise UsageError(f"lm_eval/{of.name}: room leaves no token for the prompt")
    return _sized(of, num_fewshot, size, tokenizer, seed)


def _build(of: Source, num_fewshot: int | None, metadata: dict[str, Any], **more: Any) -> Any:
    name = f"lm_eval/{of.name}"
    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # its advice on settings that are not the user's
    datasets.disable_progress_bars()
    try:
        config = {**config_of(of, functions=True), **more}
        with redirect_stdout(StringIO()):  # what lm-eval prints there is none of a command's answer
            (task,) = TaskManager(include_defaults=False, metadata=metadata).load([config])["tasks"].values()
            next(iter(task.eval_docs))
    except Exception as error:  # YAML, Python files, the hub's clients and data sets raise anything
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        where = config_of(of, functions=False).get("dataset_path")
        raise UsageError(
            f"{name}: lm-eval cannot set it up ({type(error).__name__}: {first[:300]})"
            + (f"; its data set is {where}: fetch it while there is a network, or leave the task out" if where else "")
        ) from None
    missing = [k for k, fn in getattr(task, "_metric_fn_list", {}).items() if fn is None]
    if missing and not task.config.process_results:
        raise UsageError(f"{name}: its metric {missing[0]!r} is not part of lm-eval, and cannot be fetched")
    if num_fewshot is not None:
        task.set_config("num_fewshot", num_fewshot)
    elif task.get_config("num_fewshot") is None:
        task.set_config("num_fewshot", 0)
    return task


@lru_cache(maxsize=256)
def data_sha256(of: Source, num_fewshot: int | None) -> str:
    """Of a task's documents, in order."""
    total = sha256()
    for doc in loaded(of, num_fewshot).eval_docs:
        total.update(canonical(text_of(doc)).encode() + b"\n")
    return total.hexdigest()


@lru_cache(maxsize=256)
def measures_of(of: Source, num_fewshot: int | None) -> tuple[Measure, ...]:
    """A task's measures. Raises UsageError where it has none."""
    config = config_of(of, functions=True)
    if _sizes(of):
        aggregation, higher = declared(config)
        filters = [one["name"] for one in config.get("filter_list") or ()] or ["none"]
    else:
        task = loaded(of, num_fewshot)
        aggregation, higher = task.aggregation(), task.higher_is_better()
        filters = [one.name for one in task._filters]
    choices = config.get("doc_to_choice")
    chance = 1 / len(choices) if isinstance(choices, list) and config.get("output_type") == "multiple_choice" else None
    found, left = measures(aggregation, higher, filters, chance, _sizes(of))
    if not found:
        raise UsageError(
            f"lm_eval/{of.name}: its metrics ({', '.join(left) or 'none'}) are worked out over all samples at once; "
            "ropebench keeps a number per sample and cannot run it: use `ropebench lm-eval` for this task"
        )
    return tuple(found)

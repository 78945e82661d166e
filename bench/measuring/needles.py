"""Needles at several depths of one haystack: ropebench's shared beginnings against a refill per depth."""

from __future__ import annotations

import statistics
from functools import partial

from measuring import plain
from measuring.figure import AnswersDiffer, Figure
from measuring.operations import gone_on_ratio
from measuring.sizes import Sizes, some
from measuring.subject import Run, Subject, seconds


def asked(sizes: Sizes) -> dict[str, object]:
    return {"tasks": (f"niah:depths={sizes.depths}",), "lengths": (sizes.needle_length,), "n": sizes.depths}


def ours(subject: Subject, sizes: Sizes) -> Run:
    """All depths, through plan, runner and records."""
    return subject.run(**asked(sizes))


def needles(subject: Subject, sizes: Sizes) -> list[Figure]:
    """The plain refills are spread over the depths, half of them before ours and half after; all prompts are equally
    long, so their mean stands for each. Raises AnswersDiffer where a text is not that of the refill."""
    (cell,) = subject.plan(**asked(sizes)).cells
    examples = subject.examples(cell)
    by_depth = sorted(range(len(examples)), key=lambda i: examples[i].meta["depth"])
    chosen = [by_depth[i] for i in some(sizes.refills, len(by_depth))]
    answers: dict[int, tuple[float, tuple[str, float]]] = {}

    def refill(some: list[int]) -> None:
        for index in some:
            answers[index] = seconds(partial(plain.answer, subject.model, subject.loaded.tokenizer, examples[index]))

    refill(chosen[::2])
    run = ours(subject, sizes)
    refill(chosen[1::2])
    rows = {row["index"]: row["output"] for row in run.rows}
    for index, (_, (text, _)) in answers.items():
        if rows[index] != text:
            raise AnswersDiffer(f"sample {index}: {rows[index]!r} is not {text!r}, the text after a refill")
    slow = statistics.mean(spent for spent, _ in answers.values()) * len(examples)
    filling = statistics.mean(first for _, (_, first) in answers.values()) * len(examples)
    shared = gone_on_ratio(subject.model.config, [example.ids for example in examples])
    return [
        Figure(
            "niah",
            f"NIAH, {sizes.depths} depths at {sizes.needle_length}: shared beginnings ÷ a refill per depth",
            run.seconds / slow,
            0.75,
            row={
                "ratio": run.seconds / slow,
                "ours_seconds": run.seconds,
                "plain_seconds": slow,
                "plain_prefill_seconds": filling,
                "plain_depths_timed": len(answers),
                "recall": run.records[0]["outcome"]["metrics"]["recall"]["value"],
                "by_operations": (shared * filling + slow - filling) / slow,  # new tokens cost the same either way
                "prefill_by_operations": shared,
            },
        )
    ]

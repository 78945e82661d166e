"""Perplexity at many lengths: one pass of ropebench against a forward per length, and against one bare forward."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from measuring import plain
from measuring.figure import AnswersDiffer, Figure
from measuring.operations import operations, total
from measuring.sizes import Sizes
from measuring.subject import Run, Subject, seconds

NEAR = 1e-4  # nats per token


def ours(subject: Subject, sizes: Sizes) -> Run:
    """All lengths of one document, through plan, runner and records."""
    run: Run = subject.run(tasks=("proofpile",), lengths=tuple(sizes.lengths), n=1)
    return run


def perplexity(subject: Subject, sizes: Sizes) -> list[Figure]:
    """Two figures from the same passes of ours, each between two bare forwards, and all between the plain ones.

    Raises AnswersDiffer where the NLL at a length is not that of its own forward pass.
    """
    lengths = sorted(sizes.lengths)
    cells = subject.plan(tasks=("proofpile",), lengths=tuple(lengths), n=1).cells
    longest = max(cells, key=lambda cell: cell.length)
    ids = subject.examples(longest)[0].windows[0].ids
    timed: dict[int, tuple[float, float]] = {}  # seconds and NLL

    def run_plain(some: Sequence[int]) -> None:
        for length in some:
            timed[length] = seconds(partial(plain.nll, subject.model, ids[:length]))

    chosen = lengths[:: -sizes.every]
    run_plain(chosen[::2])  # the other half comes after ours, so that a drift of the machine is in both
    bare, runs = [seconds(lambda: plain.bare(subject.model, ids))[0]], []
    for _ in range(sizes.rounds):
        runs.append(ours(subject, sizes))
        bare.append(seconds(lambda: plain.bare(subject.model, ids))[0])
    run_plain(chosen[1::2])
    found = {r["condition"]["length"]: r["outcome"]["metrics"]["nll"]["value"] for r in runs[0].records}
    worst = max(abs(value - found[length]) for length, (_, value) in timed.items())
    if not worst <= NEAR:
        raise AnswersDiffer(f"one pass and separate passes differ by {worst:.2e} nats per token")
    spent, slow = (
        statistics.median(run.seconds for run in runs),
        all_lengths({n: one[0] for n, one in timed.items()}, lengths),
    )
    shares = [run.seconds * 2 / (a + b) for run, a, b in zip(runs, bare, bare[1:], strict=False)]
    config, top = subject.model.config, max(lengths)
    pass_operations = total(config, top)
    where = f"{len(lengths)} lengths from {min(lengths)} to {top}"
    return [
        Figure(
            "perplexity",
            f"perplexity at {where}: seconds of one forward per length ÷ those of one pass",
            slow / spent,
            8.0,
            "≥",
            row={
                "ratio": spent / slow,
                "ours_seconds": spent,
                "plain_seconds": slow,
                "plain_lengths_timed": len(timed),
                "largest_difference_nats": worst,
                "by_operations": sum(total(config, length) for length in lengths) / pass_operations,
            },
        ),
        Figure(
            "bare",
            f"the same pass ÷ one bare model.model(…) forward at {top}",
            statistics.median(shares),
            1.10,
            row={
                "ratio": statistics.median(shares),
                "ours_seconds": spent,
                "plain_seconds": statistics.median(bare),
                "rounds": len(runs),
                "by_operations": pass_operations / (pass_operations - operations(config, top)["lm_head"]),
            },
        ),
    ]


def all_lengths(timed: dict[int, float], lengths: Sequence[int]) -> float:
    """Seconds over all lengths: those timed, and for the others a fit, since a pass costs a + b·length + c·length²."""
    import numpy as np

    missing = [length for length in lengths if length not in timed]
    if not missing:
        return sum(timed.values())
    scale = max(lengths)  # lengths in thousands squared would make the fit ill-conditioned
    x: Any = np.array([*timed]) / scale
    fit = np.polyfit(x, np.array([*timed.values()]), min(2, len(timed) - 1))
    return sum(timed.values()) + float(np.polyval(fit, np.array(missing) / scale).sum())

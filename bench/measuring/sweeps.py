"""Nine methods in one sweep: how often the weights are loaded, and what is spent outside the model's forward."""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

from measuring import plain
from measuring.figure import AnswersDiffer, Figure
from measuring.perplexity import NEAR
from measuring.sizes import Sizes, some
from measuring.subject import Run, Subject, check, seconds

METHODS = ("pi", "ntk", "ntk_by_parts", "yarn", "yarn_paper", "mrrope_uni", "mrrope_pro", "dynamic_ntk")  # and none


def ours(subject: Subject, sizes: Sizes) -> Run:
    """The sweep on a model that is loaded already, for a profile."""
    lengths, target = sizes.sweep_lengths, 2 * subject.loaded.card.geometry.trained_length
    return subject.run(tasks=("proofpile",), methods=METHODS, lengths=lengths, n=1, target=target)


@dataclass
class _Watch:
    """What happened during a command: loads, their seconds, and the seconds inside outermost calls of a module."""

    loads: int = 0
    load_seconds: float = 0.0
    forward_seconds: float = 0.0
    run_seconds: float = 0.0
    run_forward_seconds: float = 0.0
    depth: int = 0
    began: float = 0.0

    def enter(self, *_: Any) -> None:
        if self.depth == 0:
            self.began = time.perf_counter()
        self.depth += 1

    def leave(self, *_: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.forward_seconds += time.perf_counter() - self.began


@contextmanager
def watched() -> Iterator[_Watch]:
    """Count loads of weights, and time the runner and every outermost module call, while inside."""
    from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
    from transformers import AutoModelForCausalLM

    import ropebench.run

    watch, load, run_cells = _Watch(), AutoModelForCausalLM.from_pretrained, ropebench.run.run_cells

    def counted(*given: Any, **named: Any) -> Any:
        watch.loads += 1
        spent, result = seconds(lambda: load(*given, **named))
        watch.load_seconds += spent
        return result

    def timed(*given: Any, **named: Any) -> Any:
        before = watch.forward_seconds
        spent, result = seconds(lambda: run_cells(*given, **named))
        watch.run_seconds += spent
        watch.run_forward_seconds += watch.forward_seconds - before
        return result

    hooks = (register_module_forward_pre_hook(watch.enter), register_module_forward_hook(watch.leave, always_call=True))
    try:
        with (
            patch.object(AutoModelForCausalLM, "from_pretrained", counted),
            patch.object(ropebench.run, "run_cells", timed),
        ):
            yield watch
    finally:
        for hook in hooks:
            hook.remove()


def sweeps(subject: Subject, sizes: Sizes) -> list[Figure]:
    """The whole command `ropebench run` in this process, against a fresh load and a pass per method and length.

    Raises AnswersDiffer where a stored NLL is not that of a fresh model with the stored table in it.
    """
    lengths = sizes.sweep_lengths
    with tempfile.TemporaryDirectory() as folder, watched() as watch:
        whole, records = seconds(lambda: commanded(subject, lengths, folder))
    check(records)
    of_method: dict[str, list[Any]] = {}
    for record in records:
        of_method.setdefault(record["method"]["name"], []).append(record)
    (longest,) = subject.plan(tasks=("proofpile",), lengths=(max(lengths),), n=1).cells
    ids = subject.examples(longest)[0].windows[0].ids
    names = [*of_method]
    chosen, worst, slow = some(sizes.loads, len(names)), 0.0, 0.0
    for index in chosen:
        spent, apart = seconds(partial(fresh, subject, of_method[names[index]], ids))
        worst, slow = max(worst, apart), slow + spent * len(names) / len(chosen)
    if not worst <= NEAR:
        raise AnswersDiffer(f"a fresh model with the stored table differs by {worst:.2e} nats per token")
    outside = 1 - watch.run_forward_seconds / watch.run_seconds
    at = " and ".join(map(str, lengths))
    return [
        Figure("loads", f"{len(names)} methods at {at}: loads of the weights", watch.loads, 1, unit="", row={
            "load_seconds": watch.load_seconds, "records": len(records),
        }),
        Figure(
            "outside",
            f"{len(names)} methods at {at}: share of the run, from the first cell to the last record, outside the "
            "model's forward",
            outside, 0.03, unit="%",
            row={
                "ratio": whole / slow, "ours_seconds": whole, "plain_seconds": slow, "plain_methods_timed": len(chosen),
                "run_seconds": watch.run_seconds, "forward_seconds": watch.run_forward_seconds,
                "load_seconds": watch.load_seconds, "whole_command_outside": 1 - watch.forward_seconds / whole,
                "largest_difference_nats": worst,
            },
        ),
    ]  # fmt: skip


def commanded(subject: Subject, lengths: tuple[int, ...], folder: str) -> list[Any]:
    """`ropebench run` with all methods; its records. Raises RuntimeError with what it said where it fails."""
    from ropebench.cli import main
    from ropebench.store import read

    words = [
        "run",
        "--model",
        subject.word,
        "--method",
        ",".join(METHODS),
        "--tasks",
        "proofpile",
        "--docs",
        subject.docs,
    ]
    words += ["--lengths", ",".join(map(str, lengths)), "--n", "1", "--device", "cpu", "--dtype", "float32"]
    words += ["--target", str(2 * subject.loaded.card.geometry.trained_length), "--results", folder]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(words)
    if code:
        raise RuntimeError(f"ropebench run ended with {code}: {said.getvalue().strip()[-300:]}")
    return read(folder)


def fresh(subject: Subject, records: list[Any], ids: tuple[int, ...]) -> float:
    """Load the weights, put each record's table in and run its length: the largest difference to its stored NLL."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(subject.loaded.card.path, dtype=torch.float32)
    model.eval()
    rotary, worst = model.base_model.rotary_emb, 0.0
    for record in records:
        rotary.inv_freq = torch.tensor(record["method"]["inv_freq"], dtype=torch.float32)
        rotary.attention_scaling = record["method"]["attention_factor"]
        value = plain.nll(model, ids[: record["condition"]["length"]])
        worst = max(worst, abs(value - record["outcome"]["metrics"]["nll"]["value"]))
    return worst

"""Training the bundled model: seeded, and resumable bit for bit from its last checkpoint.

A run's folder holds `tokenizer.json` (made first), `log.jsonl` (one line every few steps), `checkpoint.safetensors`
(weights and both moments of AdamW; its header says what it belongs to) and, at the end, `model/` as transformers reads
it. A checkpoint is written beside the old one and then takes its place, so a killed run loses minutes at most. The same
number of threads on the same machine gives the same bits.
"""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from ropebench.errors import UsageError
from ropebench.lens.tiny import vocabulary
from ropebench.lens.tiny.prose import Prose
from ropebench.lens.tiny.recipe import FIRST_TRAINING_SEED, Recipe, Shape
from ropebench.lens.tiny.rows import ANSWER, OTHER, PROSE, Row, Rows
from ropebench.lens.tiny.sources import Sources

LOG_EVERY = 25  # steps
TASK_TEXTS = 300  # samples of each task that the vocabulary sees
MOMENTS = ("exp_avg", "exp_avg_sq")

Say = Callable[[str], None]
Sums = dict[str, tuple[float, int]]  # by name, a sum and over how many


@dataclass(frozen=True)
class Batch:
    """ids (rows, width), how much each counts (same shape, float32, 0 for padding and what nothing predicts), and which
    are answers."""

    ids: torch.Tensor
    weights: torch.Tensor
    answers: torch.Tensor
    kinds: tuple[str, ...]


def batch_of(rows: list[Row], recipe: Recipe) -> Batch:
    ids, roles = (torch.from_numpy(np.stack([getattr(row, name) for row in rows])) for name in ("ids", "roles"))
    table = torch.zeros(3)
    for role, weight in ((OTHER, recipe.other_weight), (PROSE, recipe.prose_weight), (ANSWER, recipe.answer_weight)):
        table[role] = weight
    weights = table[roles.long()]
    for n, row in enumerate(rows):
        weights[n, row.filled :] = 0.0
    weights[:, 0] = 0.0
    return Batch(ids, weights, roles == ANSWER, tuple(row.kind for row in rows))


def config_of(shape: Shape) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.window,
        rope_parameters={"rope_type": "default", "rope_theta": shape.theta},
        initializer_range=shape.spread,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=None,
    )


class Run:
    """Weights, optimizer and place of a run. `step` is the number of steps that are done."""

    def __init__(self, recipe: Recipe, rows: Rows) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe, self.rows, self.step, self.tokens = recipe, rows, 0, 0
        self.model: Any = LlamaForCausalLM(config_of(recipe.shape)).train()
        self.parameters: dict[str, torch.Tensor] = dict(self.model.named_parameters())
        groups = [
            {"params": [p for p in self.parameters.values() if p.dim() > 1], "weight_decay": recipe.weight_decay},
            {"params": [p for p in self.parameters.values() if p.dim() == 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=recipe.rate, betas=recipe.betas, fused=True)

    def batch(self) -> Batch:
        stage, first = self.recipe.place(self.step)
        return batch_of([self.rows.row(stage, first + n) for n in range(stage.batch)], self.recipe)

    def advance(self) -> Sums:
        """One step: its losses (nats per token), and the share of answers that are right from end to end."""
        batch = self.batch()
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate_at(self.step)
        logits = self.model(input_ids=batch.ids, use_cache=False).logits[:, :-1]
        targets, weights = batch.ids[:, 1:], batch.weights[:, 1:]
        nll = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
        loss = (nll * weights).sum() / weights.sum()
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.recipe.clip)
        self.optimizer.step()
        self.step, self.tokens = self.step + 1, self.tokens + batch.ids.numel()
        right = (logits.detach().argmax(-1) == targets).numpy()
        return measured(batch, nll.detach().numpy(), right)

    def save(self, file: Path, about: dict[str, str]) -> None:
        tensors = {f"weight.{name}": p.detach() for name, p in self.parameters.items()}
        for name, parameter in self.parameters.items():
            for moment in MOMENTS:
                tensors[f"{moment}.{name}"] = self.optimizer.state[parameter][moment]
        state = {"step": self.step, "tokens": self.tokens, "steps": self.recipe.steps}
        beside = file.with_suffix(".new")
        save_file(tensors, beside, {"state": json.dumps(state), **about})
        os.replace(beside, file)

    def load(self, file: Path, about: dict[str, str]) -> None:
        """Go on from a checkpoint. Raises UsageError when it is another run's."""
        with safe_open(file, "pt") as stored:
            header = stored.metadata() or {}
            different = [name for name, value in about.items() if header.get(name) != value]
            if different:
                raise UsageError(
                    f"the checkpoint in {file.parent.name!r} was made with another {', '.join(different)}; train into "
                    "another folder, or go on with the version that it was made with"
                )
            state = json.loads(header["state"])
            before = replace(self.recipe, steps=state["steps"]).decay_begins
            if state["steps"] != self.recipe.steps and state["step"] > min(before, self.recipe.decay_begins):
                raise UsageError(
                    f"the checkpoint is at step {state['step']}, where the learning rate already falls towards "
                    f"{state['steps']} steps; --steps can no longer be changed to {self.recipe.steps}"
                )
            self.step, self.tokens = state["step"], state["tokens"]
            with torch.no_grad():
                for name, parameter in self.parameters.items():
                    parameter.copy_(stored.get_tensor(f"weight.{name}"))
                    moments = {moment: stored.get_tensor(f"{moment}.{name}") for moment in MOMENTS}
                    self.optimizer.state[parameter] = {"step": torch.tensor(float(self.step)), **moments}


def measured(batch: Batch, nll: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> Sums:
    """Sums over a step, by kind of row: [nats, tokens] of answers and of natural text, [right, number] of answers."""
    found: Sums = {}
    answers = batch.answers.numpy()[:, 1:]
    for n, kind in enumerate(batch.kinds):
        if kind == "prose":
            add(found, "prose", float(nll[n].sum()), nll[n].size)
            continue
        add(found, f"{kind}.nll", float(nll[n][answers[n]].sum()), int(answers[n].sum()))
        edges = np.flatnonzero(np.diff(np.concatenate([[0], answers[n].astype(np.int8), [0]])))
        spans = list(zip(edges[::2], edges[1::2], strict=True))
        add(found, f"{kind}.exact", float(sum(right[n][a:b].all() for a, b in spans)), len(spans))
    return found


def add(sums: Sums, name: str, value: float, count: int) -> None:
    old = sums.get(name, (0.0, 0))
    sums[name] = (old[0] + value, old[1] + count)


def tokenizer_of(recipe: Recipe, prose: Prose) -> Tokenizer:
    texts = Sources().texts(FIRST_TRAINING_SEED + recipe.seed, TASK_TEXTS)
    return vocabulary.train([*prose.train.split("\n\n"), *texts], recipe.shape.vocabulary)


def train(
    recipe: Recipe, text: Callable[[], Prose], folder: Path, resume: bool, say: Say, until: int | None = None,
    every: float = 180.0, threads: int | None = None,
) -> Run:  # fmt: skip
    """Train to the recipe's end (or to step `until`), writing a checkpoint every so many seconds. `text` reads the
    natural text; it takes a while, so what is wrong with the folder is said first.

    Raises UsageError for a folder that holds a run when `resume` is not given, and for one that does not when it is.
    """
    for name, value in (("--steps", recipe.steps), ("--threads", threads)):
        if value is not None and value < 1:
            raise UsageError(f"{name} {value} must be at least 1")
    checkpoint, log = folder / "checkpoint.safetensors", folder / "log.jsonl"
    if resume and not checkpoint.is_file():
        raise UsageError(f"--resume: folder {folder.name!r} holds no checkpoint; leave --resume out to begin a run")
    if not resume and any(path.exists() for path in (checkpoint, log)):
        raise UsageError(f"folder {folder.name!r} holds a run already; go on with --resume, or give another --out")
    folder.mkdir(parents=True, exist_ok=True)
    if threads is not None:
        torch.set_num_threads(threads)
    prose = text()
    tokenizer = tokenizer_of(recipe, prose)
    vocabulary.save(tokenizer, folder, recipe.shape.window)
    run = Run(recipe, Rows(tokenizer, prose.train, recipe.seed))
    about = {"recipe": recipe.sha256, "natural text": prose.sha256, "tokenizer": vocabulary.sha256(tokenizer)}
    if resume:
        run.load(checkpoint, about)
    kept = [line for line in lines_of(log) if json.loads(line)["step"] <= run.step]
    log.write_text("".join(kept), encoding="utf-8")
    last = recipe.steps if until is None else min(until, recipe.steps)
    saved, begun, tokens = time.monotonic(), time.monotonic(), run.tokens
    sums: Sums = {}
    while run.step < last:
        for name, (amount, number) in run.advance().items():
            add(sums, name, amount, number)
        if run.step % LOG_EVERY == 0:
            line = {"step": run.step, "tokens": run.tokens, "rate": recipe.rate_at(run.step - 1)}
            line |= {name: round(value / count, 4) for name, (value, count) in sorted(sums.items()) if count}
            with log.open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(line) + "\n")
            speed = (run.tokens - tokens) / (time.monotonic() - begun)
            say(" ".join(f"{name} {value}" for name, value in line.items()) + f" tokens/s {speed:.0f}")
            sums, begun, tokens = {}, time.monotonic(), run.tokens
        if time.monotonic() - saved >= every and run.step % LOG_EVERY == 0:
            run.save(checkpoint, about)
            saved = time.monotonic()
    run.save(checkpoint, about)
    if run.step == recipe.steps:
        write_model(run, tokenizer, folder / "model")
    return run


def lines_of(file: Path) -> Iterator[str]:
    if file.is_file():
        yield from file.read_text(encoding="utf-8").splitlines(keepends=True)


def write_model(run: Run, tokenizer: Tokenizer, folder: Path) -> None:
    """The model as transformers reads it, in bfloat16: half the size, and the loss moves in the fourth digit."""
    folder.mkdir(parents=True, exist_ok=True)
    copy.deepcopy(run.model).to(torch.bfloat16).save_pretrained(folder)
    vocabulary.save(tokenizer, folder, run.recipe.shape.window)

"""Training a small RoPE model on drawn batches, and looking at what it has learnt. All on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaForCausalLM

from ropebench.apply import live
from ropebench.lens import spectrum
from ropebench.lens.tiny.recipe import Shape
from ropebench.lens.tiny.train import config_of
from ropebench.lens.watching import pair_channels
from ropebench.record import Json, digest
from ropebench.stats import from_stderr

TRAINING, HELD_OUT = 0, 1  # first word of a random stream's seed
LOOKED_AT = 64  # sequences that a spectrum is the mean of


@dataclass(frozen=True)
class Batch:
    """`ids` are fed; `targets[:, t]` is to be predicted from ids before t, and counts where `scored[:, t]`. All of
    shape (rows, tokens); a target need not stand in the ids."""

    ids: NDArray[np.int64]
    targets: NDArray[np.int64]
    scored: NDArray[np.bool_]


Draw = Callable[[np.random.Generator, int], Batch]  # a stream and a number of rows


@dataclass(frozen=True)
class Training:
    """`tokens` a step; the rate rises over `warmup` steps and falls along half a cosine to a tenth."""

    steps: int = 300
    tokens: int = 4096
    rate: float = 3e-3
    warmup: int = 50
    weight_decay: float = 0.1

    def rate_at(self, step: int) -> float:
        falling = 0.1 + 0.9 * (1 + math.cos(math.pi * step / self.steps)) / 2
        return self.rate * min(1.0, (step + 1) / self.warmup) * falling


def own_seed(setting: Mapping[str, Any]) -> int:
    """The number that a model's weights and data are drawn from: every setting has its own, so that models of one
    `seed` but of several sizes have nothing in common, and a fit may take all of them as independent."""
    return int(digest(setting, 12), 16)


def stream(use: int, seed: int, part: int = 0) -> np.random.Generator:
    """The random stream of an `own_seed` for training or for held-out data; uses and parts share nothing."""
    return np.random.default_rng([use, seed, part])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """torch's own stream within, as it was before outside."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def untrained(shape: Shape, seed: int) -> Any:
    """A model with first weights of its seed."""
    with seeded(seed):
        return LlamaForCausalLM(config_of(shape))


def train(model: Any, training: Training, seed: int, draw: Draw) -> float:
    """Train in place by AdamW; returns the mean loss of the last tenth of the steps, nats per scored token."""
    rng, losses = stream(TRAINING, seed), list[float]()
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=training.weight_decay)
    rows = max(training.tokens // int(model.config.max_position_embeddings), 1)
    model.train()
    for step in range(training.steps):
        for group in optimizer.param_groups:
            group["lr"] = training.rate_at(step)
        batch = draw(rng, rows)
        nll, _ = _scores(model, batch)
        loss = nll.mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    model.eval()
    return float(np.mean(losses[-max(training.steps // 10, 1) :]))


def _scores(model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and rightness of each scored target, flat, in the order of the batch."""
    logits = model(input_ids=torch.from_numpy(batch.ids), use_cache=False).logits[:, :-1]
    scored = torch.from_numpy(batch.scored[:, 1:])
    logits, targets = logits[scored], torch.from_numpy(batch.targets[:, 1:])[scored]
    return torch.nn.functional.cross_entropy(logits, targets, reduction="none"), logits.argmax(-1) == targets


@torch.inference_mode()
def score(model: Any, batch: Batch) -> Json:
    """Mean loss (nats) over scored targets, the share that is the likeliest token, and their number."""
    nll, right = _scores(model, batch)
    return {"nll": float(nll.double().mean()), "accuracy": float(right.double().mean()), "n": int(right.numel())}


def look(model: Any, ids: NDArray[np.int64]) -> Json:
    """The frequency use of a model over sequences of ids (rows, tokens), as `ropebench.lens.spectrum` defines it.

    `theta_eff` by variant; shares, heads, concentration and unevenness of the default one. `prompts`: the interval of
    the effective frequency over sequences, and how much a sequence's spectrum has in common with the mean.
    """
    channels, inv_freq = pair_channels(model), live(model).inv_freq
    several = [spectrum.energies(model, row, channels) for row in ids[:LOOKED_AT].tolist()]
    found = spectrum.mean_energies(several)
    default = spectrum.shares(found)
    heads = spectrum.head_shares(found["causal/mean_square"])
    own = [spectrum.shares(one) for one in several]
    logs = np.log([spectrum.effective_frequency(one, inv_freq) for one in own])
    stderr = float(logs.std(ddof=1) / math.sqrt(len(logs))) if len(logs) > 1 else None
    spread = from_stderr(float(logs.mean()), stderr, len(logs), len(logs))
    return {
        "inv_freq": inv_freq.tolist(),
        "shares": default.tolist(),
        "theta_eff": {
            name: spectrum.effective_frequency(spectrum.shares(found, name), inv_freq) for name in spectrum.VARIANTS
        },
        "heads": [[spectrum.effective_frequency(one, inv_freq) for one in layer] for layer in heads],
        "concentration": spectrum.concentration(default),
        "unevenness": spectrum.unevenness(default),
        "prompts": {
            "n": len(own),
            "low": None if spread.low is None else math.exp(spread.low),
            "high": None if spread.high is None else math.exp(spread.high),
            "similarity": float(np.mean([spectrum.similarity(one, default) for one in own])),
        },
    }


def learnt(
    setting: Mapping[str, Any], draw: Draw, held_out: Draw | None = None, rows: int | None = None
) -> tuple[Any, Json]:
    """Train the model of a setting (`shape`, `training`, `seed`); returns it with its spectra before and after, and its
    scores on held-out data (`rows` of them; about four steps' worth where not given)."""
    shape, training, seed = Shape(**setting["shape"]), Training(**setting["training"]), own_seed(setting)
    rows = max(4 * training.tokens // shape.window, 4) if rows is None else rows
    unseen = (held_out or draw)(stream(HELD_OUT, seed), rows)
    model = untrained(shape, seed).eval()
    before = look(model, unseen.ids)
    loss = train(model, training, seed, draw)
    about = {"initial": before, "spectrum": look(model, unseen.ids), "held_out": score(model, unseen)}
    return model, {**about, "train_nll": loss}

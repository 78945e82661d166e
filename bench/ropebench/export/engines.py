"""A method as overrides for vLLM and SGLang, with what each of them makes of it.

Neither reads `attention_factor` of a longrope block: both take `short_mscale` and `long_mscale`, and where these are
missing sqrt(1 + ln s/ln L), s = max_position_embeddings ÷ original_max_position_embeddings. A transformers config with
an attention factor of its own is therefore served with another one; the overrides give all three keys.
Read in the source of the releases named below; `tables` states their formula anew, in PyTorch.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np

from ropebench.errors import UsageError
from ropebench.export import Rotation
from ropebench.export.hf import Json, block

# Kinds whose rotary pairs lie side by side: both engines' longrope raises ValueError for them (is_neox_style=False).
INTERLEAVED = frozenset(
    "cohere cohere2 deepseek_v2 deepseek_v3 ernie4_5 ernie4_5_moe glm glm4 gptj llama4 llama4_text".split()
)


@dataclass(frozen=True)
class Engine:
    """`flag` takes the overrides, `length` the longest sequence. `apart`: short sequences are kept apart by a test of
    the positions at run time, which is avoided by a switch that lies at the target."""

    name: str
    release: str
    source: str
    serve: str
    flag: str
    length: str
    apart: bool
    notes: tuple[str, ...]


_MSCALE = (
    "attention factor: attention_factor is ignored; short_mscale and long_mscale multiply cos and sin, and without "
    "them sqrt(1 + ln s/ln L) would: both are given here"
)
_ROUNDED = "cos and sin are computed in float32 and stored in the model's dtype (bfloat16 keeps 8 bits of them)"

VLLM = Engine(
    "vllm", "0.33.0", "vllm/model_executor/layers/rotary_embedding/phi3_long_rope_scaled_rope.py",
    "vllm serve", "--hf-overrides", "--max-model-len", False,
    (
        _MSCALE,
        "short/long switch: none at run time; all sequences get the long factors where --max-model-len exceeds the "
        "trained window, else all the short ones; they are the same here",
        "without --max-model-len a longrope model is served up to its max_position_embeddings, or up to "
        "original_max_position_embeddings where the config itself has that key (vllm/config/model.py): it is given",
        _ROUNDED,
    ),
)  # fmt: skip
SGLANG = Engine(
    "sglang", "0.5.23", "sglang/srt/layers/rotary_embedding/rope_variant.py",
    "python -m sglang.launch_server --model-path", "--json-model-override-args", "--context-length", True,
    (
        _MSCALE,
        "short/long switch: by any(position > original_max_position_embeddings) over the tokens of each step, whatever "
        "the keys in the cache were turned by; and the token at exactly that position, decoded alone, is turned as if "
        "it were at position 0; so original_max_position_embeddings is set to the target here, and nothing switches",
        _ROUNDED,
    ),
)  # fmt: skip
BY_NAME = {engine.name: engine for engine in (VLLM, SGLANG)}


def overrides(engine: Engine, rotation: Rotation) -> Json:
    """The override of the engine's command line. Raises UsageError, with the reason, where it cannot express it."""
    config, name = rotation.card.config, rotation.card.id
    if rotation.switches:
        raise UsageError(
            f"method {rotation.method.name!r}: short and long sequences have different tables, and {engine.name} "
            f"{engine.release} does not choose between them by each sequence's own length "
            f"({engine.source}); export it with --to hf"
        )
    if getattr(config, "model_type", "") in INTERLEAVED:
        raise UsageError(
            f"{name}: models of type {config.model_type!r} turn neighbouring channels, and the longrope of "
            f"{engine.name} {engine.release} refuses that (is_neox_style=False)"
        )
    if hasattr(config, "get_text_config") and config.get_text_config() is not config:
        raise UsageError(
            f"{name}: the language model's settings lie in a part of the config (text_config), which the overrides of "
            f"{engine.name} {engine.release} would replace as a whole; write a config with --to hf, and serve a copy "
            "of the model's folder with it"
        )
    factor = float(rotation.long.attention_factor)
    attention = {"attention_factor": factor, "short_mscale": factor, "long_mscale": factor}
    slowdown = rotation.slowdown(rotation.long)
    return block(rotation, attention, config, slowdown, slowdown, rotation.target if engine.apart else 0)


def command(engine: Engine, rotation: Rotation, changes: Json) -> str:
    """The command line that serves the model so, for a POSIX shell."""
    card = rotation.card
    words = [card.path, engine.flag, json.dumps(changes), engine.length, str(rotation.target)]
    if card.spec.on_hub:
        words += ["--revision", card.revision]
    return f"{engine.serve} {shlex.join(words)}"


def tables(engine: Engine, changes: Json, rotary_dim: int, max_model_len: int, positions: Any) -> tuple[Any, Any]:
    """cos and sin, float32 of shape (positions, rotary_dim/2), that the engine's longrope turns these positions by,
    stated from reading its source: rows of the short table for the positions up to L, then rows of the long one up to
    max_position_embeddings, each row times its mscale; and the row that is picked for a position."""
    import torch

    rope, longest = changes["rope_parameters"], changes["max_position_embeddings"]
    switch = rope["original_max_position_embeddings"]
    s = longest / switch
    guessed = float(np.sqrt(1 + np.log(s) / np.log(switch))) if s > 1 else 1.0
    exponent = torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim

    positions = torch.as_tensor(positions)
    past = bool((positions > switch).any()) if engine.apart else max_model_len > switch
    row = positions + switch * past
    is_long = (row >= switch)[:, None]
    factors = torch.where(is_long, torch.tensor(rope["long_factor"]), torch.tensor(rope["short_factor"]))
    scale = torch.where(is_long, rope.get("long_mscale", guessed), rope.get("short_mscale", guessed))
    inv_freq = 1.0 / (factors * rope["rope_theta"] ** exponent)
    angles = (row[:, None] - switch * is_long).float() * inv_freq
    return angles.cos() * scale, angles.sin() * scale


def check(engine: Engine, rotation: Rotation, changes: Json) -> str:
    """Compare `tables` with the method's own table at positions over the whole length; says what was done.

    Raises RuntimeError where they differ by more than float32 angles do (relative 1e-6 of an angle)."""
    import torch

    dim, length = rotation.start.rotary_dim, rotation.target
    turns = rotation.long
    for positions in ([rotation.trained], [rotation.trained - 1, 1, 0], list(range(0, length, max(1, length // 512)))):
        cos, sin = tables(engine, changes, dim, length, positions)
        angles = torch.outer(torch.tensor(positions, dtype=torch.float64), torch.tensor(turns.inv_freq))
        within = 1e-6 * (1 + angles) * turns.attention_factor
        for ours, theirs in ((angles.cos(), cos), (angles.sin(), sin)):
            if bool(((ours * turns.attention_factor - theirs).abs() > within).any()):
                raise RuntimeError(f"the formula of {engine.name} gives another rotation than {rotation.label}")
    return (
        f"checked: by a re-statement in PyTorch of what {engine.source} of {engine.name} {engine.release} computes; "
        f"{engine.name} itself was not run"
    )

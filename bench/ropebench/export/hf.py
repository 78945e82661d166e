"""A method as a `rope_parameters` block that plain transformers reads: `longrope`, with the same factors twice.

What transformers does with it (modeling_rope_utils.py of 5.24): a pair's frequency is 1 / (factor_i · theta^(2i/d)),
with `short_factor` up to original_max_position_embeddings tokens and `long_factor` for longer inputs;
`attention_factor` multiplies cos and sin as it stands; `factor` would only serve to guess a missing attention_factor.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from ropebench.errors import UsageError
from ropebench.export import Rotation
from ropebench.geometry import Frequencies

Json = dict[str, Any]

NOTES = (
    "attention factor: multiplies cos and sin as given (attention_factor is explicit; nothing is derived from factor)",
    "short/long switch: transformers changes to long_factor past original_max_position_embeddings",
)
_OTHER_SCALINGS = ("rope_scaling", "rope_theta", "rotary_emb_base")  # of older layouts; the block replaces them


def patch(rotation: Rotation) -> Json:
    """The keys of the (text) config that change. Raises UsageError where the config cannot express the rotation."""
    config = _text(rotation.card.config)
    if rotation.short.attention_factor != rotation.long.attention_factor:
        raise UsageError(
            f"method {rotation.method.name!r}: its attention factor differs between short and long sequences, and "
            "transformers holds one for both"
        )
    short, long = rotation.slowdown(rotation.short), rotation.slowdown(rotation.long)
    return block(rotation, {"attention_factor": float(rotation.long.attention_factor)}, config, short, long)


def block(
    rotation: Rotation, attention: Json, config: Any, short: list[float], long: list[float], switch_at: int = 0
) -> Json:
    """`max_position_embeddings` and a complete block of rope_parameters: it replaces the checkpoint's own."""
    old = getattr(config, "rope_parameters", None) or {}
    share = old.get("partial_rotary_factor", getattr(config, "partial_rotary_factor", None))
    original = switch_at or rotation.trained
    found: Json = {
        "max_position_embeddings": rotation.target,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": rotation.start.theta,
            "factor": rotation.factor,
            "original_max_position_embeddings": original,
            **attention,
            **({} if share is None else {"partial_rotary_factor": share}),
            "short_factor": short,
            "long_factor": long,
        },
    }
    if getattr(config, "original_max_position_embeddings", None) is not None:
        found["original_max_position_embeddings"] = original  # where a config has it, it wins over the block's (Phi-3)
    return found


def raw_config(rotation: Rotation) -> Json:
    """The checkpoint's config.json as it lies there."""
    from transformers import PreTrainedConfig

    card = rotation.card
    hub = {"revision": card.revision} if card.spec.on_hub else {}
    raw, _ = PreTrainedConfig.get_config_dict(card.path, local_files_only=card.offline, **hub)
    return {key: value for key, value in raw.items() if not key.startswith("_")}


def patched(raw: Mapping[str, Any], changes: Mapping[str, Any]) -> Json:
    """`raw` with the changes, in its language model's part where it is a composite."""
    whole = copy.deepcopy(dict(raw))
    part = whole["text_config"] if isinstance(whole.get("text_config"), dict) else whole
    for key in _OTHER_SCALINGS:
        part.pop(key, None)
    part.update(changes)
    return whole


def check(rotation: Rotation, whole: Mapping[str, Any]) -> str:
    """Show that transformers, as it is installed, reads the very tables from the config; says what was done.

    Its own function is called on either side of the switch, and the model is built without memory for weights, to see
    that its rotary module is of that type. Raises UsageError, with the reason, where it is not.
    """
    import torch
    import transformers
    from transformers import AutoModelForCausalLM
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    from ropebench.apply import rotary_module

    kind = rotation.card.config.model_type
    try:
        config = type(rotation.card.config).from_dict(copy.deepcopy(dict(whole)))
        for table, length in ((rotation.short, rotation.trained), (rotation.long, rotation.trained + 1)):
            inv_freq, attention = ROPE_INIT_FUNCTIONS["longrope"](_text(config), None, seq_len=length)
            if not Frequencies(inv_freq.double().numpy(), attention).same_as(table):
                raise UsageError(f"{kind}: transformers makes another table of this config ({length} tokens)")
        with torch.device("meta"):
            module = rotary_module(AutoModelForCausalLM.from_config(config))
    except UsageError:
        raise
    except Exception as error:  # a config class's own check, or a kind whose model needs more than its config
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise UsageError(f"{kind}: transformers takes no longrope here ({type(error).__name__}: {first})") from None
    if module.rope_type != "longrope" or not np.isclose(module.attention_scaling, rotation.long.attention_factor):
        raise UsageError(f"{kind}: this kind of model does not read its rotary table from rope_parameters of any type")
    return (
        f"checked: transformers {transformers.__version__} makes the same tables of this config (relative 1e-6), and a "
        f"model of type {kind} takes them"
    )


def _text(config: Any) -> Any:
    return config.get_text_config() if hasattr(config, "get_text_config") else config

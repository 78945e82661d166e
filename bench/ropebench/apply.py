"""The only code that writes into a model: a rotary table goes in, is read back, and comes out again bit for bit.

A model is supported by structure, not by name: exactly one rotary module, with the attributes `inv_freq`,
`original_inv_freq`, `attention_scaling` and `rope_type` of transformers v5, whose table has rotary_dim/2 entries.
`prove` shows on the model at hand that a table takes effect and leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ropebench.errors import UsageError
from ropebench.geometry import Frequencies, RopeGeometry

_STATE = ("inv_freq", "original_inv_freq", "attention_scaling", "rope_type")


def rotary_module(model: torch.nn.Module) -> Any:
    """The model's one rotary module. Raises UsageError with the reason when there is none, or more than one table."""
    kind = getattr(getattr(model, "config", None), "model_type", type(model).__name__)
    found, several = [], set()
    for module in model.modules():
        if isinstance(getattr(module, "inv_freq", None), torch.Tensor):
            found.append(module)
        several |= {name for name, _ in module.named_buffers(recurse=False) if name.endswith("_inv_freq")}
    several -= {"original_inv_freq"}
    if several:
        raise UsageError(f"{kind}: several rotary tables in one module ({', '.join(sorted(several))}); not supported")
    if not found:
        raise UsageError(f"{kind}: no rotary module with an inv_freq table; this model has no RoPE to scale")
    if len(found) > 1:
        raise UsageError(f"{kind}: {len(found)} rotary modules where one is expected; not supported")
    missing = [name for name in _STATE if not hasattr(found[0], name)]
    if missing:
        raise UsageError(f"{kind}: its rotary module lacks {', '.join(missing)}; not the layout of transformers v5")
    return found[0]


def live(model: torch.nn.Module) -> Frequencies:
    """The table and attention factor that the model would use now, read from the device."""
    module = rotary_module(model)
    return Frequencies(module.inv_freq.detach().cpu().double().numpy(), float(module.attention_scaling))


@contextmanager
def applied(model: torch.nn.Module, frequencies: Frequencies) -> Iterator[Frequencies]:
    """Run the model under `frequencies`; yields what is live, read back from the model.

    The table is float32 on the model's device whatever the model's dtype (16 bits lose positions at long range). The
    previous state is put back on exit, also after an exception: the very same tensors. Raises UsageError when the
    table's size is not the model's, RuntimeError when the read-back differs from what was asked, or when the table was
    changed while in use (as a `.to(bfloat16)` of the whole model does).
    """
    module = rotary_module(model)
    before = {name: getattr(module, name) for name in _STATE}
    if before["inv_freq"].shape != frequencies.inv_freq.shape:
        raise UsageError(
            f"the table has {len(frequencies.inv_freq)} pairs, the model's rotary module {before['inv_freq'].numel()}"
        )
    table = torch.tensor(frequencies.inv_freq, dtype=torch.float32, device=before["inv_freq"].device)
    try:
        module.inv_freq = table
        module.original_inv_freq = table.clone()
        module.attention_scaling = float(frequencies.attention_factor)
        module.rope_type = "default"  # no update of its own during the forward pass
        back = live(model)
        if not back.same_as(frequencies):
            raise RuntimeError("the rotary table read back from the model is not the one that was set")
        yield back
        if not _holds(module.inv_freq, frequencies):
            raise RuntimeError("the rotary table was changed while in use; what was computed under it does not count")
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def _holds(live: torch.Tensor, frequencies: Frequencies) -> bool:
    """Whether `live` is `frequencies` rounded to float32, bit for bit."""
    return live.dtype == torch.float32 and torch.equal(live.cpu(), torch.tensor(frequencies.inv_freq).float())


def prove(model: torch.nn.Module, geometry: RopeGeometry) -> None:
    """Show on this very model that a table takes effect inside `applied` and is gone outside it.

    Five forward passes of 16 tokens: as it is, under another table, as it is, under another attention factor, as it is.
    Raises UsageError, naming the model, when logits do not change inside or are not bit-equal outside, or when the
    table's size contradicts the config.
    """
    kind = getattr(getattr(model, "config", None), "model_type", type(model).__name__)
    module = rotary_module(model)
    if module.inv_freq.numel() != geometry.pairs:
        raise UsageError(
            f"{kind}: the config says {geometry.pairs} rotary pairs, the built model has {module.inv_freq.numel()}"
        )
    vocabulary = int(getattr(model.config, "vocab_size", 0) or model.get_input_embeddings().num_embeddings)  # type: ignore
    device = module.inv_freq.device
    ids = torch.arange(16, device=device)[None] % vocabulary

    def logits() -> torch.Tensor:
        with torch.inference_mode():
            return model(input_ids=ids, use_cache=False).logits.float().cpu()  # type: ignore[no-any-return]

    outside, own = logits(), live(model)
    slower = Frequencies(own.inv_freq / np.linspace(1.5, 3.0, geometry.pairs), own.attention_factor)
    louder = Frequencies(own.inv_freq, own.attention_factor * 1.2)
    for what, frequencies in (("rotary table", slower), ("attention factor", louder)):
        with applied(model, frequencies):
            inside = logits()
        if torch.equal(inside, outside):
            raise UsageError(f"{kind}: setting the {what} changed nothing; this model takes it from elsewhere")
        if not torch.equal(logits(), outside):
            raise UsageError(f"{kind}: the model did not return to its former output after the {what} was restored")


def sliding_window(config: Any) -> int | None:
    """The shortest attention window of any layer (sliding, or in chunks), in tokens, or None where every layer sees
    everything.

    A needle outside it is invisible to those layers whatever the method.
    """
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    kinds = getattr(config, "layer_types", None)
    windows = []
    if getattr(config, "use_sliding_window", True) is not False and (kinds is None or "sliding_attention" in kinds):
        windows.append(getattr(config, "sliding_window", None))
    if "chunked_attention" in (kinds or ()):
        windows.append(getattr(config, "attention_chunk_size", None))
    return min((int(window) for window in windows if window), default=None)

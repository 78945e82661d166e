"""Work that is done token by token, done for some tokens at a time: its intermediate values are a model's widest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ropebench.attention import probe, same_states


@contextmanager
def mlps_by(decoder: Any, tokens: int) -> Iterator[None]:
    """While inside, the decoder's MLPs see at most `tokens` tokens at a time. A pass of L tokens otherwise holds three
    arrays of L × intermediate size at once, more than all else of it together."""
    found = [module for name, module in decoder.named_modules() if name.endswith(".mlp")]
    own = [module.__dict__.get("forward") for module in found]
    for module in found:
        module.forward = _split(module.forward, tokens)
    try:
        yield
    finally:
        for module, before in zip(found, own, strict=True):
            if before is None:
                del module.forward
            else:
                module.forward = before


def _split(forward: Callable[..., Any], tokens: int) -> Callable[..., Any]:
    def in_parts(hidden: torch.Tensor, *more: Any, **named: Any) -> Any:
        width = max(1, tokens // hidden.shape[0])
        if hidden.ndim != 3 or hidden.shape[1] <= width:
            return forward(hidden, *more, **named)
        out = torch.empty_like(hidden)
        for first in range(0, hidden.shape[1], width):
            out[:, first : first + width] = forward(hidden[:, first : first + width], *more, **named)
        return out

    return in_parts


def splits(model: Any) -> bool:
    """Whether that changes nothing on the model at hand, shown with a short pass; a mixture of experts, say, may give
    more than its output."""
    ids = probe(model)
    with torch.inference_mode():
        whole = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        try:
            with mlps_by(model.base_model, 7):
                parts = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        except (RuntimeError, ValueError, TypeError, IndexError):
            return False
    return same_states(parts, whole)

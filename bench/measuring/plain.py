"""The plain way, as other tools do it: the model's own forward and generate on a whole input, nothing kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any


def nll(model: Any, ids: Sequence[int]) -> float:
    """Mean −ln p of ids[1:] in nats, from one forward pass with all its logits."""
    import torch

    part = torch.tensor([list(ids)], device=model.device)
    with torch.inference_mode():
        logits = model(part, use_cache=False).logits[0, :-1].float()
        return float(torch.nn.functional.cross_entropy(logits, part[0, 1:]))


def bare(model: Any, ids: Sequence[int]) -> None:
    """The decoder alone: no LM head, no loss."""
    import torch

    with torch.inference_mode():
        model.base_model(input_ids=torch.tensor([list(ids)], device=model.device), use_cache=False)


class _Clock:
    """What `generate` calls a streamer: told of the prompt, and then of each new token. Notes when the first came."""

    def __init__(self) -> None:
        self.told, self.began, self.first = 0, time.perf_counter(), 0.0

    def put(self, _: Any) -> None:
        self.told += 1
        if self.told == 2:
            self.first = time.perf_counter() - self.began

    def end(self) -> None:
        pass


def answer(model: Any, tokenizer: Any, example: Any) -> tuple[str, float]:
    """Greedy text after the whole prompt, prefilled from its first token; and the seconds until the first new one."""
    import torch

    clock = _Clock()

    prompt = torch.tensor([list(example.ids)], device=model.device)
    pad = model.generation_config.pad_token_id
    with torch.inference_mode():
        out = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=example.max_new_tokens, do_sample=False,
            pad_token_id=0 if pad is None else pad, streamer=clock,
        )  # fmt: skip
    text = str(tokenizer.decode(out[0, prompt.shape[1] :], skip_special_tokens=True))
    return text[: min((text.index(stop) for stop in example.stop if stop in text), default=len(text))], clock.first

"""Running a model on token ids: per-token NLL without the full logits, and greedy generation with a KV cache.

Memory: the LM head and the loss see at most `chunk` rows at a time (128K tokens × 128,256 words of float32 logits would
be 67 GB), and generation sends one row to it at prefill. Attention is transformers' SDPA, so that a GPU takes its flash
path.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache
from transformers.modeling_outputs import MoeModelOutputWithPast

from ropebench.prompt import Encoder

# Logits of one chunk, in bytes of float32: 256 MiB (1,024 rows of a 64K vocabulary).
_CHUNK_BYTES = 256 * 1024**2


class Engine:
    """Runs one loaded causal LM, under whatever rotary table is live. Holds no state between calls."""

    def __init__(self, model: Any, encoder: Encoder, chunk: int | None = None) -> None:
        self.model = model
        self.encoder = encoder
        self.decoder = model.base_model
        vocabulary = model.get_output_embeddings().weight.shape[0]
        self.chunk = chunk or max(16, min(1024, _CHUNK_BYTES // (4 * vocabulary)))
        self.device = model.get_input_embeddings().weight.device
        # transformers renames `past_key_values` to `cache`; this is the one place that knows.
        names = inspect.signature(self.decoder.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"
        stops = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        stops = [*stops] if isinstance(stops, (list, tuple)) else [stops]
        self.end_ids = frozenset(int(i) for i in (*stops, encoder.tokenizer.eos_token_id) if i is not None)

    def nll(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """−ln p(ids[t] | ids[:t]) in nats for t = 1 … len(ids) − 1: shape (len(ids) − 1,). One forward pass."""
        scored = max(len(ids) - 1, 0)
        out = torch.empty(scored, dtype=torch.float32)
        if scored:
            with torch.inference_mode():
                inputs = torch.tensor([list(ids)], device=self.device)
                hidden = self.decoder(input_ids=inputs, use_cache=False).last_hidden_state[0]
                for start in range(0, scored, self.chunk):
                    stop = min(start + self.chunk, scored)
                    logits = self._head(hidden[None, start:stop])[0].float()
                    targets = inputs[0, start + 1 : stop + 1].to(logits.device)
                    out[start:stop] = torch.nn.functional.cross_entropy(logits, targets, reduction="none").cpu()
        return out.numpy()

    def generate(
        self, ids: Sequence[int], max_new_tokens: int, stop: Sequence[str] = ()
    ) -> tuple[str, tuple[int, ...]]:
        """Greedy continuation: its text up to the first stop string, and its ids.

        At most `max_new_tokens` ids; it ends at an end-of-text id (left out) or when a stop string appears. Raises
        ArithmeticError when the model returns NaN.
        """
        new: list[int] = []
        cache = DynamicCache(config=self.model.config)
        with torch.inference_mode():
            step = torch.tensor([list(ids)], device=self.device)
            while len(new) < max_new_tokens:
                state = self.decoder(input_ids=step, use_cache=True, **{self._cache_name: cache})
                highest, token = self._head(state.last_hidden_state[:, -1:])[0, -1].float().max(dim=-1)
                if highest.isnan():
                    raise ArithmeticError(f"the model returned NaN for new token {len(new)}")
                if int(token) in self.end_ids:
                    break
                new.append(int(token))
                if stop and any(s in self.encoder.decode(new) for s in stop):
                    break
                step = torch.tensor([[new[-1]]], device=self.device)
        text = self.encoder.decode(new)
        return text[: min((text.index(s) for s in stop if s in text), default=len(text))], tuple(new)

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of hidden states (1, rows, width) by the model's own code after its decoder.

        The decoder is stood in for by its finished output, so that whatever the model does to its logits (Gemma's soft
        cap, Granite's and Cohere's scale) is done here as well, without a list of models.
        """
        rows = torch.zeros(hidden.shape[:2], dtype=torch.long, device=self.device)
        finished = MoeModelOutputWithPast(last_hidden_state=hidden)  # the fields of a dense model's, and the router's
        own = self.decoder.__dict__.get("forward")
        self.decoder.forward = lambda *_, **__: finished
        try:
            return self.model(input_ids=rows, use_cache=False).logits  # type: ignore[no-any-return]
        finally:
            if own is None:
                del self.decoder.forward
            else:
                self.decoder.forward = own

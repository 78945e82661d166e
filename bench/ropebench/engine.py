"""Running a model on token ids: per-token NLL without the full logits, and greedy generation with a KV cache.

Memory: the LM head and the loss see at most `chunk` rows at a time (128K tokens × 128,256 words of float32 logits would
be 67 GB), generation sends one row to it at prefill, and a long prefill goes through in pieces. Attention is
transformers' SDPA, so that a GPU takes its flash path.

Nothing twice: the keys and values of the last pass are held, and a prompt that begins as that one did goes on from
there (`attention`), where the model at hand is shown to allow it. An engine belongs to one rotary table: what it holds
is never used under another.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache
from transformers.modeling_outputs import MoeModelOutputWithPast

from ropebench.attention import cropped, goes_on_from_a_cache, over_cache, sees_everything
from ropebench.prompt import Encoder

# Logits of one chunk, in bytes of float32: 256 MiB (1,024 rows of a 64K vocabulary).
_CHUNK_BYTES = 256 * 1024**2
# The widest activations of one piece of a prefill, in bytes: 1 GiB (about 12K tokens of Llama-3-8B in 16 bits).
_PIECE_BYTES = 1024**3
# A common beginning shorter than this share of the prompt is not worth another path than the plain one.
_WORTH = 1 / 8


@dataclass
class _Held:
    """The last pass: its ids, the cache over them, and the NLL of ids[1:] as far as it was computed from the start."""

    ids: list[int]
    cache: DynamicCache
    nll: NDArray[np.float32]


class Engine:
    """Runs one loaded causal LM under the rotary table that is live. `reuse=False` in a call neither uses nor leaves
    anything held: for tables that depend on the length."""

    def __init__(self, model: Any, encoder: Encoder, chunk: int | None = None, piece: int | None = None) -> None:
        self.model = model
        self.encoder = encoder
        self.decoder = model.base_model
        vocabulary = model.get_output_embeddings().weight.shape[0]
        self.chunk = chunk or max(16, min(1024, _CHUNK_BYTES // (4 * vocabulary)))
        weight = model.get_input_embeddings().weight
        self.device = weight.device
        width = getattr(self.decoder.config, "intermediate_size", None) or 4 * weight.shape[1]
        self.piece = piece or max(512, _PIECE_BYTES // (3 * width * weight.element_size()))
        self.tokens_fed = 0  # ids that went through the model so far
        self._held: _Held | None = None
        # transformers renames `past_key_values` to `cache`; this is the one place that knows.
        names = inspect.signature(self.decoder.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"
        stops = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        stops = [*stops] if isinstance(stops, (list, tuple)) else [stops]
        self.end_ids = frozenset(int(i) for i in (*stops, encoder.tokenizer.eos_token_id) if i is not None)

    def nll(self, ids: Sequence[int], keep: bool = False, reuse: bool = True) -> NDArray[np.float32]:
        """−ln p(ids[t] | ids[:t]) in nats for t = 1 … len(ids) − 1: shape (len(ids) − 1,).

        With `keep` the pass is held for the next call that begins with the same ids (its cache costs memory).
        """
        ids = list(ids)
        keep = keep and reuse and self._holds
        out = np.empty(max(len(ids) - 1, 0), dtype=np.float32)
        if not len(out):
            return out
        # The NLL of an id comes from the row before it, so the last common id is fed again.
        known = min(self._common(ids) - 1, len(self._held.nll)) if self._held and reuse else 0
        start = self._resume(known, len(ids), reuse)
        if start and self._held:
            out[:start] = self._held.nll[:start]
        cache = self._cache(start) if keep or start else None
        with torch.inference_mode():
            hidden = self._decode(ids[start:], cache, start)
            targets = torch.tensor(ids[start + 1 :])
            for first in range(0, len(targets), self.chunk):
                last = min(first + self.chunk, len(targets))
                logits = self._head(hidden[None, first:last])[0].float()
                loss = torch.nn.functional.cross_entropy(
                    logits, targets[first:last].to(logits.device), reduction="none"
                )
                out[start + first : start + last] = loss.cpu().numpy()
        if cache is not None:
            self._held = _Held(ids, cache, out)
        return out

    def generate(
        self, ids: Sequence[int], max_new_tokens: int, stop: Sequence[str] = (), reuse: bool = True
    ) -> tuple[str, tuple[int, ...]]:
        """Greedy continuation: its text up to the first stop string, and its ids.

        At most `max_new_tokens` ids; it ends at an end-of-text id (left out) or when a stop string appears. Raises
        ArithmeticError when the model returns NaN or infinity.
        """
        ids, new = list(ids), list[int]()
        common = min(self._common(ids), len(ids) - 1) if self._held and reuse else 0
        start = self._resume(common, len(ids), reuse)
        nll = self._held.nll[: max(self._common(ids) - 1, 0)] if start and self._held else np.empty(0, np.float32)
        cache = self._cache(start)
        with torch.inference_mode():
            rows = self._decode(ids[start:], cache, start, whole=False)
            while len(new) < max_new_tokens:
                highest, token = self._head(rows[None, -1:])[0, -1].float().max(dim=-1)
                if not highest.isfinite():
                    raise ArithmeticError(f"the model returned NaN or infinity for new token {len(new)}")
                if int(token) in self.end_ids:
                    break
                new.append(int(token))
                if len(new) == max_new_tokens or (stop and any(s in self.encoder.decode(new) for s in stop)):
                    break
                rows = self._decode(new[-1:], cache, len(ids) + len(new) - 1)
        if reuse and self._holds:
            self._held = _Held(ids, cropped(cache, len(ids)), nll)
        text = self.encoder.decode(new)
        return text[: min((text.index(s) for s in stop if s in text), default=len(text))], tuple(new)

    @cached_property
    def _holds(self) -> bool:
        return sees_everything(self.model)

    @cached_property
    def _goes_on(self) -> bool:
        """Shown once, when first a pass could go on from another."""
        return self._holds and goes_on_from_a_cache(self.model, self._cache_name)

    def _common(self, ids: list[int]) -> int:
        """How many ids the held pass and `ids` begin with in common."""
        held = self._held.ids if self._held else []
        most = min(len(held), len(ids))
        if held[:most] == ids[:most]:
            return most
        return next(n for n in range(most) if held[n] != ids[n])

    def _resume(self, common: int, total: int, reuse: bool) -> int:
        """Where a pass begins: behind what is held, or at 0, and then nothing stays held."""
        if not (reuse and common > 0 and common >= total * _WORTH and self._goes_on):
            self._held, common = None, 0  # freed before the pass, not after it
        return common

    def _cache(self, start: int) -> DynamicCache:
        """The held cache cut back to `start` tokens, or a new one; it is held again when its pass is through."""
        held, self._held = self._held, None
        return cropped(held.cache, start) if held and start else DynamicCache(config=self.model.config)

    def _decode(self, ids: list[int], cache: DynamicCache | None, start: int, whole: bool = True) -> torch.Tensor:
        """Hidden states (rows, width) of `ids` at positions `start` …: all of them, or with `whole=False` those of the
        last piece. Over a cache it goes in pieces."""
        piece = self.piece if cache is not None and len(ids) > self.piece and self._goes_on else len(ids)
        rows: list[torch.Tensor] = []
        for first in range(0, len(ids), piece):
            part = torch.tensor([ids[first : first + piece]], device=self.device)
            self.tokens_fed += part.shape[1]
            suffix = start + first > 0 and part.shape[1] > 1
            kept = {} if cache is None else {self._cache_name: cache}
            with over_cache(self.decoder) if suffix else nullcontext():
                state = self.decoder(input_ids=part, use_cache=cache is not None, **kept).last_hidden_state[0]
            rows = [*rows, state] if whole else [state]
        return torch.cat(rows) if len(rows) > 1 else rows[0]

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

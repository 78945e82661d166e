"""Running a model on token ids: per-token NLL without the full logits, and greedy generation with a KV cache.

Memory: the LM head and the loss see at most `chunk` rows at a time (128K tokens × 128,256 words of float32 logits would
be 67 GB), the MLPs `tokens`, generation sends one row to the head at prefill, and a long prefill over a cache goes
through in pieces of `piece`. A likelihood pass keeps no cache and goes in one piece: the cache that pieces need is
larger than what they save. Attention is transformers' SDPA, so that a GPU takes its flash path. `halve` makes all of
these smaller where memory runs out all the same.

Several at once: texts of equal length share a pass, and prompts, each prefilled alone (or going on from the one
before), are decoded side by side, every row over its own tokens only. Nothing is padded, so an answer does not depend
on what else is in its batch. Prefills of different prompts are not joined: they keep the processor busy one by one,
and each goes on from what it has in common with the last, which a joint one could not.

Nothing twice: the keys and values of the last pass are held, and a prompt that begins as that one did goes on from
there (`attention`), where the model at hand is shown to allow it. An engine belongs to one rotary table: what it holds
is never used under another.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache
from transformers.modeling_outputs import MoeModelOutputWithPast

from ropebench import kv
from ropebench.answers import Answer, Asked, Begun
from ropebench.attention import (
    decodes_side_by_side,
    goes_on_from_a_cache,
    over_cache,
    over_rows,
    sees_everything,
)
from ropebench.piecewise import mlps_by, splits
from ropebench.prompt import Encoder
from ropebench.work import WORTH

# Logits of one chunk, in bytes of float32: 64 MiB (256 rows of a 64K vocabulary); the loss makes a second copy.
_CHUNK_BYTES = 64 * 1024**2
# The widest activations of the tokens that go through an MLP at once, in bytes: 32 MiB, if that is 1,024 tokens.
_TOKENS_BYTES = 32 * 1024**2
# The widest activations of one piece of a prefill, in bytes: 1 GiB (about 12K tokens of Llama-3-8B in 16 bits).
_PIECE_BYTES = 1024**3
# Keys and values of a batch whose size is chosen here, in bytes: 1 GiB; and the most rows of it.
_BATCH_BYTES, _BATCH_MOST = 1024**3, 32
# What the sizes are not halved below.
_LEAST = {"chunk": 16, "tokens": 64, "piece": 64}


def sizes_of(vocabulary: int, inner: int, itemsize: int) -> dict[str, int]:
    """What goes through at once while memory lasts, for a vocabulary, an MLP's width and bytes per number. `cost` reads
    it too."""
    wide = 3 * inner * itemsize
    return {
        "chunk": max(16, min(1024, _CHUNK_BYTES // (4 * vocabulary))),
        "tokens": max(1024, _TOKENS_BYTES // wide),
        "piece": max(512, _PIECE_BYTES // wide),
    }


def batch_of(size: int) -> int:
    """How many prompts whose keys and values take `size` bytes are answered side by side."""
    return int(max(1, min(_BATCH_MOST, _BATCH_BYTES // max(size, 1))))


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
        weight = model.get_input_embeddings().weight
        self.device = weight.device
        inner = getattr(self.decoder.config, "intermediate_size", None) or 4 * weight.shape[1]
        sizes = sizes_of(vocabulary, inner, self.model.dtype.itemsize)
        self.chunk, self.tokens, self.piece = chunk or sizes["chunk"], sizes["tokens"], piece or sizes["piece"]
        self.tokens_fed = 0  # ids that went through the model so far
        self._held: _Held | None = None
        self._cache_name = kv.name_of_cache(self.decoder)
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
            out[start:] = self._loss(self._decode(ids[start:], cache, start), ids[start + 1 :])
        if cache is not None:
            self._held = _Held(ids, cache, out)
        return out

    def nll_of_each(self, texts: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        """`nll` of texts of one length, in one pass; nothing is held. Raises ValueError where lengths differ."""
        if len({len(ids) for ids in texts}) != 1:
            raise ValueError("texts of different lengths do not share a pass")
        if len(texts) == 1 or len(texts[0]) < 2:
            return [self.nll(ids) for ids in texts]
        self._held = None
        rows = torch.tensor([list(ids) for ids in texts], device=self.device)
        with torch.inference_mode():
            hidden = self._pass(rows, use_cache=False)
            return [self._loss(own, ids[1:]) for own, ids in zip(hidden, texts, strict=True)]

    def generate(self, ids: Sequence[int], max_new_tokens: int, stop: Sequence[str] = (), reuse: bool = True) -> Answer:
        """Greedy continuation: its text up to the first stop string, and its ids.

        At most `max_new_tokens` ids; it ends at an end-of-text id or a special token among `stop` (left out), or when a
        stop string appears. Raises ArithmeticError when the model returns NaN or infinity.
        """
        asked = Asked(tuple(ids), max_new_tokens, tuple(stop))
        state, cache, nll = self._prefill(asked.ids, reuse)
        (answer,) = self._answers([asked], state, cache, [0])
        if reuse and self._holds:
            self._held = _Held([*ids], kv.cropped(cache, len(asked.ids)), nll)
        return answer

    def begin(self, asked: Asked) -> Begun:
        """The first half of `generate`, for a batch; allowed where `batch` gave more than 1. What it has in common with
        the prompt begun before is not computed again."""
        state, cache, nll = self._prefill(asked.ids, True)
        begun = Begun(asked, kv.copied(cache, len(asked.ids)), state.clone())
        self._held = _Held([*asked.ids], cache, nll)
        return begun

    def finish(self, begun: Sequence[Begun]) -> list[Answer]:
        """The second half: all of them decoded side by side, each as `generate` would. Uses up their caches."""
        # Rows that begin together in the cache are computed together.
        order = sorted(range(len(begun)), key=lambda i: -len(begun[i].asked.ids))
        rows = [begun[i] for i in order]
        room = max(row.asked.budget for row in rows)
        with torch.inference_mode():
            cache, starts = kv.side_by_side(self.model.config, [row.row for row in rows], room)
            states = torch.cat([row.state for row in rows])
        answers = self._answers([row.asked for row in rows], states, cache, starts)
        return [answers[order.index(i)] for i in range(len(begun))]

    def batch(self, length: int) -> int:
        """How many prompts of `length` tokens may be answered side by side: as many as their keys and values leave
        memory for. 1 where this model was not shown to allow it."""
        if not (self._holds and self._side_by_side):
            return 1
        config = self.decoder.config
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        size = 2 * config.num_hidden_layers * heads * width * self.model.dtype.itemsize * max(length, 1)
        return batch_of(size)

    def halve(self) -> bool:
        """Halve what goes through at once and let go of what is held; False where nothing can be smaller."""
        self._held = None
        before = self.sizes
        for name, least in _LEAST.items():
            setattr(self, name, max(min(least, before[name]), before[name] // 2))
        return self.sizes != before

    @property
    def sizes(self) -> dict[str, int]:
        """What goes through at once: rows of the LM head, tokens of an MLP, tokens of a prefill."""
        return {name: int(getattr(self, name)) for name in _LEAST}

    def _prefill(self, ids: tuple[int, ...], reuse: bool) -> tuple[torch.Tensor, DynamicCache, NDArray[np.float32]]:
        """The state (1, width) of a prompt's last id, its cache, and what is known of its NLL."""
        own = [*ids]
        common = min(self._common(own), len(own) - 1) if self._held and reuse else 0
        start = self._resume(common, len(own), reuse)
        nll = self._held.nll[: max(self._common(own) - 1, 0)] if start and self._held else np.empty(0, np.float32)
        cache = self._cache(start)
        with torch.inference_mode():
            return self._decode(own[start:], cache, start, whole=False)[-1:], cache, nll

    def _answers(
        self, rows: Sequence[Asked], state: torch.Tensor, cache: DynamicCache, starts: Sequence[int]
    ) -> list[Answer]:
        """Decode `rows`, whose prompts end side by side in the cache and begin there at `starts` (which rise), from the
        states (rows, width) of their last ids. A row that is through leaves the batch."""
        new: list[list[int]] = [[] for _ in rows]
        ends = [self.end_ids | self.encoder.special_ids(row.stop) for row in rows]
        held = [*range(len(rows))]  # the rows of the cache
        going = [row for row in held if rows[row].budget > 0]
        with torch.inference_mode():
            for step in count():
                if not going:
                    break
                if len(going) < len(held):
                    places = [held.index(row) for row in going]
                    state, held = state[places], going
                    kv.keep_rows(cache, places)
                if step:
                    state = self._step([new[row][-1] for row in held], cache, [starts[row] for row in held])
                highest, tokens = self._head(state[:, None])[:, -1].float().max(dim=-1)
                if not highest.isfinite().all():
                    raise ArithmeticError(f"the model returned NaN or infinity for new token {step}")
                going = [
                    row
                    for row, token in zip(held, tokens.tolist(), strict=True)
                    if rows[row].goes_on(self.encoder, ends[row], new[row], token)
                ]
        return [asked.text(self.encoder, ids) for asked, ids in zip(rows, new, strict=True)]

    def _step(self, tokens: list[int], cache: DynamicCache, starts: Sequence[int]) -> torch.Tensor:
        """States (rows, width) of one new token of each row of the cache."""
        rows = torch.tensor(tokens, device=self.device)[:, None]
        if not any(starts):
            return self._pass(rows, use_cache=True, **{self._cache_name: cache})[:, -1]
        places = cache.get_seq_length() - torch.tensor(starts, device=self.device)[:, None]
        with over_rows(self.decoder, starts):
            return self._pass(rows, use_cache=True, position_ids=places, **{self._cache_name: cache})[:, -1]

    @cached_property
    def _holds(self) -> bool:
        return sees_everything(self.model)

    @cached_property
    def _goes_on(self) -> bool:
        """Shown once, when first a pass could go on from another."""
        return self._holds and goes_on_from_a_cache(self.model, self._cache_name)

    @cached_property
    def _side_by_side(self) -> bool:
        return decodes_side_by_side(self.model, self._cache_name)

    @cached_property
    def _splits(self) -> bool:
        """Not where layers are compiled: they are what was compiled, whole."""
        compiled = any(getattr(module, "_compiled_call_impl", None) for module in self.decoder.modules())
        return not compiled and splits(self.model)

    def _common(self, ids: list[int]) -> int:
        """How many ids the held pass and `ids` begin with in common."""
        held = self._held.ids if self._held else []
        most = min(len(held), len(ids))
        if held[:most] == ids[:most]:
            return most
        return next(n for n in range(most) if held[n] != ids[n])

    def _resume(self, common: int, total: int, reuse: bool) -> int:
        """Where a pass begins: behind what is held, or at 0, and then nothing stays held."""
        if not (reuse and common > 0 and common >= total * WORTH and self._goes_on):
            self._held, common = None, 0  # freed before the pass, not after it
        return common

    def _cache(self, start: int) -> DynamicCache:
        """The held cache cut back to `start` tokens, or a new one; it is held again when its pass is through."""
        held, self._held = self._held, None
        return kv.cropped(held.cache, start) if held and start else kv.new_cache(self.model.config)

    def _decode(self, ids: list[int], cache: DynamicCache | None, start: int, whole: bool = True) -> torch.Tensor:
        """Hidden states (rows, width) of `ids` at positions `start` …: all of them, or with `whole=False` those of the
        last piece. Over a cache it goes in pieces."""
        piece = self.piece if cache is not None and len(ids) > self.piece and self._goes_on else len(ids)
        rows: list[torch.Tensor] = []
        for first in range(0, len(ids), piece):
            part = torch.tensor([ids[first : first + piece]], device=self.device)
            kept = {} if cache is None else {self._cache_name: cache}
            with ExitStack() as stack:
                if start + first > 0 and part.shape[1] > 1:
                    stack.enter_context(over_cache(self.decoder))
                state = self._pass(part, use_cache=cache is not None, **kept)[0]
            rows = [*rows, state] if whole else [state]
        return torch.cat(rows) if len(rows) > 1 else rows[0]

    def _pass(self, ids: torch.Tensor, **how: Any) -> torch.Tensor:
        """Hidden states (rows, tokens, width) of ids (rows, tokens)."""
        self.tokens_fed += ids.numel()
        if ids.numel() <= self.tokens or not self._splits:
            return self.decoder(input_ids=ids, **how).last_hidden_state  # type: ignore[no-any-return]
        with mlps_by(self.decoder, self.tokens):
            return self.decoder(input_ids=ids, **how).last_hidden_state  # type: ignore[no-any-return]

    def _loss(self, hidden: torch.Tensor, targets: Sequence[int]) -> NDArray[np.float32]:
        """NLL of `targets` under the states (rows, width) before them, a row each."""
        wanted, out = torch.tensor(targets), np.empty(len(targets), dtype=np.float32)
        for first in range(0, len(targets), self.chunk):
            last = min(first + self.chunk, len(targets))
            logits = self._head(hidden[None, first:last])[0].float()
            loss = torch.nn.functional.cross_entropy(logits, wanted[first:last].to(logits.device), reduction="none")
            out[first:last] = loss.cpu().numpy()
        return out

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

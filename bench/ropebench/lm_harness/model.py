"""`--model ropebench`: a model under a method's table, for any of lm-eval's tasks.

Prompts go to ropebench's own engine, unpadded, those that begin alike one after the other. An answer here is the
answer of `ropebench run`. What does not fit into `max_length` is an error: lm-eval's own Hugging Face model cuts its
beginning off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm  # type: ignore[import-untyped]

from ropebench import __version__
from ropebench.answers import Answer, Asked
from ropebench.apply import applied
from ropebench.engine import Engine
from ropebench.errors import UsageError
from ropebench.lm_harness.setting import ModelArguments, Setting
from ropebench.lm_harness.spelling import Likelihood, Spelled, pair_ids
from ropebench.model import load, load_tokenizer
from ropebench.prompt import Encoder
from ropebench.record import digest

DEFAULT_NEW_TOKENS = 256  # lm-eval's own, for a task that does not say


@register_model("ropebench")
class RopebenchLM(TemplateLM):  # type: ignore[misc]
    """An lm-eval model. Its arguments are those of `ModelArguments`; a wrong one is said before weights are loaded."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        asked = ModelArguments.of(arguments)
        self.setting = setting = Setting.of(asked)
        Encoder(load_tokenizer(setting.card, asked.trust_remote_code), asked.bos_rule)  # can this BOS rule be kept?
        self.loaded = load(setting.card, setting.device, setting.dtype, asked.attention, asked.trust_remote_code)
        self.tokenizer = self.loaded.tokenizer
        self.encoder = Encoder(self.tokenizer, asked.bos_rule)
        self.engine = Engine(self.loaded.model, self.encoder)
        self._device = self.engine.device

    @property
    def max_length(self) -> int:
        return self.setting.max_length

    @property
    def eot_token_id(self) -> int:
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int | None:
        """What a text's first token depends on: BOS, else end of text."""
        return self.encoder.bos_id if self.encoder.bos_id is not None else self.tokenizer.eos_token_id

    @property
    def tokenizer_name(self) -> str:
        return f"{self.setting.card.id}@{self.setting.card.revision}".replace("/", "__")

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return self.encoder.render(chat_history, add_generation_prompt)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        return self.encoder.text(string) if add_special_tokens is False else list(self.encoder.markup(string))

    def set_cache_hook(self, cache_hook: Any) -> None:
        """lm-eval keys stored answers by the question alone, so a second method would be given the first one's. The
        database that the hook shares with lm-eval is told to put everything an answer depends on before its keys."""
        super().set_cache_hook(cache_hook)
        if cache_hook.dbdict is not None:
            before = digest(self.setting.identity, 32)
            cache_hook.dbdict.encode_key = lambda key: f"{before} {key}"
            cache_hook.dbdict.decode_key = lambda key: str(key).partition(" ")[2]

    def get_model_info(self) -> dict[str, Any]:
        """What goes into the results' `config`: model, method, factor and everything else of the identity."""
        return {"ropebench_version": __version__, **self.setting.identity}

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Greedy answers. Raises UsageError for a prompt that with its budget exceeds the window, and for sampling."""
        asked = []
        for request in requests:
            context, given = request.args
            budget, stop = greedy(given, f"task {request.task_name}")
            ids = context.ids if isinstance(context, Spelled) else self.encoder.markup(context)
            self._check(len(ids) + budget, request, f"a prompt of {len(ids)} tokens and {budget} for its answer")
            asked.append(Asked(tuple(ids), budget, stop))
        answers: dict[int, str] = {}
        left = sorted(range(len(asked)), key=lambda number: asked[number].ids)  # prompts that begin alike: one after
        with tqdm(total=len(asked), disable=disable_tqdm, desc="ropebench: generating") as bar:
            while left:
                batch, left = left[: (size := self._rows(asked[left[0]]))], left[size:]
                for number, answer in zip(batch, self._answers([asked[number] for number in batch]), strict=True):
                    answers[number] = Spelled(*answer)
                    self.cache_hook.add_partial("generate_until", requests[number].args, answers[number])
                bar.update(len(batch))
        return [answers[number] for number in range(len(asked))]

    def _rows(self, first: Asked) -> int:
        """How many prompts to answer at once, the next one being `first`."""
        size = self.setting.arguments.batch_size
        if str(size) == "1" or not self._static:
            return 1
        most = self.engine.batch(len(first.ids) + first.budget)
        return most if size == "auto" or most == 1 else int(size)

    def _answers(self, batch: list[Asked]) -> list[Answer]:
        with self._table(len(batch[0].ids) + batch[0].budget):
            if len(batch) == 1:
                return [self.engine.generate(batch[0].ids, batch[0].budget, batch[0].stop, self._static)]
            return self.engine.finish([self.engine.begin(one) for one in batch])

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """(log-probability, whether greedy) of continuations. Raises UsageError for what exceeds the window."""
        split = []
        for request in requests:
            context, continuation = request.args[:2]
            if isinstance(context, Spelled) and isinstance(continuation, Spelled):
                ids, first = (*context.ids, *continuation.ids), len(context.ids)
            else:
                ids, first = pair_ids(self.encoder.markup, context, continuation, self.prefix_token_id)
            self._check(len(ids), request, f"a text of {len(ids)} tokens")
            split.append(((context, continuation), list(ids[:first]), list(ids[first:])))
        return self._loglikelihood_tokens(split, disable_tqdm=disable_tqdm)

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        answers: list[tuple[float, bool]] = []
        begun: dict[tuple[int, ...], list[int]] = {}  # greedy continuations of contexts, as far as they were needed
        for name, context, continuation in tqdm(requests, disable=disable_tqdm, desc="ropebench: likelihood"):
            with self._table(min(len(context) + len(continuation), self.max_length)):
                # Held, since the next one is often another continuation of the same context.
                nll = self.engine.nll([*context, *continuation], True, self._static)[len(context) - 1 :]
                # More than half of the probability: nothing is likelier. Else one token, and the rest if it is right.
                same = bool((nll < math.log(2)).all())
                for tokens in () if same else (1, len(continuation)):
                    known = begun.get(tuple(context), [])
                    if len(known) < tokens and known == continuation[: len(known)]:
                        known = begun[tuple(context)] = list(self.engine.generate(context, tokens, (), self._static)[1])
                    same = known[: len(continuation)] == continuation
            answers.append(Likelihood((-float(nll.sum(dtype="float64")), same), map(float, nll)))
            if name is not None:
                self.cache_hook.add_partial("loglikelihood", name, answers[-1])
        return answers

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Log-probability of whole texts, in windows of max_length: one BOS (else end of text) before the first token
        of all, and every token scored once."""
        totals = []
        for request in tqdm(requests, disable=disable_tqdm, desc="ropebench: rolling likelihood"):
            (text,) = request.args
            windows = get_rolling_token_windows(self.encoder.text(text), self.prefix_token_id, self.max_length, 1)
            total = 0.0
            for before, scored in map(make_disjoint_window, windows):
                with self._table(self.max_length):
                    nll = self.engine.nll([*before, *scored], False, self._static)[len(before) - 1 :]
                total -= float(nll.sum(dtype="float64"))
            totals.append(total)
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), total)
        return totals

    def _check(self, tokens: int, request: Instance, what: str) -> None:
        if tokens > self.max_length:
            raise UsageError(
                f"task {request.task_name}, document {request.doc_id}: {what} exceed the window of {self.max_length}; "
                f"nothing is cut: give a larger --model_args max_length, or leave the document out (--samples)"
            )

    @property
    def _static(self) -> bool:
        """Whether what was computed for one text may be used for the next: not where tables differ by length."""
        return not self.setting.varies

    def _table(self, length: int) -> Any:
        """The context in which the table for a sequence of this length is live."""
        return applied(self.loaded.model, self.setting.table(self.max_length if self._static else length))


def greedy(given: Mapping[str, Any], where: str) -> tuple[int, tuple[str, ...]]:
    """New tokens and stop strings out of lm-eval's generation_kwargs. Raises UsageError where they ask for sampling."""
    words = normalize_gen_kwargs(dict(given), DEFAULT_NEW_TOKENS)
    if words.get("do_sample") or words.get("num_beams", 1) != 1:
        raise UsageError(f"{where}: samples its answers ({dict(given)}); ropebench decodes greedily")
    return int(words["max_gen_toks"]), tuple(stop for stop in words["until"] if stop)

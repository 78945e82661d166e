"""One document of an lm-eval task as an example: its requests as ids, and the engine's answer as lm-eval scores it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ropebench.errors import UsageError
from ropebench.lm_harness.model import greedy
from ropebench.lm_harness.spelling import pair_ids
from ropebench.prompt import Encoder
from ropebench.task import Example, Output, Window


@dataclass(frozen=True)
class Asked(Example):
    """An example, and what lm-eval needs to score its answer: the task, the document and its requests."""

    task: Any = field(default=None, repr=False, compare=False)
    doc: Any = field(default=None, repr=False, compare=False)
    requests: tuple[Any, ...] = field(default=(), repr=False, compare=False)

    def answers(self, output: Output) -> dict[str, Mapping[str, Any]]:
        """lm-eval's results for the document, per filter."""
        nll = iter(output.nll)
        windows = iter(self.windows)
        answered = []
        for request in self.requests:
            request = copy.copy(request)
            text = request.request_type == "generate_until"
            answer = output.text if text else self._likelihood(next(windows), next(nll), output)
            request.resps, request.filtered_resps = [answer] * (request.repeats or 1), {}
            answered.append(request)
        for one in self.task._filters:
            one.apply(answered)
        return {
            name: self.task.process_results(self.doc, [request.filtered_resps[name] for request in answered])
            for name in answered[0].filtered_resps
        }

    def _likelihood(self, window: Window, nll: Sequence[float], output: Output) -> tuple[float, bool | None]:
        """(log-probability, whether greedy). The latter is read off the example's own greedy text, where the window
        begins as its prompt does; else it is not known. Where no score depends on it, it is False: lm-eval's multiple
        choice computes an exact match that nobody asked for."""
        asked = window.ids[window.first_scored :]
        known = self.ids and self.ids == window.ids[: window.first_scored]
        unknown = None if needs_greedy(self.task) else False
        return -float(sum(map(float, nll))), output.ids[: len(asked)] == asked if known else unknown


def ask(task: Any, doc: Any, index: int, encoder: Encoder, length: int) -> Asked:
    """Document number `index` as lm-eval would ask it."""
    name = f"lm_eval/{task.config.task}"

    def render(turns: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
        return encoder.render(turns, add_generation_prompt)

    chat: Callable[..., str] | None = render if encoder.chat else None
    context = task.fewshot_context(
        doc,
        num_fewshot=task.config.num_fewshot or 0,
        system_instruction=None,
        apply_chat_template=encoder.chat,
        fewshot_as_multiturn=encoder.chat,
        chat_template=chat,
        gen_prefix=task.doc_to_prefix(doc),
    )
    made = task.construct_requests(
        doc=doc, ctx=context, metadata=(task.config.task, index, task.config.repeats or 1),
        apply_chat_template=encoder.chat, chat_template=chat,
    )  # fmt: skip
    requests = tuple(made if isinstance(made, list) else [made])
    encode = encoder.markup if encoder.chat else encoder.prompt
    texts = [request for request in requests if request.request_type == "generate_until"]
    if len(texts) > 1:
        raise UsageError(f"{name}: asks for {len(texts)} answers to one document; ropebench runs one")
    if any(request.request_type == "loglikelihood_rolling" for request in requests):
        return rolling(requests[0].args[0], index, encoder, length)
    prefix = encoder.bos_id if encoder.bos_id is not None else encoder.tokenizer.eos_token_id
    windows = tuple(
        Window(*pair_ids(encode, str(request.args[0]), str(request.args[1]), prefix))
        for request in requests
        if request.request_type == "loglikelihood"
    )
    ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    budget = 0
    if texts:
        ids = encode(texts[0].args[0])
        budget, stop = greedy(texts[0].args[1], name)
    elif needs_greedy(task):
        ids = windows[0].ids[: windows[0].first_scored]
        budget = max(len(w.ids) - w.first_scored for w in windows if w.ids[: w.first_scored] == ids)
    return Asked(
        ids=ids, targets=targets(task, doc), max_new_tokens=budget, stop=stop, windows=windows, meta={},
        task=task, doc=doc, requests=requests,
    )  # fmt: skip


def needs_greedy(task: Any) -> bool:
    """Whether a score depends on a continuation being what the model itself would have written."""
    if callable(getattr(task.config, "process_results", None)):
        return True  # it may look
    named = task.aggregation()
    return bool(task.OUTPUT_TYPE == "loglikelihood" and "acc" in named) or "exact_match" in named


def rolling(text: str, index: int, encoder: Encoder, length: int) -> Asked:
    """A text in windows of `length` ids, BOS by rule before the first: every id is scored once, and the last window has
    as much before its new ids as fits."""
    head = [encoder.bos_id] if encoder.adds_bos and encoder.bos_id is not None else []
    own = encoder.text(text)
    ids, windows, done = (*head, *own), list[Window](), 1
    while done < len(ids):
        end = min(done - 1 + length, len(ids))
        start = max(end - length, 0)
        windows.append(Window(ids[start:end], done - start))
        done = end
    scored = encoder.decode(own if head else own[1:])
    about = {
        "words": max(len(scored.split()), 1),
        "bytes": max(len(scored.encode()), 1),
        "tokens_scored": sum(len(window.ids) - window.first_scored for window in windows),
        "windows": len(windows),
    }
    skip = None if windows else f"document {index} has no token to score"
    return Asked(windows=tuple(windows), meta=about, skip=skip)


def targets(task: Any, doc: Any) -> tuple[str, ...]:
    """The accepted answers, for people to read."""
    target = task.doc_to_target(doc)
    choices = task.doc_to_choice(doc) if getattr(task.config, "doc_to_choice", None) is not None else None
    if getattr(task, "multiple_input", 0):
        target = task.doc_to_text(doc)
    found = target if isinstance(target, (list, tuple)) else [target]
    return tuple(str(choices[one] if choices and isinstance(one, int) and one < len(choices) else one) for one in found)


def text_of(value: Any) -> Any:
    """A document's value as JSON: what JSON has no form for, by its words."""
    if isinstance(value, Mapping):
        return {str(key): text_of(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [text_of(one) for one in value]
    return value if value is None or isinstance(value, (str, int, bool)) else repr(value)

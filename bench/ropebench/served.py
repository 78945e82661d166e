"""A model behind somebody's server: any that speaks OpenAI's completions protocol (vLLM, SGLang, llama.cpp,
`transformers serve`), asked for text through the `openai` client (extra `served`).

What is measured is what the server makes of a text. Which weights it has, in which number format, and which rotary
table, cannot be seen from here: `--as-method` is a person's word, the record says so (no table is read back), and its
model is called `served:NAME`, so that it never is the same cell as a run in this process. What can be checked is: a
prompt is sent as text only where the given tokenizer turns that text into the very ids that were counted, and where the
server says how many tokens it saw, it must have been as many.

Of the ways to ask (this client; lm-eval's API models) this one is taken since it neither cuts a prompt nor tokenizes it
again, retries by the book, and reads keys from the environment (OPENAI_API_KEY) alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ropebench.answers import Answer, Asked
from ropebench.errors import UsageError
from ropebench.record import Json

if TYPE_CHECKING:
    from ropebench.cell import Cell
    from ropebench.sweep import Sweep

PREFIX = "openai:"
_AT_ONCE = 8  # requests under way with --batch-size auto
_RETRIES = 5  # of a request that failed for a reason that may pass, by the client, with growing pauses
_PATIENCE = 3600.0  # seconds for one answer: a long prompt on a slow machine
_LOADING = ("device_map", "quantize", "compile")


@dataclass(frozen=True)
class Served:
    """A model as its server calls it, and the checkpoint whose tokenizer and config stand for it here."""

    name: str
    tokenizer: str
    tokenizer_revision: str
    api: str = "completions"

    @property
    def identity(self) -> Json:
        return {
            "name": self.name, "api": self.api, "tokenizer": self.tokenizer,
            "tokenizer_revision": self.tokenizer_revision,
        }  # fmt: skip


def is_served(model: str) -> bool:
    """Whether a model's name is the address of a server."""
    return model.startswith(PREFIX)


def checked(sweep: Sweep) -> Sweep:
    """The sweep as it is run: of a served model with its one method and no baseline, else as it is.

    Raises UsageError for what contradicts: a server has one method and has loaded its weights its own way.
    """
    own = {"--as-method": sweep.as_method, "--tokenizer": sweep.tokenizer, "--served-model": sweep.served_model}
    if not is_served(sweep.model):
        for flag, value in own.items():
            if value is not None:
                raise UsageError(f"{flag} is for a served model: give --model {PREFIX}http://HOST:PORT/v1 with it")
        return sweep
    _address(sweep.model)
    if find_spec("openai") is None:
        raise UsageError("a served model needs the client openai: pip install 'ropebench[served]'")
    if sweep.methods:
        raise UsageError("a server runs one method, which is named by --as-method; leave --method out")
    for flag in ("--as-method", "--tokenizer"):
        if own[flag] is None:
            what = (
                "the method it runs (none: unmodified)" if flag == "--as-method" else "the model whose tokenizer it has"
            )
            raise UsageError(f"a served model needs {flag}: {what}")
    if sweep.matched:
        raise UsageError("--matched: a server has one factor for all lengths; give --factor, or --target")
    given = [name for name in ("device", "dtype", "attention") if getattr(sweep, name) != "auto"]
    given += [name for name in _LOADING if getattr(sweep, name)]
    if given:
        raise UsageError(f"--{given[0].replace('_', '-')}: a served model is loaded by its server; leave it out")
    return replace(sweep, methods=(str(sweep.as_method),), baseline=False)


def _address(model: str) -> str:
    """The server's URL. Raises UsageError for what is none, and for one with a key in it."""
    url = model.removeprefix(PREFIX)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"model {PREFIX}…: write {PREFIX}http://HOST:PORT/v1")
    if parts.username or parts.password or parts.query:
        raise UsageError(f"model {PREFIX}…: keys come from the environment (OPENAI_API_KEY), not from the address")
    return url


def _client(model: str) -> Any:
    from openai import OpenAI

    key = os.environ.get("OPENAI_API_KEY") or "none"
    return OpenAI(base_url=_address(model), api_key=key, max_retries=_RETRIES, timeout=_PATIENCE)


def name_of(sweep: Sweep) -> str:
    """The model's name at the server: the one given, else the only one that it has."""
    if sweep.served_model is not None:
        return sweep.served_model
    from openai import OpenAIError

    try:
        names = [one.id for one in _client(sweep.model).with_options(max_retries=1, timeout=30).models.list()]
    except OpenAIError as error:
        raise UsageError(f"no model server answers at the address of --model ({_said(error)})") from None
    if len(names) != 1:
        listed = f"it has {', '.join(sorted(names)[:20])}" if names else "it lists none"
        raise UsageError(f"which model of the server? Give --served-model NAME ({listed})")
    return str(names[0])


def refuse_likelihood(cells: Sequence[Cell], tokenizer: Any) -> None:
    """Raise UsageError for a task that needs likelihood: a completions server gives text."""
    from ropebench.run import encoder_of, examples_of

    for cell in {cell.task_label: cell for cell in cells}.values():
        first = next(examples_of(cell, encoder_of(cell, tokenizer)), None)
        if first is not None and first.windows:
            raise UsageError(
                f"task {cell.task.name!r} needs likelihood, which a served model does not give; leave it out and take "
                "tasks that generate text, such as --tasks niah,ruler"
            )


def connect(sweep: Sweep, cell: Cell, tokenizer: Any) -> tuple[Any, Any]:
    """What `load` gives for a local model, without one, and what makes the runner.

    Raises UsageError where the server does not answer one short request.
    """
    from openai import OpenAIError

    assert cell.served is not None
    client = _client(sweep.model)
    try:
        client.with_options(max_retries=2).completions.create(
            model=cell.served.name, prompt="The", max_tokens=1, temperature=0
        )
    except OpenAIError as error:
        raise UsageError(f"the server gives no completion for model {cell.served.name!r} ({_said(error)})") from None
    loaded = SimpleNamespace(model=None, tokenizer=tokenizer, device="served", hardware=None)
    return loaded, partial(ServedRunner, client, cell.served.name)


def _said(error: Exception) -> str:
    """What a client's error says, in one line without an address."""
    message = getattr(error, "message", None) or str(error)
    return f"{type(error).__name__}: {str(message).strip().splitlines()[0][:200] if str(message).strip() else ''}"


@dataclass
class ServedRunner:
    """Answers of a server to prompts (`passes.Runner`), greedy."""

    client: Any
    name: str
    model: Any
    encoder: Any
    tokens_fed: int = 0
    _prompts: int = 0
    _counted: int = 0  # prompts whose tokens the server counted, too
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_AT_ONCE))

    def nll(self, ids: Sequence[int], keep: bool = False, reuse: bool = True) -> Any:
        raise UsageError("a served model gives no likelihood")

    def nll_of_each(self, texts: Sequence[Sequence[int]]) -> Sequence[Any]:
        raise UsageError("a served model gives no likelihood")

    def generate(self, ids: Sequence[int], max_new_tokens: int, stop: Sequence[str] = (), reuse: bool = True) -> Answer:
        """The server's answer: its text up to the first stop string, and the ids of that text."""
        return self.finish([Asked(tuple(ids), max_new_tokens, tuple(stop))])[0]

    def begin(self, asked: Asked) -> Any:
        return asked

    def finish(self, begun: Sequence[Any]) -> list[Answer]:
        """Answers to prompts, asked for side by side."""
        texts = [self.text_of(asked.ids) for asked in begun]
        replies = [*self._pool.map(self._reply, begun, texts)]
        return [self._answer(asked, reply) for asked, reply in zip(begun, replies, strict=True)]

    def batch(self, length: int) -> int:
        return _AT_ONCE

    def halve(self) -> bool:
        return False

    @property
    def sizes(self) -> dict[str, int]:
        """Whether the server has said of every prompt how many tokens it saw (1) or not (0)."""
        return {"server_counts_tokens": int(0 < self._prompts == self._counted)}

    def text_of(self, ids: Sequence[int]) -> str:
        """A prompt as the text that the tokenizer, which adds BOS by its own rule, turns into these very ids.

        Raises ValueError where there is none.
        """
        tokenizer, wanted = self.encoder.tokenizer, list(ids)
        added = [*tokenizer("")["input_ids"]][:1]
        rest = wanted[1:] if added and wanted[:1] == added else wanted
        text = str(tokenizer.decode(rest, skip_special_tokens=False, clean_up_tokenization_spaces=False))
        if list(tokenizer(text)["input_ids"]) != wanted:
            raise ValueError(
                "this prompt is no text: the tokenizer makes other ids of it than were counted (see --bos and "
                "--chat-template), so that a server would answer another one"
            )
        return text

    def _reply(self, asked: Asked, text: str) -> Any:
        more: Json = {"stop": list(asked.stop[:4])} if asked.stop else {}  # the protocol allows four
        return self.client.completions.create(
            model=self.name, prompt=text, max_tokens=asked.budget, temperature=0, seed=0, **more
        )

    def _answer(self, asked: Asked, reply: Any) -> Answer:
        usage = reply.usage
        self._prompts += 1
        if usage is not None and usage.prompt_tokens:
            self._counted += 1
            if usage.prompt_tokens != len(asked.ids):
                raise ValueError(
                    f"the server saw {usage.prompt_tokens} tokens where the prompt has {len(asked.ids)}: its tokenizer "
                    "or its BOS rule is not that of --tokenizer, or it cuts long prompts"
                )
        text = reply.choices[0].text
        text = text[: min((text.index(stop) for stop in asked.stop if stop in text), default=len(text))]
        ids = tuple(self.encoder.text(text))
        self.tokens_fed += len(asked.ids) + (usage.completion_tokens if usage else len(ids))
        return text, ids

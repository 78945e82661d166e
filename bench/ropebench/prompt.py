"""From text to the ids that a model is fed: one place for BOS, chat template and answer prefix.

Everything that counts tokens counts the ids made here, so a sample's length is the number of ids fed to the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ropebench.errors import UsageError, unknown

BOS_RULES = ("auto", "always", "never")

_TURN = "WHAT-THE-USER-SAYS"  # stands for the user's text where the template around it is looked at


class Encoder:
    """A tokenizer with a BOS rule and, or without, its chat template.

    `bos`: `auto` = what the tokenizer itself adds; `always`, as in the YaRN protocol; `never`. Raises UsageError where
    `always` meets a tokenizer without a BOS token, or `chat` one without a template.
    """

    def __init__(self, tokenizer: Any, bos: str = "auto", chat: bool = False) -> None:
        if bos not in BOS_RULES:
            raise unknown("BOS rule", bos, BOS_RULES)
        if chat and not getattr(tokenizer, "chat_template", None):
            raise UsageError("this tokenizer has no chat template; use --chat-template off")
        self.tokenizer = tokenizer
        self.bos = bos
        self.chat = chat
        self.bos_id: int | None = getattr(tokenizer, "bos_token_id", None)
        adds = list(tokenizer("a")["input_ids"])[:1] == [self.bos_id] if self.bos_id is not None else False
        if bos == "always" and self.bos_id is None:
            raise UsageError("this tokenizer has no BOS token; use --bos auto or --bos never")
        self.adds_bos = adds if bos == "auto" else bos == "always"
        added = getattr(tokenizer, "added_tokens_decoder", {}).items()
        self._special = {str(token): int(number) for number, token in added if token.special}
        # Where the template's own turn marker is the BOS token (SmolLM2), a prompt begins with one as it stands.
        around = self._ids(self._rendered(_TURN)) if chat else []
        self._marks_turns = around[:1] == [self.bos_id] and self.bos_id in self._one_bos(around, False)

    def text(self, text: str) -> list[int]:
        """Ids of a text alone: no BOS, no template. What reads like a special token (`<s>` in HTML) is plain text."""
        return self._ids(text, split_special_tokens=True)

    def _ids(self, text: str, **how: bool) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False, **how)["input_ids"])

    def document(self, ids: Sequence[int], length: int | None = None) -> tuple[int, ...]:
        """A document for likelihood: BOS by rule, then as many of its ids as make `length` (None: all)."""
        head = (self.bos_id,) if self.adds_bos and self.bos_id is not None else ()
        room = len(ids) if length is None else length - len(head)
        return (*head, *ids[:room])

    def prompt(self, text: str, answer_prefix: str = "") -> tuple[int, ...]:
        """The ids of a prompt: BOS by rule; with a chat template `text` is the user's turn and the answer prefix opens
        the assistant's, after its header. Text and prefix are encoded in one piece."""
        if not self.chat:
            ids = self.text(text + answer_prefix)
            return self._one_bos(ids, self.adds_bos)
        if any(word in text for word in self._special):  # the template's own markup, but plain text within a turn
            before, after = self._rendered(_TURN).split(_TURN)
            ids = [*self._ids(before), *self.text(text), *self._ids(after + answer_prefix.lstrip())]
        else:
            ids = self._ids(self._rendered(text) + answer_prefix.lstrip())
        return self._as_rendered(ids)

    def markup(self, text: str) -> tuple[int, ...]:
        """The ids of a string that somebody's code has rendered: what reads like a special token is one, and BOS stands
        at the front by rule, or once where the string brings it along."""
        return self._as_rendered(self._ids(text))

    def _as_rendered(self, ids: list[int]) -> tuple[int, ...]:
        if self._marks_turns:
            return tuple(ids)
        return self._one_bos(ids, self.adds_bos or (self.bos == "auto" and ids[:1] == [self.bos_id]))

    def render(self, turns: Sequence[Mapping[str, str]], open_answer: bool = True) -> str:
        """The chat template over `turns` (role and content). `open_answer` ends it with the assistant's header; else
        the last turn is the beginning of an answer, and is left open."""
        # A template that prints today's date would make another prompt every day, and one that thinks first would spend
        # the answer budget on that. Templates without these variables ignore them.
        fixed = {"date_string": "26 Jul 2024", "strftime_now": lambda _: "26 Jul 2024", "enable_thinking": False}
        rendered = self.tokenizer.apply_chat_template(
            list(turns),
            tokenize=False,
            add_generation_prompt=open_answer,
            continue_final_message=not open_answer,
            **fixed,
        )
        return str(rendered)

    def _rendered(self, text: str) -> str:
        return self.render([{"role": "user", "content": text}])

    def _one_bos(self, ids: list[int], wanted: bool) -> tuple[int, ...]:
        """`ids` with exactly one leading BOS, or none."""
        start = 0
        while self.bos_id is not None and start < len(ids) and ids[start] == self.bos_id:
            start += 1
        head = [self.bos_id] if wanted and self.bos_id is not None else []
        return (*head, *ids[start:])

    def special_ids(self, words: Sequence[str]) -> frozenset[int]:
        """The ids of those of the words that are special tokens: the text of an answer, read without them, never holds
        such a word."""
        return frozenset(self._special[word] for word in words if word in self._special)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens left out, spaces untouched."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def fill(build: Callable[[int], Sequence[int]], budget: int, guess: int, most: int) -> int:
    """The largest number of units (≤ `most`) whose prompt `build(units)` has at most `budget` ids; −1 when even 0 units
    do not fit. `guess` only speeds up the search. Token counts grow with units, so bisection finds it; it cannot
    hang."""
    if len(build(0)) > budget:
        return -1
    low, high = 0, most + 1  # low fits; high does not (or is past the end)
    probe = min(max(guess, 1), most)
    step = max(probe // 64, 1)
    while high - low > 1:
        if len(build(probe)) <= budget:
            low = probe
            probe = min(probe + step, (low + high) // 2 if high <= most else most)
        else:
            high = probe
            probe = max(probe - step, (low + high) // 2 if low > 0 else low + 1)
        step *= 2
        if not low < probe < high:
            probe = (low + high) // 2
    return low

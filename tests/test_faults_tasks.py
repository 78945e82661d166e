"""Faults of earlier tools in perplexity and needle tasks, each with its small case and its right value.

The number in a comment is the fault's number in the project's list of public reports.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from transformers import AutoTokenizer

from ropebench.corpus import PROOFPILE, Corpus, Document
from ropebench.prompt import Encoder
from ropebench.registry import Registry
from ropebench.task import Example, Output, Task, Window

TOKENIZERS = Path(__file__).with_name("data") / "tokenizers"

REGISTRY = Registry.load()
Proofpile: Any = REGISTRY.entry("task", "proofpile").cls
Niah: Any = REGISTRY.entry("task", "niah").cls
proofpile, niah = (sys.modules[cls.__module__] for cls in (Proofpile, Niah))


def encoder(name: str, bos: str = "auto", chat: bool = False) -> Encoder:
    return Encoder(AutoTokenizer.from_pretrained(TOKENIZERS / name), bos, chat)


def digits(tokens: int) -> str:
    """A text of exactly so many tokens under the bpe tokenizers."""
    return "".join(str(i % 10) for i in range(tokens))


def corpus(*texts: str) -> Corpus:
    return Corpus("texts", "invented", lambda: iter([Document(f"doc-{i}", text) for i, text in enumerate(texts)]))


def prose(number: int = 1500) -> str:
    rng = Random(0)
    words = "the a of module class name value object returns is sets with for list function type each".split()
    return "".join(" ".join(rng.choices(words, k=rng.randint(4, 12))).capitalize() + ". " for _ in range(number))


PROSE = corpus(prose())


class Seen(Encoder):
    """An encoder that keeps the text of the last prompt."""

    last = ""

    def prompt(self, text: str, answer_prefix: str = "") -> tuple[int, ...]:
        self.last = text + answer_prefix
        return super().prompt(text, answer_prefix)


def only(task: Task, length: int, text: Corpus, enc: Encoder) -> Example:
    (example,) = task.resolved([length]).examples(length, enc, 0, text)
    return example


# 23: "sliding window" and "truncated" mixed up
@pytest.mark.parametrize(
    "protocol, tokens, length, stride, bos, windows, scored",
    [
        ("sliding", 8192, 4096, 256, False, 17, 8191),
        ("sliding", 8192, 4096, 256, True, 18, 8192),
        ("sliding", 20, 8, 4, False, 4, 19),
        ("sliding", 20, 8, 4, True, 5, 20),
        ("truncated", 8192, 4096, 256, False, 1, 4095),
        ("truncated", 8192, 4096, 256, True, 1, 4095),
    ],
)
def test_23_windows_and_tokens_scored_of_each_protocol(
    protocol: str, tokens: int, length: int, stride: int, bos: bool, windows: int, scored: int
) -> None:
    enc = encoder("bpe-bos" if bos else "bpe")
    example = only(Proofpile(protocol, stride, tokens), length, corpus(digits(tokens)), enc)
    assert len(example.windows) == example.meta["windows"] == windows
    counts = [len(window.ids) - window.first_scored for window in example.windows]
    assert sum(counts) == example.meta["tokens_scored"] == scored
    ids = enc.text(digits(tokens))
    begin = 0 if bos else 1
    assert [i for w in example.windows for i in w.ids[w.first_scored :]] == ids[begin : begin + scored]
    if tokens == 20:
        assert counts == [7, 4, 4, 4, *([1] if bos else [])]


# 23: the result names mode, window, stride, BOS rule and tokens scored
def test_23_parameters_and_rows_name_the_protocol() -> None:
    task = Proofpile("sliding", 4, 20)
    assert task.params == {"protocol": "sliding", "stride": 4, "min_doc_tokens": 20}
    assert task.variant_name() == "sliding-4"
    assert only(task, 8, corpus(digits(20)), encoder("bpe")).meta["tokens_scored"] == 19


# 24: BOS added twice, or not at all
def test_24_one_bos_and_ten_tokens_scored() -> None:
    for enc in (encoder("bpe-bos"), encoder("bpe-bos", "always"), encoder("bpe", "always")):
        ids = enc.document(enc.text(digits(10)))
        assert list(ids).count(0) == 1
        assert ids[0] == 0
        assert len(ids) - Window(ids).first_scored == 10
        example = only(Proofpile("sliding", 4, 10), 8, corpus(digits(10)), enc)
        assert sum(len(window.ids) - window.first_scored for window in example.windows) == 10
        assert all(window.ids[0] == 0 and 0 not in window.ids[1:] for window in example.windows)
    for enc in (encoder("bpe"), encoder("bpe-bos", "never")):
        assert 0 not in enc.document(enc.text(digits(10)))


# 25: the wrong denominator
def test_25_each_measure_by_its_own_denominator() -> None:
    measures = proofpile.likelihood(24.0, 10, 6, 30)
    assert math.exp(measures["nll"]) == pytest.approx(11.0232, abs=5e-5)
    assert math.exp(measures["nats_per_word"]) == pytest.approx(54.5982, abs=5e-5)
    assert 2 ** measures["bits_per_byte"] == pytest.approx(2.2255, abs=5e-5)
    assert measures["bits_per_byte"] == pytest.approx(1.1542, abs=5e-5)
    units = {metric.name: (metric.unit, metric.derived) for metric in Proofpile.metrics}
    assert units["perplexity"] == ("per token", ("exp", "nll"))
    assert units["word_perplexity"] == ("per word", ("exp", "nats_per_word"))
    assert units["bits_per_byte"] == ("bits per byte", None)


# 26: documents shorter than the evaluated length
def test_26_documents_shorter_than_the_length_are_left_out() -> None:
    text, enc = corpus(digits(100), digits(40), digits(70)), encoder("bpe")
    used = list(Proofpile().resolved([64]).examples(64, enc, 0, text))
    assert [example.meta["document"] for example in used] == ["doc-0", "doc-2"]
    assert [example.tokens for example in used] == [64, 64]
    assert [example.meta["tokens_scored"] for example in used] == [63, 63]


def test_26_the_published_documents_are_the_same_at_every_length() -> None:
    text = replace(corpus(digits(131072), digits(131071), digits(200)), source=PROOFPILE)
    task, enc = Proofpile().resolved([64, 128], text), encoder("bpe")
    for length in (64, 128):
        used = list(task.examples(length, enc, 0, text))
        assert [example.meta["document"] for example in used] == ["doc-0"]
        assert [example.tokens for example in used] == [length]


# 32: answer budget, template and BOS not in the length
@pytest.mark.parametrize("name", ["bpe", "bpe-bos", "word-bos"])
@pytest.mark.parametrize("chat", [False, True])
def test_32_bos_template_prompt_prefix_and_answer_fit_the_length(name: str, chat: bool) -> None:
    for budget in (32, 128):
        example = next(Niah(max_new_tokens=budget).examples(4096, encoder(name, chat=chat), 0, PROSE))
        assert len(example.ids) <= 4096 - budget
        assert example.tokens == len(example.ids) + budget >= 0.95 * 4096


# 33: length measured with another model's tokenizer
def test_33_length_is_the_number_of_ids_fed() -> None:
    for name in ("bpe", "word"):
        seen = Seen(AutoTokenizer.from_pretrained(TOKENIZERS / name))
        example = next(Niah().examples(4096, seen, 0, PROSE))
        again = seen.tokenizer(seen.last, add_special_tokens=False)["input_ids"]
        assert list(example.ids) == again
        # One more word of this text is at most 9 letters and a stop.
        assert 4096 - 10 <= len(again) + 32 == example.tokens <= 4096


# 35: more than one BOS, one of them inside the prompt
@pytest.mark.parametrize("bos", ["auto", "always"])
@pytest.mark.parametrize("chat", [False, True])
def test_35_bos_once_and_at_the_head(bos: str, chat: bool) -> None:
    for example in islice(Niah().examples(1024, encoder("bpe-bos", bos, chat), 0, PROSE), 5):
        assert example.ids[0] == 0
        assert 0 not in example.ids[1:]


# 36: needle encoded with BOS, decoded into the text
@pytest.mark.parametrize("name", ["bpe", "bpe-bos"])
@pytest.mark.parametrize("variant", ["number", "passkey", "sentence"])
def test_36_the_needle_is_there_once_and_verbatim_at_every_depth(name: str, variant: str) -> None:
    seen, task = Seen(AutoTokenizer.from_pretrained(TOKENIZERS / name)), Niah(variant=variant)
    for i, example in enumerate(islice(task.examples(1024, seen, 0, PROSE), 11)):
        needle = task.words(0, i)[2]
        prompt = seen.tokenizer.decode(list(example.ids), clean_up_tokenization_spaces=False)
        assert prompt == ("<s>" if seen.adds_bos else "") + seen.last
        assert prompt.count(needle) == 1
        before, after = prompt.split(needle)
        assert (
            before[-1:] in ("", " ", "\n")
            or (i == 0 and before in ("", "<s>"))
            or (variant == "sentence" and before == "<s>")
        )
        assert after[0] in " \n"
        assert "<s>" not in seen.last
        assert "</s>" not in seen.last


# 36: text of the haystack that reads like a special token is text
def test_36_special_tokens_written_in_the_haystack_are_plain_text() -> None:
    enc = encoder("bpe-bos")
    markup = corpus("Struck out with <s> and </s> in old pages. " * 20)
    for example in islice(Niah().examples(1024, enc, 0, markup), 3):
        assert list(example.ids).count(0) == 1
        assert 1 not in example.ids
        assert "<s> and </s>" in enc.tokenizer.decode(list(example.ids))


# 37: the wording marked instead of the fact
@pytest.mark.parametrize(
    "answer, found",
    [
        ("eat a sandwich and sit in Dolores Park", 1.0),
        ("Honestly? I would say: Eat a sandwich, and sit in Dolores Park! Enjoy.", 1.0),
        ("The best thing to do in San Francisco is to walk across the bridge on a sunny day.", 0.0),
    ],
)
def test_37_the_key_phrase_counts_not_the_wording(answer: str, found: float) -> None:
    example = Example(targets=(niah.PROMPTS["sentence"][2],))
    assert Niah(variant="sentence").score(example, Output(answer))["key_phrase"] == found


# 44: a backslash and an n in the prompt; stops that are no real newlines
@pytest.mark.parametrize("name", sorted(entry.name for entry in REGISTRY.of("task")))
def test_44_prompts_hold_real_newlines(name: str) -> None:
    cls = REGISTRY.entry("task", name).cls
    length = 16384  # long enough for prompts with a worked example
    fetched = hasattr(cls, "needs_data")  # from the hub; a fixture of the same layout stands in
    task: Task = cls(data=str(TOKENIZERS.parent / name.partition("/")[0])) if fetched else cls()
    seen = Seen(AutoTokenizer.from_pretrained(TOKENIZERS / "bpe-bos"))
    example = next(task.resolved([length]).examples(length, seen, 0, PROSE if task.needs_corpus else None))
    assert bool(seen.last) == bool(example.ids)  # a document for likelihood is no prompt
    assert "\\n" not in seen.last
    assert all("\\n" not in stop for stop in example.stop)

"""Needle in a haystack: literals, filling, depth, order, refusals and scores."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from transformers import AutoTokenizer

from ropebench.corpus import NOISE, Corpus, Document, open_corpus, sentences
from ropebench.errors import UsageError
from ropebench.prompt import Encoder
from ropebench.registry import Registry
from ropebench.task import Example, Output

TOKENIZERS = Path(__file__).with_name("data") / "tokenizers"
NAMES = ["bpe", "bpe-bos", "word", "word-bos"]
WORDS = "the a of module class name value object returns is sets with for when list function type each one that".split()

Niah: Any = Registry.load().entry("task", "niah").cls
niah = sys.modules[Niah.__module__]


@cache
def prose(seed: int, number: int) -> str:
    rng = Random(seed)
    return "".join(" ".join(rng.choices(WORDS, k=rng.randint(4, 12))).capitalize() + ". " for _ in range(number))


def corpus(*texts: str) -> Corpus:
    return Corpus("texts", "invented", lambda: iter([Document(f"doc-{i}", text) for i, text in enumerate(texts)]))


PROSE = corpus(prose(0, 4000))


class Seen(Encoder):
    """An encoder that keeps the text of the last prompt."""

    last = ""

    def prompt(self, text: str, answer_prefix: str = "") -> tuple[int, ...]:
        self.last = text + answer_prefix
        return super().prompt(text, answer_prefix)


def seen(name: str = "bpe-bos", bos: str = "auto", chat: bool = False) -> Seen:
    return Seen(AutoTokenizer.from_pretrained(TOKENIZERS / name), bos, chat)


def draw(task: Any, length: int, encoder: Encoder, n: int, seed: int = 0, text: Corpus = PROSE) -> list[Example]:
    return list(islice(task.examples(length, encoder, seed, text), n))


# Literals: SHA-256 (first 16 hex digits) and length of the published strings, with their own placeholders


def mark(text: str) -> tuple[str, int]:
    return hashlib.sha256(text.encode()).hexdigest()[:16], len(text)


def test_number_is_rulers_template_in_the_singular() -> None:
    question, prefix, needle = niah.PROMPTS["number"]
    template = (question + prefix).replace("{key}", "{query}").replace("number", "{type_needle_v}")
    assert mark(template) == ("931ce9a842e91fa8", 324)
    assert mark(needle.replace("numbers", "{type_needle_v}")) == ("8b1728a938426e42", 63)


def test_number_is_lm_evals_ruler_prompt() -> None:
    package = find_spec("lm_eval")  # read, not imported: that takes many seconds
    if package is None or not package.submodule_search_locations:
        pytest.skip("lm_eval is not installed")
    source = Path(package.submodule_search_locations[0], "tasks", "ruler", "niah_utils.py").read_text(encoding="utf-8")
    plural = next(
        ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TEMPLATE"
    )
    assert plural.startswith("Some special magic {type_needle_v} are hidden")
    singular = plural
    for some, one in (("Some", "A"), ("are all", "is"), ("are", "is"), ("answers", "answer")):
        singular = singular.replace(some, one)
    assert niah.PROMPTS["number"][0] == singular.replace("{type_needle_v}", "number").replace("{query}", "{key}")


def test_passkey_is_landmark_attentions() -> None:
    question, prefix, needle = niah.PROMPTS["passkey"]
    description, context, ask = question.split("\n")
    assert mark(description) == ("c229a68af209126a", 148)
    assert context == "{context}"
    assert mark(needle.replace("{value}", "{pass_key}")) == ("92bc5e4aab7c87a1", 68)
    assert mark(ask + prefix) == ("f531c9bffd76c011", 37)
    assert mark(NOISE) == ("c2fcf70de6081e6f", 89)


def test_sentence_is_the_classic_needle() -> None:
    question, prefix, needle = niah.PROMPTS["sentence"]
    assert mark(f"\n{needle}\n") == ("c4fa94af1312044a", 97)
    assert mark(question.split("\n\n")[1].split("? ")[0] + "?") == ("71071c1cd438336f", 46)
    assert prefix == ""
    assert niah.KEY_PHRASE in needle


# Filling


@pytest.mark.parametrize("chat", [False, True], ids=["base", "chat"])
@pytest.mark.parametrize("name", NAMES)
def test_prompt_and_answer_fill_the_length(name: str, chat: bool) -> None:
    if chat and name == "word":
        pytest.skip("no chat template")
    encoder = seen(name, chat=chat)
    for length in (512, 1024, 4096, 16384):
        for example in draw(Niah(), length, encoder, 1 if length > 1024 else 3):
            assert example.skip is None
            assert 0.95 * length <= len(example.ids) + 32 == example.tokens <= length
            assert encoder.tokenizer.eos_token_id not in example.ids
            assert list(example.ids).count(encoder.bos_id) == (chat or encoder.adds_bos)


def test_the_documentation_at_hand_fills_the_length_too() -> None:
    examples = draw(Niah(), 2048, seen(), 5, text=open_corpus("installed"))
    assert all(example.skip is None and example.tokens >= 0.95 * 2048 for example in examples)


@pytest.mark.parametrize(
    "text", ["短い文です。" * 40, "x" * 3000, "Ein Satz. "], ids=["no spaces", "one line", "one sentence"]
)
def test_texts_of_other_kinds_fill_the_length(text: str) -> None:
    for example in draw(Niah(), 2048, seen(), 2, text=corpus(text)):
        assert example.skip is None
        assert 0.95 * 2048 <= example.tokens <= 2048


def test_a_short_haystack_is_repeated() -> None:
    encoder = seen("word")
    draw(Niah(variant="passkey"), 1024, encoder, 1, text=open_corpus("noise"))
    assert encoder.last.count("The grass is green.") > 20
    draw(Niah(), 1024, encoder, 1, text=corpus("First part.", "Second part."))
    assert "First part.\n\nSecond part.\n\nFirst part." in encoder.last


@pytest.mark.parametrize("length", [256, 300])
@pytest.mark.parametrize("variant", ["number", "passkey", "sentence"])
def test_small_lengths_end(length: int, variant: str) -> None:
    began = time.monotonic()
    for name in NAMES:
        try:
            examples = draw(Niah(variant=variant), length, seen(name), 5)
        except UsageError as error:
            assert f"niah: length {length} is too short; the smallest that works is" in str(error)  # noqa: PT017
        else:
            assert all(example.tokens <= length for example in examples)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("chat", [False, True], ids=["base", "chat"])
def test_the_smallest_length_that_is_named_works(chat: bool) -> None:
    encoder, task = seen(chat=chat), Niah(max_new_tokens=200)
    with pytest.raises(UsageError, match=r"niah: length 256 is too short; the smallest that works is (\d+)") as caught:
        draw(task, 256, encoder, 1)
    smallest = int(str(caught.value).split()[-1])
    assert all(example.tokens <= smallest for example in draw(task, smallest, encoder, 20))
    with pytest.raises(UsageError, match=f"the smallest that works is {smallest}"):
        draw(task, smallest - 1, encoder, 200)


# What a sample depends on


def test_the_same_seed_and_number_give_the_same_sample() -> None:
    five, again, other = (draw(Niah(depths=3), 512, seen(), 5, seed) for seed in (1, 1, 2))
    assert five == again
    assert draw(Niah(depths=3), 512, seen(), 2, 1) == five[:2]
    assert len({example.ids for example in [*five, *other]}) == 10
    assert len({example.targets for example in [*five, *other]}) > 8


def test_samples_are_the_ones_of_stored_records() -> None:
    """Prompts of version 1; a change here needs a higher `version`, or stored samples no longer compare."""
    texts = seen("word")
    draw(Niah(depths=5), 512, texts, 1)
    assert "for keen-lantern is: 1823334." in texts.last
    assert [example.targets[0] for example in draw(Niah(depths=5), 512, seen("bpe"), 3)] == [
        "1823334",
        "4436468",
        "3845133",
    ]
    assert Niah.version == 1


def test_samples_of_one_draw_share_a_haystack_and_a_cluster() -> None:
    encoder = seen("word")
    examples, beginnings = [], []
    for example in islice(Niah(depths=3, variant="sentence").examples(512, encoder, 0, PROSE), 6):
        examples.append(example)
        beginnings.append(encoder.last.replace(niah.PROMPTS["sentence"][2], "").split()[:20])
    assert [example.meta["cluster"] for example in examples] == ["draw-0"] * 3 + ["draw-1"] * 3
    assert beginnings[0] == beginnings[1] == beginnings[2] != beginnings[3]
    assert beginnings[3] == beginnings[4] == beginnings[5]


# Depth


def before_the_needle(text: str, needle: str) -> str:
    assert text.count(needle) == 1
    return text.split(needle)[0].split("\n", 1)[1]


@pytest.mark.parametrize("name", ["bpe", "word-bos"])
def test_the_recorded_depth_is_where_the_needle_is(name: str) -> None:
    encoder = seen(name)
    for i, example in enumerate(islice(Niah().examples(2048, encoder, 0, PROSE), 11)):
        *_, needle, value = Niah().words(0, i)
        assert example.targets == (value,)
        before = before_the_needle(encoder.last, needle)
        rest = encoder.last.split(needle)[1].rsplit("\n", 1)[0]
        assert before == "" or before.endswith(". ") or rest == ""
        here, whole = len(encoder.text(before)), len(encoder.text(before + rest.lstrip()))
        assert example.meta["depth"] == pytest.approx(here / whole, abs=2 / whole)
        # The nearest place between two sentences, counted in characters; in tokens a little more.
        hay = before + rest.lstrip()
        longest = max(map(len, hay.split(".")))
        assert abs(len(before) - example.meta["depth_wanted"] * len(hay)) <= longest / 2 + 1
        assert example.meta["depth"] == pytest.approx(example.meta["depth_wanted"], abs=0.04)


def test_a_grid_holds_every_depth_once_a_draw() -> None:
    wanted = [example.meta["depth_wanted"] for example in draw(Niah(), 256, seen("word"), 22)]
    assert sorted(wanted[:11]) == sorted(wanted[11:]) == pytest.approx([i / 10 for i in range(11)])
    assert [e.meta["depth_wanted"] for e in draw(Niah(depths=5), 256, seen("word"), 5)] == [0.5, 0.0, 1.0, 0.25, 0.75]


@pytest.mark.parametrize("depths", [1, 2, 3, 5, 11, 35, 100])
def test_every_beginning_of_the_order_is_balanced(depths: int) -> None:
    order = niah.balanced(depths)
    assert sorted(order) == list(range(depths))
    for n in range(3, depths + 1):
        some = [0, *sorted(order[:n]), depths - 1]
        gaps = [right - left for left, right in pairwise(some)]
        assert max(gaps) <= 4 * -(-depths // n)


def test_a_thousand_depths_take_no_time() -> None:
    began = time.monotonic()
    assert len(niah.balanced(1000)) == 1000
    assert time.monotonic() - began < 5


# The prompt as text


def test_base_and_chat_prompts_end_in_the_answer_prefix() -> None:
    base, chat = seen(), seen(chat=True)
    ids = draw(Niah(), 1024, base, 1)[0].ids
    key = base.last.split("magic number for ")[1].split()[0]
    assert base.decode(ids).endswith(
        f"in the provided text? The special magic number for {key} mentioned in the provided text is"
    )
    ids = draw(Niah(), 1024, chat, 1)[0].ids
    assert chat.decode(ids).endswith(
        f"[assistant] The special magic number for {key} mentioned in the provided text is"
    )
    assert chat.decode(ids).count("[user]") == 1


HOSTILE = (
    r"Braces {context} and {key} and {value} and {0} and %s. A group \1 \g<0> (.*) [a-z]+ $^. A \n that is no line. "
)


def test_a_haystack_may_hold_braces_and_regular_expressions() -> None:
    encoder = seen()
    example = draw(Niah(), 1024, encoder, 1, text=corpus(HOSTILE * 3))[0]
    *_, needle, value = Niah().words(0, 0)
    assert encoder.last.count(needle) == 1
    assert encoder.last.count("{context} and {key} and {value} and {0} and %s.") > 3
    assert r"\1 \g<0> (.*) [a-z]+ $^." in encoder.last
    assert example.targets == (value,)
    assert encoder.last.startswith("A special magic number is hidden")
    assert encoder.decode(example.ids) == encoder.last


@pytest.mark.parametrize("texts", [[], [""], [" \n ", "\n\n\t"]])
def test_a_corpus_without_text_is_refused(texts: Sequence[str]) -> None:
    with pytest.raises(
        UsageError, match="niah: the documents of texts hold no text; give other --docs, such as installed"
    ):
        draw(Niah(), 512, seen(), 1, text=corpus(*texts))


def test_empty_documents_among_others_are_harmless() -> None:
    assert draw(Niah(), 512, seen(), 1, text=corpus("", " ", prose(1, 50), "\n"))[0].skip is None


def test_a_pre_tokenised_corpus_is_refused() -> None:
    ready = replace(PROSE, label="ready", read=lambda: iter([Document("a", ids=(1, 2, 3))]))
    with pytest.raises(UsageError, match="niah: ready is pre-tokenised; a haystack needs text"):
        draw(Niah(), 512, seen(), 1, text=ready)


def test_no_more_of_a_corpus_is_read_than_is_needed() -> None:
    read = []

    def documents() -> Any:
        for i in range(10**6):
            read.append(i)
            yield Document(str(i), prose(0, 100))

    draw(Niah(), 512, seen(), 1, text=replace(PROSE, read=documents))
    assert len(read) < 10


@pytest.mark.parametrize("params", [{"depths": 0}, {"depths": -1}, {"max_new_tokens": 0}])
def test_parameters_that_cannot_work_are_refused_at_once(params: dict[str, int]) -> None:
    name, value = next(iter(params.items()))
    with pytest.raises(UsageError, match=f"niah: {name}={value} must be at least 1"):
        Niah(**params)


def test_variants_differ_in_scorer_and_default_text() -> None:
    made = {v: Niah(variant=v) for v in ("number", "passkey", "sentence")}
    assert {v: t.scorer_name() for v, t in made.items()} == {
        "number": "substring", "passkey": "substring", "sentence": "rouge1_recall"
    }  # fmt: skip
    assert {v: t.docs() for v, t in made.items()} == {
        "number": "installed",
        "passkey": "noise",
        "sentence": "installed",
    }
    assert {t.variant_name() for t in made.values()} == set(made)


# Scores


@pytest.mark.parametrize(
    "text, recall",
    [("1823334", 1), (" 1823334.\nOne of", 1), ("It is 1,823,334", 0), ("", 0), ("182333", 0), ("18 23334", 0)],
)
def test_number_is_found_as_a_substring(text: str, recall: int) -> None:
    assert Niah().score(Example(targets=("1823334",)), Output(text)) == {"recall": recall}


NEEDLE = niah.PROMPTS["sentence"][2]


@pytest.mark.parametrize(
    "answer, reference, value",
    [
        ("the cat sat", "the cat sat", 1.0),
        ("The CAT, sat!", "the cat sat on the mat", 0.5),  # 3 of 6 words; "the" counts once
        ("the the the", "the cat sat on the mat", 2 / 6),
        ("", "the cat", 0.0),
        ("dog", "the cat", 0.0),
        ("eat a sandwich and sit in Dolores Park", NEEDLE, 8 / 21),
    ],
)
def test_rouge_recall_by_hand_and_by_rouge_score(answer: str, reference: str, value: float) -> None:
    assert niah.rouge1_recall(answer, reference) == pytest.approx(value)
    scorer = pytest.importorskip("rouge_score.rouge_scorer", reason="rouge_score is not installed")
    theirs = scorer.RougeScorer(["rouge1"], use_stemmer=False).score(reference, answer)["rouge1"].recall
    assert theirs == pytest.approx(value)


def test_sentence_scores_recall_and_key_phrase() -> None:
    task, example = Niah(variant="sentence"), Example(targets=(NEEDLE,))
    assert task.score(example, Output(NEEDLE)) == {"recall": 1.0, "key_phrase": 1.0}
    assert task.score(example, Output("")) == {"recall": 0.0, "key_phrase": 0.0}
    assert draw(task, 512, seen(), 1)[0].targets == (NEEDLE,)


def test_sentences_end_where_a_reader_would_say() -> None:
    assert sentences("One. Two!  Three?") == [0, 5, 11, 17]
    assert sentences('He said "No." Then left') == [0, 14, 23]
    assert sentences("Title\n\nText 3.14 is pi") == [0, 7, 22]
    assert sentences("一。二！三") == [0, 2, 4, 5]
    assert sentences("") == [0]


def test_the_file_stays_one_that_a_newcomer_can_read() -> None:
    assert len(inspect.getsource(niah).splitlines()) <= 190

"""Perplexity of long documents: which documents, which windows, which tokens are scored, and the measures."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from ropebench.corpus import Corpus, Document
from ropebench.errors import UsageError
from ropebench.prompt import Encoder
from ropebench.registry import Registry
from ropebench.task import Example, Output

TOKENIZERS = Path(__file__).with_name("data") / "tokenizers"

Proofpile: Any = Registry.load().entry("task", "proofpile").cls
proofpile = sys.modules[Proofpile.__module__]


def encoder(name: str = "bpe", bos: str = "auto") -> Encoder:
    return Encoder(AutoTokenizer.from_pretrained(TOKENIZERS / name), bos)


def text_of(tokens: int) -> str:
    """A text of exactly so many tokens under the bpe tokenizers: digits, each a token of its own."""
    return "".join(str(i % 10) for i in range(tokens))


def corpus(*documents: Document | str | int) -> Corpus:
    """Documents from texts, or from numbers of tokens."""
    made = [
        d if isinstance(d, Document) else Document(f"doc-{i}", text_of(d) if isinstance(d, int) else d)
        for i, d in enumerate(documents)
    ]
    return Corpus("texts", "invented", lambda: iter(made))


def draw(task: Any, length: int, text: Corpus, enc: Encoder | None = None, n: int = 10) -> list[Example]:
    return list(islice(task.resolved([length]).examples(length, enc or encoder(), 0, text), n))


def scored_ids(example: Example, head: int) -> list[int]:
    """All scored ids in order, from all windows."""
    assert all(window.first_scored >= max(head, 1) for window in example.windows)
    return [i for window in example.windows for i in window.ids[window.first_scored :]]


def test_the_digits_of_these_tests_are_a_token_each() -> None:
    for tokens in (10, 100, 8192):
        assert len(encoder().text(text_of(tokens))) == tokens


# Which documents


def test_documents_keep_the_order_of_the_corpus_and_the_seed_changes_nothing() -> None:
    task, text = Proofpile(), corpus(70, 40, 100, 64, 63)
    used = draw(task, 64, text)
    assert [example.meta["document"] for example in used] == ["doc-0", "doc-2", "doc-3"]
    assert list(task.examples(64, encoder(), 99, text)) == used


def test_the_default_filter_is_the_longest_length_of_the_sweep() -> None:
    task = Proofpile().resolved([32, 128, 64])
    assert task.min_doc_tokens == 128
    text = corpus(100, 200, 128)
    assert {length: len(list(task.examples(length, encoder(), 0, text))) for length in (32, 64, 128)} == {
        32: 2, 64: 2, 128: 2
    }  # fmt: skip
    assert Proofpile(min_doc_tokens=150).resolved([32]).min_doc_tokens == 150
    assert len(draw(Proofpile(min_doc_tokens=150), 32, text)) == 1


@pytest.mark.parametrize("source", [
    "dwzhu/PoSE-Datasets/proof-pile/test.jsonl", "emozilla/proofpile-test-tokenized",
    "emozilla/proofpile-test-tokenized-mistral",
])  # fmt: skip
def test_the_published_sets_take_documents_of_131072_tokens(source: str) -> None:
    # As YaRN's code does at every length, so that the numbers beside the published ones are of the same documents.
    published = replace(corpus(100, 131072), source=f"hub:{source}")
    task = Proofpile().resolved([32, 64], published)
    assert task.params["min_doc_tokens"] == 131072  # and so it is in the cell
    assert [example.meta["document"] for example in draw(task, 64, published)] == ["doc-1"]
    assert Proofpile().resolved([32, 262144], published).min_doc_tokens == 262144
    assert Proofpile(min_doc_tokens=64).resolved([32], published).min_doc_tokens == 64  # what a person says wins
    assert Proofpile().resolved([32], replace(published, source="hub:somebody/else")).min_doc_tokens == 32
    assert Proofpile().resolved([32], corpus(100)).min_doc_tokens == 32


def test_a_request_that_no_document_meets_says_how_long_they_are() -> None:
    with pytest.raises(
        UsageError, match=r"proofpile: no document of texts has 64 tokens \(the longest has 63\); choose"
    ):
        draw(Proofpile(), 64, corpus(10, 63, 20))
    with pytest.raises(UsageError, match=r"\(the longest has 70\); .*, or proofpile:min_doc_tokens=64"):
        draw(Proofpile(min_doc_tokens=100), 64, corpus(70))
    with pytest.raises(UsageError, match=r"\(the longest has 0\)"):
        draw(Proofpile(), 64, corpus())


def test_what_is_too_short_by_its_bytes_is_not_tokenised() -> None:
    class Counting(Encoder):
        calls = 0

        def text(self, text: str) -> list[int]:
            self.calls += 1
            return super().text(text)

    counting = Counting(AutoTokenizer.from_pretrained(TOKENIZERS / "bpe"))
    before = counting.calls
    assert len(draw(Proofpile(), 64, corpus(*[20] * 50, 64, "é" * 33), counting)) == 2
    assert counting.calls == before + 2


@pytest.mark.parametrize(
    "params, says",
    [
        ({"min_doc_tokens": 0}, "min_doc_tokens=0 must be at least 1"),
        ({"min_doc_tokens": -2048}, "min_doc_tokens=-2048 must be at least 1"),
        ({"protocol": "sliding", "stride": 0}, "stride=0 must be at least 1"),
        ({"stride": 64}, "stride changes nothing under protocol=truncated; add protocol=sliding"),
    ],
)
def test_parameters_that_cannot_work_are_refused_at_once(params: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=f"proofpile: {says}"):
        Proofpile(**params)


# Which windows


@pytest.mark.parametrize("name, bos, head", [("bpe", "auto", 0), ("bpe-bos", "auto", 1), ("bpe", "always", 1)])
@pytest.mark.parametrize("length, stride, tokens", [(8, 4, 20), (8, 1, 20), (8, 7, 20), (16, 5, 16), (64, 16, 200)])
def test_sliding_scores_every_token_once_with_the_ids_around_it(
    name: str, bos: str, head: int, length: int, stride: int, tokens: int
) -> None:
    enc = encoder(name, bos)
    (example,) = draw(Proofpile("sliding", stride, tokens), length, corpus(tokens), enc)
    ids = enc.text(text_of(tokens))
    assert scored_ids(example, head) == ids[1 - head :]
    assert example.meta["tokens_scored"] == tokens - 1 + head
    for k, window in enumerate(example.windows):
        assert len(window.ids) <= length
        assert list(window.ids[head:]) == ids[k * stride : k * stride + length - head]
        assert window.ids[:head] == (enc.bos_id,) * head


def test_a_stride_that_would_leave_tokens_out_is_refused_with_what_works() -> None:
    task = Proofpile("sliding", 8, 20)
    assert scored_ids(draw(task, 8, corpus(20))[0], 0)
    with pytest.raises(UsageError, match=r"length 8 is too short for stride 8: .* or a length of at least 9"):
        draw(task, 8, corpus(20), encoder("bpe-bos"))
    with pytest.raises(UsageError, match="at least 256"):
        draw(Proofpile("sliding"), 255, corpus(300))


def test_truncated_is_one_window_from_the_beginning() -> None:
    ids = encoder().text(text_of(100))
    (example,) = draw(Proofpile(), 64, corpus(100))
    assert [list(window.ids) for window in example.windows] == [ids[:64]]
    assert (example.windows[0].first_scored, example.meta["tokens_scored"], example.tokens) == (1, 63, 64)
    (example,) = draw(Proofpile(), 64, corpus(100), encoder("bpe-bos"))
    assert list(example.windows[0].ids) == [0, *ids[:63]]
    assert example.meta["tokens_scored"] == 63


def test_a_shorter_length_is_a_prefix_of_a_longer_one() -> None:
    task = Proofpile().resolved([32, 64])
    short, long = (next(task.examples(n, encoder("bpe-bos"), 0, corpus(100))).windows[0].ids for n in (32, 64))
    assert long[:32] == short


# Pre-tokenised documents

PLAIN = "The class object returns a list of names for each module. A value is set when the type is known. " * 20


@pytest.mark.parametrize("with_bos", [False, True])
def test_pre_tokenised_documents_give_the_windows_of_their_text(with_bos: bool) -> None:
    enc = encoder("bpe-bos")
    ids = ((0,) if with_bos else ()) + tuple(enc.text(PLAIN))
    (ready,) = draw(Proofpile(), 256, corpus(Document("ready", ids=ids)), enc)
    (plain,) = draw(Proofpile(), 256, corpus(PLAIN), enc)
    assert ready.windows == plain.windows
    assert (ready.meta["bytes"], ready.meta["words"]) == (plain.meta["bytes"], plain.meta["words"])


@pytest.mark.parametrize("cut", range(250, 262))
def test_own_ids_are_accepted_wherever_the_part_that_is_looked_at_ends(cut: int) -> None:
    enc = encoder()
    ids = enc.text("größer 世界 — " * 100)[:cut]
    assert len(proofpile.ready_made(Document("ready", ids=tuple(ids)), enc)) == cut


@pytest.mark.parametrize("ids", [tuple(range(3, 400)), (10**6,) * 300, tuple(i * 7 % 497 + 3 for i in range(400))])
def test_ids_of_another_tokenizer_are_refused(ids: tuple[int, ...]) -> None:
    foreign = corpus(Document("ready", ids=ids))
    with pytest.raises(UsageError, match="proofpile: ready was tokenised for another model; use the raw documents"):
        draw(Proofpile(), 64, foreign, encoder())


def test_ids_made_with_words_are_refused_by_the_byte_tokenizer() -> None:
    ids = tuple(encoder("word").text(PLAIN))
    with pytest.raises(UsageError, match="tokenised for another model"):
        draw(Proofpile(), 64, corpus(Document("ready", ids=ids)), encoder())


# Measures


def score(example: Example, per_token: float) -> dict[str, float]:
    nll = tuple([per_token] * (len(window.ids) - window.first_scored) for window in example.windows)
    result: dict[str, float] = Proofpile().score(example, Output(nll=nll))
    return result


def test_measures_of_a_document() -> None:
    (example,) = draw(Proofpile(), 11, corpus("0 2 4 6 8 0 2 4 6 8"))
    total = 0.5 * example.meta["tokens_scored"]
    assert score(example, 0.5) == {
        "nll": 0.5,
        "nats_per_word": total / example.meta["words"],
        "bits_per_byte": pytest.approx(total / math.log(2) / example.meta["bytes"]),
    }


def test_tokens_of_all_windows_weigh_equally() -> None:
    (example,) = draw(Proofpile("sliding", 4, 20), 8, corpus(20))
    first, *rest = (len(window.ids) - window.first_scored for window in example.windows)
    output = Output(nll=([1.0] * first, *([2.0] * n for n in rest)))
    assert Proofpile().score(example, output)["nll"] == pytest.approx((7 * 1 + 12 * 2) / 19)


@pytest.mark.parametrize("name", ["bpe", "bpe-bos"])
@pytest.mark.parametrize("text", ["größer ", "世界。", "🙂🙃 ", "plain ", "ℚ⊂ℝ "])
def test_bytes_are_those_of_the_scored_tokens_even_when_a_character_is_cut(name: str, text: str) -> None:
    enc = encoder(name)
    head = int(enc.adds_bos)
    ids, whole = enc.text(text * 40), (text * 40).encode()
    # Bytes of each token, from the byte-level alphabet: a character of it is a byte.
    lengths = [len(token) for token in enc.tokenizer.convert_ids_to_tokens(ids)]
    assert sum(lengths) == len(whole)
    for length in range(16, 24):
        (example,) = draw(Proofpile(), length, corpus(text * 40), enc)
        true = sum(lengths[1 - head : length - head])
        assert true - 2 <= example.meta["bytes"] <= true


def test_words_are_those_of_the_scored_text() -> None:
    enc = encoder("bpe-bos")
    (example,) = draw(Proofpile(), 100, corpus(PLAIN), enc)
    assert example.meta["words"] == len(enc.decode(example.windows[0].ids).split())


def test_rows_name_document_hash_windows_and_tokens_scored() -> None:
    (example,) = draw(Proofpile("sliding", 4, 20), 8, corpus(20))
    assert example.meta == {
        "document": "doc-0", "document_sha256": Document("", text_of(20)).sha256, "cluster": "doc-0",
        "bytes": 19, "words": 1, "windows": 4, "tokens_scored": 19,
    }  # fmt: skip


def test_labels_tell_the_protocols_apart() -> None:
    assert Proofpile().variant_name() == ""
    assert Proofpile("sliding", 128).variant_name() == "sliding-128"
    assert Proofpile("sliding", 128).params == {"protocol": "sliding", "stride": 128, "min_doc_tokens": None}
    assert replace(Proofpile(), min_doc_tokens=64).docs().startswith("hub:dwzhu/PoSE-Datasets/")
    assert Proofpile.chat is False

"""One reader gives tasks their long text, and the prompts made of it stay what they are in stored results."""

from __future__ import annotations

from itertools import islice

import pytest

import fakes
from ropebench.corpus import Corpus, Document, texts
from ropebench.errors import UsageError
from ropebench.prompt import Encoder
from ropebench.record import ids_sha256
from ropebench.registry import Registry

NOTES = [
    f"Note {i} is about {'very ' * (i % 7)}little. And more (really)!\n\n  Its end, {i * i}.\n" for i in range(3000)
]


def corpus(*documents: Document) -> Corpus:
    return Corpus("notes", "invented", lambda: iter(documents))


MANY = corpus(*(Document(f"note-{i}", text) for i, text in enumerate(NOTES)))


# From before the tasks shared a reader: three samples of 2048 tokens. Another value is another task version.
@pytest.mark.parametrize(
    "name, sha256",
    [
        ("arithmetic/addition", "70522b1557980a52"),
        ("arithmetic/copy", "2c64c29286ec1a0c"),
        ("niah", "bd4bf8e1c964948f"),
        ("ruler/niah_single_2", "81d4609951678249"),
        ("ruler/niah_multiquery", "236aaf93b0584dd3"),
    ],
)
def test_prompts_in_long_text_are_frozen(name: str, sha256: str) -> None:
    task = Registry.load().build("task", name)[0]
    assert task.version == 1
    examples = islice(task.examples(2048, Encoder(fakes.tokenizer("bpe-bos")), 0, MANY), 3)
    assert ids_sha256([i for example in examples for i in example.ids])[:16] == sha256


def test_documents_are_taken_whole_until_there_is_enough() -> None:
    three = corpus(*(Document(str(i), "four") for i in range(3)))
    assert [len(texts("task", three, enough)) for enough in (1, 4, 5, 8, 9, 12, 13)] == [1, 1, 2, 2, 3, 3, 3]
    assert len(texts("task", three, 6, between=2)) == 1
    assert len(texts("task", three, 7, between=2)) == 2


def test_no_more_documents_are_read_than_needed() -> None:
    def read():
        yield Document("a", "text")
        raise AssertionError("read on")

    assert texts("task", Corpus("lazy", "invented", read), 4) == ["text"]


@pytest.mark.parametrize(
    "documents, said",
    [
        ([Document("a", ids=(1, 2))], r"^task: notes is pre-tokenised; a haystack needs text"),
        ([Document("a", "text"), Document("b", ids=(1, 2))], r"^task: notes is pre-tokenised"),
        ([], r"^task: the documents of notes hold no text; give other --docs"),
        ([Document("a", " \n"), Document("b")], r"^task: the documents of notes hold no text"),
    ],
)
def test_what_is_no_text_is_said(documents: list[Document], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        texts("task", corpus(*documents), 100)

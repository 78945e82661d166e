"""Samples are kept by content: what comes back is what was made, and never another task's, tokenizer's or corpus's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from time import process_time
from typing import Any, ClassVar

import numpy as np
import pytest

import counted
import fakes
from counted import WORDS, Counted, Plain, Words, fresh, kept, name
from ropebench import sample_cache
from ropebench.corpus import Corpus, Document, open_corpus
from ropebench.prompt import Encoder
from ropebench.registry import Registry
from ropebench.sample_cache import kept_examples
from ropebench.task import Example, Task, Window

DATA = Path(__file__).with_name("data") / "ruler"
INSTALLED = open_corpus("installed")


folder = counted.folder


# What comes back


@pytest.mark.parametrize("what", [entry.name for entry in Registry.load().of("task")])
def test_kept_samples_equal_those_made_anew_of_every_task(what: str, folder: Path) -> None:
    cls = Registry.load().entry("task", what).cls
    length = 6144 if what in ("ruler/cwe", "infinitebench/math_calc") else 2048  # those ask for more
    data = {"data": str(DATA.parent / what.partition("/")[0])} if hasattr(cls, "needs_data") else {}
    task = cls(**data).resolved([length])
    corpus, encoder = (INSTALLED if task.needs_corpus else None), Encoder(fakes.tokenizer())
    wanted = list(islice(task.examples(length, encoder, 0, corpus), 2))
    for _ in range(2):
        found = list(islice(kept_examples(task, length, encoder, 0, corpus), 2))
        assert found == wanted
        assert repr(found) == repr(wanted)  # 1 == 1.0 == True, and their types
    assert len(list(folder.iterdir())) == 1
    assert list(islice(kept_examples(task, length, encoder, 0, corpus, start=1), 1)) == wanted[1:]


def test_the_second_run_is_ten_times_faster(folder: Path) -> None:  # fault 34
    task, encoder = Registry.load().build("task", "ruler/niah_multikey_2")[0], Encoder(fakes.tokenizer())
    seconds = []
    for _ in range(2):
        began = process_time()
        found = kept(task, 20, 4096, encoder)
        seconds.append(process_time() - began)
        assert len(found) == 20
    assert seconds[1] < seconds[0] / 10


# What names a file


def test_anything_that_samples_depend_on_makes_another_file(monkeypatch: pytest.MonkeyPatch) -> None:  # faults 34, 45
    template = Words()
    template.chat_template = "{{ messages[0].content }}"
    template.apply_chat_template = lambda turn, **_: turn[0]["content"]  # type: ignore[attr-defined]
    chat = Encoder(template, chat=True)
    names = [
        name(),
        name(length=9),
        name(seed=1),
        name(Counted(size=4)),
        name(Plain()),
        name(encoder=Encoder(Words("other letters"))),
        name(encoder=Encoder(Words(adds_bos=True))),
        name(encoder=Encoder(Words(), "never")),
        name(encoder=chat),
        name(corpus=Corpus("a", "b", lambda: iter([]), identity="1")),
        name(corpus=Corpus("a", "b", lambda: iter([]), identity="2")),
        sample_cache._name(Counted(), 8, WORDS, 0, None, "hash of a plug-in"),
    ]
    template.chat_template = "{{ messages[0].content }}!"
    names.append(name(encoder=chat))
    monkeypatch.setattr(Counted, "version", 2)
    names.append(name())
    monkeypatch.setattr(sample_cache, "_ropebench", lambda: ["another source"])
    names.append(name())
    assert len(set(names)) == len(names)
    assert None not in names
    assert name() == name(encoder=Encoder(Words()))  # the content counts, not the object


def test_a_real_tokenizer_is_told_by_its_content() -> None:
    names = [name(encoder=Encoder(fakes.tokenizer(kind))) for kind in ("bpe", "bpe-bos", "word", "word-bos")]
    assert len(set(names)) == 4
    assert name(encoder=Encoder(fakes.tokenizer("bpe"))) == names[0]
    more = fakes.tokenizer("bpe")
    assert name(encoder=Encoder(more)) == names[0]
    more.add_tokens(["thing"])
    assert name(encoder=Encoder(more)) != names[0]
    assert name(encoder=Encoder(fakes.tokenizer("bpe"), chat=True)) != names[0]


@dataclass(frozen=True)
class Folder(Counted):
    """Reads a folder, as tasks with data do; `says` whether it then says which."""

    says: ClassVar[bool] = True
    data_sha256: str | None = None
    data: str = field(default="", compare=False)

    @property
    def params(self) -> dict[str, Any]:
        return {"data_sha256": self.data_sha256}

    def resolved(self, lengths: Any, corpus: Any = None) -> Task:
        return replace(self, data_sha256=f"hash of {self.data}") if self.says else self


def test_a_folder_is_known_by_the_hash_of_what_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    a = name(Folder(data="a"))
    assert a == name(Folder(data="a").resolved([8]))
    assert a != name(Folder(data="b"))
    monkeypatch.setattr(Folder, "says", False)
    assert name(Folder(data="a")) is None


def test_ruler_questions_of_another_file_are_other_samples(tmp_path: Path) -> None:
    cls = Registry.load().entry("task", "ruler/qa_1").cls
    copy = tmp_path / "copy"
    copy.mkdir()
    text = (DATA / "dev-v2.0.json").read_text(encoding="utf-8")
    (copy / "dev-v2.0.json").write_text(text, encoding="utf-8")
    assert name(cls(data=str(copy))) == name(cls(data=str(DATA)).resolved([8]))
    other = tmp_path / "other"
    other.mkdir()
    (other / "dev-v2.0.json").write_text(text.replace("the", "teh"), encoding="utf-8")
    encoder = Encoder(fakes.tokenizer())
    same, changed = (kept(cls(data=str(where)), 3, 2048, encoder) for where in (copy, other))
    assert same == list(islice(cls(data=str(DATA)).examples(2048, encoder, 0), 3))
    assert changed == list(islice(cls(data=str(other)).examples(2048, encoder, 0), 3)) != same


@pytest.mark.parametrize("what", ["corpus", "tokenizer", "encoder"])
def test_what_cannot_be_told_by_its_content_is_not_kept(what: str, folder: Path) -> None:
    class Seen(Encoder):
        pass

    text = Corpus("texts", "made by hand", lambda: iter([Document("a", "b")]))
    changed: dict[str, Any] = {
        "corpus": {"corpus": text},
        "tokenizer": {"encoder": Encoder(fakes.Letters())},
        "encoder": {"encoder": Seen(Words())},
    }[what]
    assert kept(Counted(), **changed) == kept(Counted(), **changed)
    assert Counted.made == [0, 1, 2, 3] * 2
    assert not folder.exists()


@pytest.mark.parametrize("value", [(1, 2), np.float64(0.5), np.int64(3), float("nan"), {1: 2}, {3}, Path("a")])
def test_a_sample_that_would_come_back_changed_is_made_again(value: Any, folder: Path) -> None:
    class Odd(Plain):
        def examples(self, length: int, encoder: Any, seed: int, corpus: Any = None) -> Iterator[Example]:  # type: ignore[override]
            for example in Counted.examples(self, length, encoder, seed):
                yield replace(example, meta={"value": value})

    for _ in range(2):
        assert [type(example.meta["value"]) for example in kept(Odd(), 2)] == [type(value)] * 2


def test_every_field_of_an_example_and_a_window_is_kept() -> None:
    made = fresh(Counted(), 1)[0]
    empty = Example()
    for part, bare in ((made, empty), (made.windows[0], Window(()))):
        assert all(getattr(part, f.name) != getattr(bare, f.name) for f in dataclasses.fields(part) if f.name != "skip")
    for example in (*fresh(Counted(), 3), empty):
        packed = sample_cache._packed(7, example)
        assert packed is not None
        assert sample_cache._unpacked(packed) == (7, example)

"""The bundled model's data: the same texts give the same tokenizer and rows; rows are samples of our tasks with the
answers marked, within the window; and nothing that an evaluation asks or reads is among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

import tiny_samples
from ropebench.corpus import Corpus, Document, open_corpus
from ropebench.errors import UsageError
from ropebench.lens.tiny import prose as prose_module
from ropebench.lens.tiny import train as trainer
from ropebench.lens.tiny import vocabulary
from ropebench.lens.tiny.prose import docstrings
from ropebench.lens.tiny.recipe import FIRST_TRAINING_SEED, RECIPE, STAGES
from ropebench.lens.tiny.rows import ANSWER, OTHER, PROSE, Row, Rows
from ropebench.lens.tiny.sources import Sources
from ropebench.prompt import Encoder
from tiny_samples import TEXT

KINDS = ("prose", "echo", "niah", "lines", "passkey", "kv", "vt", "drills")


@pytest.fixture(name="tokenizer")
def made_tokenizer() -> Tokenizer:
    return tiny_samples.tokenizer()


@pytest.fixture(name="rows")
def made_rows() -> Rows:
    return tiny_samples.rows()


def text_of(rows: Rows, row: Row) -> str:
    return str(rows.tokenizer.decode(row.ids[1 : row.filled].tolist(), skip_special_tokens=False))


def answers_of(rows: Rows, row: Row) -> list[str]:
    """What the ids marked as answers say, one text for each unbroken run."""
    marked = np.flatnonzero(row.roles == ANSWER)
    runs = np.split(marked, np.flatnonzero(np.diff(marked) > 1) + 1)
    return [rows.tokenizer.decode(row.ids[run].tolist(), skip_special_tokens=False) for run in runs if run.size]


# The tokenizer


def test_the_same_texts_give_the_same_tokenizer() -> None:
    made = [vocabulary.train([TEXT, *Sources().texts(7, 20)], 600) for _ in range(2)]
    assert made[0].to_str() == made[1].to_str()
    assert made[0].get_vocab_size() == 600
    assert list(Sources().texts(7, 3)) != list(Sources().texts(8, 3))


def test_transformers_reads_the_tokenizer_and_it_adds_the_beginning(tokenizer: Tokenizer, tmp_path: Path) -> None:
    vocabulary.save(tokenizer, tmp_path, 512)
    read = AutoTokenizer.from_pretrained(tmp_path)
    encoder = Encoder(read)
    text = "A naïve 日本 line:\n\tvalue  = 10245,  and\n\n 3.5\r\n"
    ids = encoder.text(text)
    assert encoder.decode(ids) == text
    assert encoder.adds_bos
    assert encoder.prompt(text) == (0, *ids)
    assert (read.bos_token_id, read.eos_token_id) == (0, 1)
    assert 1 not in encoder.text(f"not the end: {vocabulary.END}")


def test_digits_are_tokens_of_their_own(tokenizer: Tokenizer) -> None:
    for text in (" 10245", "12 plus 34", "x1y22"):
        tokens = tokenizer.encode(text).tokens
        assert [token.strip("Ġ") for token in tokens if re.search("[0-9]", token)] == re.findall("[0-9]", text)
    assert tokenizer.encode(" 10245", add_special_tokens=False).tokens == ["Ġ1", "0", "2", "4", "5"]
    assert all(tokenizer.token_to_id(f"Ġ{digit}") for digit in range(10))


# Rows


@pytest.mark.parametrize("width", [128, 256, 512])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_lie_within_the_width_and_fill_it(rows: Rows, kind: str, width: int) -> None:
    made = [rows.of_kind(kind, width, number) for number in range(25)]
    for row in made:
        assert row.ids.shape == row.roles.shape == (width,)
        assert row.filled <= width
        assert np.flatnonzero(row.ids == rows.begin).tolist() == [0]
        assert (row.ids[row.filled :] == rows.end).all()
        assert (row.roles == ANSWER).any() == (kind != "prose")
        assert not (row.roles[row.filled :] == ANSWER).any()
        assert row.ids.max() < rows.tokenizer.get_vocab_size()
    assert np.mean([row.filled for row in made]) > 0.8 * width


def test_a_kind_that_does_not_fit_is_refused(rows: Rows) -> None:
    with pytest.raises(UsageError, match="no row of kind 'niah' fits into 64 tokens"):
        rows.of_kind("niah", 64, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_depends_on_seed_and_number_alone(tokenizer: Tokenizer, rows: Rows, kind: str) -> None:
    again, other = Rows(tokenizer, TEXT, 0), tiny_samples.rows(seed=1)
    first = rows.of_kind(kind, 256, 5)
    assert again.of_kind(kind, 256, 5).ids.tolist() == first.ids.tolist()
    assert rows.of_kind(kind, 256, 6).ids.tolist() != first.ids.tolist()
    assert other.of_kind(kind, 256, 5).ids.tolist() != first.ids.tolist()


def test_each_stage_mixes_its_kinds_in_their_shares(rows: Rows) -> None:
    stage = STAGES[-1]
    kinds = [rows.row(stage, number).kind for number in range(200)]
    for kind, share in stage.shares.items():
        assert kinds.count(kind) / 200 == pytest.approx(share / sum(stage.shares.values()), abs=0.01)


def right_answers(kind: str, text: str) -> Iterator[str]:
    """What a reader of the row's text would answer, in order: worked out apart from the code that made it."""
    end = re.escape(vocabulary.END)
    for found in re.finditer(r"(?:What is (\d+) (plus|minus) (\d+)\?|Copy the number (\d+)\.)\nAnswer:", text):
        a, what, b, number = found.groups()
        value = number or str(int(a) + int(b) if what == "plus" else int(a) - int(b))
        yield f"{found.end():06}| {value}"
    if kind == "echo":
        for part in text.split(vocabulary.END):
            half = len(part) // 2
            if part[:half] == part[half + 1 :] and part:
                yield f"{text.index(part) + half:06}|{part[:half]}"
    if kind == "kv":
        shown = dict(re.findall(r"^([a-zA-Z'-]+): (\d{5})$", text.split("\n\nWhat")[0], re.MULTILINE))
        for found in re.finditer(rf"^([\w'-]+): \d{{5}}{end}", text, re.MULTILINE):
            yield f"{found.start() + len(found[1]) + 1:06}| {shown[found[1]]}"
    if kind in ("niah", "lines"):
        shown = dict(re.findall(r"special magic numbers for ([\w'-]+) is: (\d{7})\.", text))
        for found in re.finditer(r"The special magic number for ([\w'-]+) mentioned in the provided text is", text):
            yield f"{found.end():06}| {shown[found[1]]}"
    if kind == "passkey":
        value = re.findall(r"The pass key is (\d+)\. Remember it\.", text)[0]
        yield f"{text.index('What is the pass key? The pass key is') + 37:06}| {value}"
    if kind == "vt":
        body = text.split("\n\nWhat")[0]
        given = dict(re.findall(r"^VAR ([A-Z]{3}) = (.+)$", body, re.MULTILINE))
        for found in re.finditer(r"\?\nVAR ([A-Z]{3}) =", text):
            said, name = "", given[found[1]]
            while name.startswith("VAR "):
                said, name = f"{said}{name} = ", given[name[4:]]
            yield f"{found.end():06}| {said}{name}"


@pytest.mark.parametrize("kind", KINDS[1:])
def test_what_is_marked_as_answer_is_the_right_answer(rows: Rows, kind: str) -> None:
    for number in range(30):
        row = rows.of_kind(kind, 512, number)
        wanted = [line[7:] for line in sorted(right_answers(kind, text_of(rows, row)))]
        marked = [answer.removesuffix(vocabulary.END).removesuffix("\n") for answer in answers_of(rows, row)]
        assert marked == wanted
        assert wanted


def test_rows_are_in_the_words_of_the_tasks(rows: Rows) -> None:
    """A model that has learnt the rows meets the same prompt in the evaluation: both ends of it, to the letter."""
    sources = rows.sources
    encoder = Encoder(AutoTokenizer.from_pretrained(Path(__file__).with_name("data") / "tokenizers" / "bpe"))
    corpus = Corpus("text", "invented", lambda: iter([Document("text", TEXT)]))
    blank = re.compile(r"\d+|[\w']+-[\w'-]+|\b[A-Z]{3}\b")  # values, keys, names of variables
    for kind, task in (("niah", sources.niah), ("passkey", sources.passkey), ("kv", sources.kv), ("vt", sources.vt)):
        prompt = blank.sub("_", encoder.decode(next(task.examples(512, encoder, 0, corpus)).ids))
        row = rows.of_kind(kind, 512, 1)
        first_answer = int(np.flatnonzero(row.roles == ANSWER)[0])
        shown = blank.sub("_", rows.tokenizer.decode(row.ids[1:first_answer].tolist()))
        asked = -2 if kind in ("kv", "vt") else -1
        assert shown.split("\n")[asked:] == prompt.split("\n")[asked:]
        assert shown[:30] == prompt[:30]
        assert kind == "vt" or shown.split("\n")[0] == prompt.split("\n")[0]


def test_evaluation_samples_are_not_among_the_rows(rows: Rows) -> None:
    """Task streams of training have seeds that no sweep has; values of seven digits would hardly meet by chance."""
    numbers = {value for n in range(300) for value in re.findall(r"\d{7}", text_of(rows, rows.of_kind("niah", 256, n)))}
    assert len(numbers) > 300
    assert not numbers & {rows.sources.niah.words(seed, i)[3] for seed in range(5) for i in range(200)}
    assert rows.seed >= FIRST_TRAINING_SEED > 2**24


# Natural text


def test_the_first_part_of_the_manual_is_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose_module, "docstrings", lambda folder: iter(["Some docstring."]))
    found = prose_module.installed()
    (manual,) = (document.text for document in open_corpus("installed").documents())
    assert manual.startswith(found.held_out)
    assert len(found.held_out) >= prose_module.HELD_OUT
    assert found.train.startswith(manual[len(found.held_out) :].strip()[:70])
    assert found.train.endswith("Some docstring.\n")
    assert len(found.train) > 200_000
    held_out, train = ({" ".join(p.split()) for p in t.split("\n\n")} for t in (found.held_out, found.train))
    assert [paragraph[:60] for paragraph in held_out & train if len(paragraph) > 200] == []
    assert [paragraph[:60] for paragraph in prose_module.without_repeats(manual, "").split("\n\n")][:9] == [
        paragraph[:60] for paragraph in manual.split("\n\n")
    ][:9]


def test_a_paragraph_is_read_once() -> None:
    long, other, short = "many words " * 20, "other words " * 20, "See also:"
    text = "\n\n".join([short, long, short, other, long.replace(" ", "\n "), other])
    assert prose_module.without_repeats(text, "x\n\n" + other) == "\n\n".join([short, long, short])


def test_docstrings_come_in_order_without_tests(tmp_path: Path) -> None:
    long = "This docstring has more than eighty letters, which is what makes it worth reading, number {}."
    (tmp_path / "test").mkdir()
    files = {"b.py": [2, 1], "a.py": [1, 3], "test/c.py": [4]}
    for name, numbers in files.items():
        functions = (f'def f{n}():\n    """{long.format(n)}"""\n' for n in numbers)
        (tmp_path / name).write_text('"""Short."""\n' + "".join(functions), encoding="utf-8")
    (tmp_path / "broken.py").write_text("def", encoding="utf-8")
    assert list(docstrings(tmp_path)) == [long.format(n) for n in (1, 3, 2, 1)]


def test_tokens_count_by_what_they_are(rows: Rows) -> None:
    made = [rows.of_kind("niah", 256, 1), rows.of_kind("prose", 256, 1)]
    batch = trainer.batch_of(made, RECIPE)
    by_role = {OTHER: RECIPE.other_weight, PROSE: RECIPE.prose_weight, ANSWER: RECIPE.answer_weight}
    for n, row in enumerate(made):
        expected = [by_role[int(role)] if 0 < at < row.filled else 0.0 for at, role in enumerate(row.roles)]
        assert batch.weights[n].tolist() == pytest.approx(expected)
        assert batch.answers[n].tolist() == (row.roles == ANSWER).tolist()

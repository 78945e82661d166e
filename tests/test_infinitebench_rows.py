"""InfiniteBench's published rows: read by name, chosen by size, cut in the middle of their ids, and counted apart
where the answer was cut away. Numbers in comments are those of the project's list of public reports."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from fakes import FakeEngine, Letters, cell, loaded, tokenizer, writer
from ropebench.errors import UsageError
from ropebench.infinitebench import SUBSETS
from ropebench.infinitebench.prompts import TEMPLATES, around, filled
from ropebench.infinitebench.rows import FEATURES, HUB, REVISION, row_of, rows_of
from ropebench.infinitebench.samples import ANSWER_CUT, middle
from ropebench.prompt import Encoder
from ropebench.registry import Registry
from ropebench.run import run_cells
from ropebench.store import Stored, samples
from ropebench.task import Example, Output, Task

DATA = Path(__file__).with_name("data") / "infinitebench"
LETTERS = Encoder(Letters())

every_subset = pytest.mark.parametrize("subset", SUBSETS)


@cache
def made(subset: str, words: str = "") -> Any:
    return Registry.load().build("task", f"infinitebench/{subset}:data={DATA}{words}")[0]


def stream(task: Task, length: int, encoder: Encoder = LETTERS, seed: int = 0) -> Iterator[Example]:
    return task.examples(length, encoder, seed)


def whole(subset: str) -> dict[int, Example]:
    """All samples, uncut, by row."""
    return {example.meta["row"]: example for example in stream(made(subset), 100_000)}


# Reading


# 41: split names, explicit types, and a file without the options column
@every_subset
def test_41_every_subset_is_read_by_its_file_name(subset: str) -> None:
    examples = list(stream(made(subset), 100_000))
    lines = (DATA / f"{subset}.jsonl").read_text("utf-8").splitlines()
    assert sorted(example.meta["row"] for example in examples) == list(range(len(lines)))
    assert all(example.skip is None and example.targets for example in examples)
    if subset == "longbook_sum_eng":
        assert all("options" not in line for line in map(json.loads, lines))
        assert rows_of(subset, DATA / f"{subset}.jsonl")[0].options == ()


def test_columns_have_stated_types_whatever_a_file_has() -> None:
    assert FEATURES == {
        "id": "int64", "context": "string", "input": "string", "answer": "list[string]", "options": "list[string]"
    }  # fmt: skip
    row = row_of(3, {"id": "7", "content": "c", "input": "i", "answer": [[1, 2.5], "x"], "options": None, "len": 3})
    assert (row.number, row.id, row.context, row.answers, row.options) == (3, 7, "c", ("1", "2.5", "x"), ())
    for wrong in ({}, {"context": "c", "input": 3, "answer": "a"}, {"context": "c", "input": "", "answer": []}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            row_of(0, wrong)


@pytest.mark.parametrize("content, says", [("", "has no row"), ("{}\n", "row 0 is not laid out"), ("x\n", "row 0")])
def test_a_file_of_another_layout_is_said(content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "passkey.jsonl").write_text(content)
    task = Registry.load().build("task", f"infinitebench/passkey:data={tmp_path}")[0]
    with pytest.raises(UsageError, match=f"infinitebench/passkey: passkey.jsonl.*{says}"):
        next(stream(task, 4096))


def test_the_files_hash_is_identity_and_its_folder_is_not(tmp_path: Path) -> None:
    task = made("passkey").resolved([4096])
    content = (DATA / "passkey.jsonl").read_bytes()
    assert task.params["data_sha256"] == hashlib.sha256(content).hexdigest()
    assert str(DATA) not in str(task.params)
    copy = tmp_path / "passkey.jsonl"
    copy.write_bytes(content)
    assert replace(task, data=str(tmp_path)) == task
    copy.write_bytes(content + b"\n")
    with pytest.raises(UsageError, match="another file than data_sha256"):
        next(stream(replace(task, data=str(tmp_path)), 4096))


def test_the_hub_is_read_at_a_pinned_revision() -> None:
    assert Registry.load().build("task", "infinitebench/passkey")[0].data == f"{HUB}@{REVISION}"
    assert len(REVISION) == 40


@every_subset
def test_a_hub_that_is_not_reached_is_said_when_a_run_is_planned(subset: str) -> None:
    with pytest.raises(UsageError) as caught:
        Registry.load().build("task", f"infinitebench/{subset}")[0].resolved([8192])
    assert "from the hub" in str(caught.value)
    assert f"get {subset}.jsonl and write infinitebench/{subset}:data=FOLDER" in str(caught.value)
    synthetic = subset in ("passkey", "number_string", "kv_retrieval", "code_run", "math_find")
    assert (f"infinitebench_generated/{subset} needs no download" in str(caught.value)) == synthetic


def test_a_folder_without_the_file_is_said(tmp_path: Path) -> None:
    task = Registry.load().build("task", f"infinitebench/code_run:data={tmp_path}")[0]
    with pytest.raises(UsageError, match=r"holds no code_run\.jsonl; infinitebench_generated/code_run"):
        task.resolved([4096])


# Which rows


def test_the_order_is_drawn_by_the_seed_and_a_larger_n_goes_on() -> None:
    orders = {seed: [e.meta["row"] for e in stream(made("passkey"), 9999, seed=seed)] for seed in range(4)}
    assert all(sorted(order) == list(range(6)) for order in orders.values())
    assert len({tuple(order) for order in orders.values()}) > 1
    assert [e.meta["row"] for e in islice(stream(made("passkey"), 9999), 3)] == orders[0][:3]


def test_rows_are_chosen_by_the_size_of_their_whole_prompt_under_the_tokenizer() -> None:
    sizes = {row: example.meta["prompt_tokens"] for row, example in whole("longbook_qa_eng").items()}
    least, most = sorted(sizes.values())[1], sorted(sizes.values())[3]
    task = made("longbook_qa_eng", f":min_tokens={least}:max_tokens={most}")
    chosen = [example.meta["row"] for example in stream(task, 100_000)]
    assert sorted(chosen) == sorted(row for row, size in sizes.items() if least <= size <= most)
    every = [example.meta["row"] for example in stream(made("longbook_qa_eng"), 100_000)]
    assert chosen == [row for row in every if row in chosen]
    assert task.variant_name() == f"min_tokens={least}:max_tokens={most}"
    denser = Encoder(tokenizer("bpe-bos"), chat=True)
    for example in stream(made("longbook_qa_eng"), 100_000, denser):
        assert example.meta["prompt_tokens"] == len(example.ids) < sizes[example.meta["row"]]


def test_no_row_of_the_wanted_size_is_said_with_the_sizes_there_are() -> None:
    sizes = sorted(example.meta["prompt_tokens"] for example in whole("code_run").values())
    with pytest.raises(UsageError, match=rf"none of the 6 rows .* they have {sizes[0]} to {sizes[-1]}"):
        next(stream(made("code_run", ":min_tokens=100k"), 200_000))
    with pytest.raises(UsageError, match="max_tokens=5 is below min_tokens=9"):
        made("code_run", ":min_tokens=9:max_tokens=5")
    for words in (":min_tokens=-1", ":max_tokens=0", ":max_new_tokens=0"):
        with pytest.raises(UsageError, match="must be at least"):
            made("code_run", words)


def test_the_setting_of_the_mrrope_paper_can_be_said() -> None:
    registry = Registry.load()
    for name in registry.expanded("task", "infinitebench:min_tokens=100k:max_tokens=128k"):
        task = registry.build("task", name)[0]
        assert (task.params["min_tokens"], task.params["max_tokens"], task.default_n) == (102400, 131072, 100)


# What is fed


@every_subset
@pytest.mark.parametrize("prompts", list(TEMPLATES))
def test_a_row_that_fits_is_fed_whole(subset: str, prompts: Any) -> None:
    rows = rows_of(subset, DATA / f"{subset}.jsonl")
    for example in stream(made(subset, f":prompts={prompts}"), 100_000):
        assert LETTERS.decode(example.ids) == filled(subset, prompts, rows[example.meta["row"]])
        assert (example.meta["truncated"], example.meta["tokens_cut"], example.meta["answer_cut"]) == (False, 0, False)


# 32, 35: answer budget, template and BOS are part of the length; one BOS, and the template's ends survive the cut
@every_subset
@pytest.mark.parametrize("name, chat", [("bpe", False), ("bpe-bos", False), ("bpe-bos", True), ("word-bos", True)])
def test_32_prompt_and_answer_budget_fill_the_length_and_never_pass_it(subset: str, name: str, chat: bool) -> None:
    if (name, subset) == ("word-bos", "longbook_qa_chn"):
        pytest.skip("that tokenizer knows no Chinese")
    encoder = Encoder(tokenizer(name), chat=chat)
    task = made(subset, ":max_new_tokens=20:prompts=gpt4")
    uncut = {example.meta["row"]: example.ids for example in stream(task, 100_000, encoder)}
    length = min(map(len, uncut.values())) - 20
    for example in stream(task, length, encoder):
        ids = uncut[example.meta["row"]]
        if example.ids:
            assert example.tokens == len(example.ids) + 20 == length
            assert list(example.ids).count(encoder.bos_id) == list(ids).count(encoder.bos_id)
            assert (example.ids[:20], example.ids[-20:]) == (ids[:20], ids[-20:])
            assert example.meta["tokens_cut"] == len(ids) - len(example.ids) > 0
        else:
            assert example.skip


# 42: middle truncation, and the pair that it takes away
def test_42_the_middle_goes_and_an_odd_id_stays_at_the_end() -> None:
    assert [*middle(range(20), 7)[0], *middle(range(20), 7)[1]] == [0, 1, 2, 16, 17, 18, 19]
    assert [len(part) for part in middle(range(20), 0)] == [0, 0]


def test_42_a_pair_that_is_cut_away_is_flagged_and_counted_apart() -> None:
    every = whole("kv_retrieval")
    length = len(every[0].ids) * 2 // 3
    rows = rows_of("kv", DATA / "kv_retrieval.jsonl")
    cut = {}
    for example in stream(made("kv_retrieval"), length):
        row = rows[example.meta["row"]]
        assert example.meta["truncated"]
        assert example.tokens == length
        cut[row.number] = example.meta["answer_cut"]
        assert (row.answers[0] in LETTERS.decode(example.ids)) != cut[row.number]
        assert example.skip == (ANSWER_CUT if cut[row.number] else None)
    assert not cut[0]
    assert not cut[5]
    assert cut[2]
    assert 2 <= sum(cut.values()) <= 4


@pytest.mark.parametrize(
    "subset, share, expected",
    [
        ("passkey", 0.5, {True, False}),
        ("number_string", 0.5, {True, False}),
        ("code_run", 0.8, {True, False}),
        ("code_debug", 0.8, {True, False}),
        ("longdialogue_qa_eng", 0.7, {True, False}),
        ("longbook_qa_eng", 0.4, {True, False, None}),  # one label stands nowhere in the book
        ("longbook_qa_chn", 0.7, {True, False}),
        ("longbook_choice_eng", 0.6, {True, False}),
        ("longbook_sum_eng", 0.6, {None}),
        ("math_find", 0.7, {True, False}),
    ],
)
def test_42_whether_the_answer_is_still_there(subset: str, share: float, expected: set[bool | None]) -> None:
    every, rows = whole(subset), rows_of(subset, DATA / f"{subset}.jsonl")
    task = made(subset, ":max_new_tokens=5")
    found = set()
    for number, uncut in every.items():
        length = int(share * len(uncut.ids)) + 5
        example = next(e for e in stream(task, length) if e.meta["row"] == number)
        assert example.meta["truncated"], example.skip
        found.add(example.meta["answer_cut"])
        assert example.skip == (ANSWER_CUT if example.meta["answer_cut"] else None)
        if subset in ("passkey", "number_string"):
            assert (rows[number].answers[0] in LETTERS.decode(example.ids)) != example.meta["answer_cut"]
    assert found == expected


def test_42_of_math_calc_only_as_many_terms_are_needed_as_can_be_answered() -> None:
    for new_tokens, cut in ((4, False), (30, True)):
        task = made("math_calc", f":prompts=gpt4:max_new_tokens={new_tokens}")
        size = len(filled("math_calc", "gpt4", rows_of("calc", DATA / "math_calc.jsonl")[0]))
        example = next(e for e in stream(task, size - 30 + new_tokens) if e.meta["row"] == 0)
        assert example.meta["answer_cut"] == cut
        assert len(example.targets) == new_tokens
        assert example.meta["values"] == 40


def test_what_is_cut_away_is_counted_in_the_record(tmp_path: Path) -> None:
    task = made("passkey").resolved([600])
    out = writer(tmp_path)
    (record,) = run_cells([cell(task, length=600, n=6)], loaded(), Stored(), out, engine=FakeEngine())
    rows = list(samples(tmp_path, record["cell_id"]))
    gone = [row for row in rows if row["meta"]["answer_cut"]]
    assert record["outcome"]["status"] == "ok"
    assert (record["condition"]["n_scored"], record["condition"]["n_skipped"]) == (6 - len(gone), len(gone)) != (6, 0)
    assert {row["skip"] for row in gone} == {ANSWER_CUT}
    assert all(row["meta"]["truncated"] and row["meta"]["tokens_cut"] > 0 and row["tokens"] == 600 for row in rows)
    assert record["task"]["scorer"] == "infinitebench_official_2024_06"
    assert record["outcome"]["metrics"]["accuracy"]["n"] == 6 - len(gone)


def test_truncate_skip_skips_what_does_not_fit_with_its_size() -> None:
    sizes = {row: len(example.ids) for row, example in whole("longdialogue_qa_eng").items()}
    length = sorted(sizes.values())[2] + 40
    for example in stream(made("longdialogue_qa_eng", ":truncate=skip"), length):
        size = sizes[example.meta["row"]]
        assert example.skip == (None if size + 40 <= length else f"the prompt has {size} tokens, {length - 40} fit")
        assert not example.meta["truncated"]


@every_subset
def test_a_length_without_room_for_the_question_is_refused_with_the_smallest_that_works(subset: str) -> None:
    task = made(subset, ":max_new_tokens=9")
    with pytest.raises(
        UsageError, match=f"infinitebench/{subset}: length 30 is too short .*smallest that works"
    ) as error:
        next(stream(task, 30))
    smallest = int(str(error.value).split()[-1])
    first = next(stream(task, smallest))
    assert first.tokens <= smallest
    row = rows_of(subset, DATA / f"{subset}.jsonl")[first.meta["row"]]
    before, after = around(subset, "yarn_mistral", row)
    text = LETTERS.decode(first.ids)
    assert text.startswith(before)
    assert text.endswith(after)


def test_where_the_needle_is_is_written_after_the_cut() -> None:
    rows = rows_of("passkey", DATA / "passkey.jsonl")
    for length in (100_000, 1000):
        for example in stream(made("passkey"), length):
            text = LETTERS.decode(example.ids)
            at = text.find(rows[example.meta["row"]].answers[0])
            assert example.meta.get("depth") == (at / len(text) if at >= 0 else None)
    assert len({example.meta["cluster"] for example in whole("longbook_qa_eng").values()}) == 2  # two books


def test_a_perfect_answer_scores_1_and_none_scores_nothing() -> None:
    for subset in SUBSETS:
        task = made(subset)
        for example in stream(task, 100_000):
            best = task.score(example, Output(", ".join(example.targets[: 99 if subset == "math_calc" else 1])))
            assert best[task.primary.name] == (0.0 if example.targets == ("STAMP PAID",) else 1.0)
            assert task.score(example, Output(""))[task.primary.name] == 0.0

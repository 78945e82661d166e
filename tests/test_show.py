"""`ropebench show --sample`: a prompt is made again from its record, with the very data that the record names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fakes
from ropebench import cli, replay, sample_cache
from ropebench.errors import UsageError
from ropebench.store import read, samples

DATA = Path(__file__).with_name("data") / "ruler"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of a random tiny model on a task that reads a folder, and on one that does not."""
    folder = tmp_path_factory.mktemp("show")
    fakes.save_tiny(folder / "tiny")
    (folder / "mine.toml").write_text(f'[mine]\nsource = "folder:{folder / "tiny"}"\ninstruct = false\n')
    words = ["--model", "mine", "--models", str(folder / "mine.toml"), "--lengths", "1k", "--n", "2"]
    tasks = f"ruler/qa_1:data={DATA},ruler/niah_single_1"
    assert cli.main(["run", *words, "--tasks", tasks, "--results", str(folder / "results")]) == 0
    return folder / "results"


def cell_of(results: Path, task: str) -> str:
    return next(str(record["cell_id"]) for record in read(results) if record["task"]["name"] == task)


def show(capsys: pytest.CaptureFixture[str], results: Path, task: str, *more: str) -> tuple[int, Any, str]:
    """Exit code, the sample, and what was said."""
    capsys.readouterr()
    words = [cell_of(results, task), "--sample", "1", "--json", "--results", str(results)]
    code = cli.main(["show", *words, "--models", str(results.parent / "mine.toml"), *more])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else None, said.err


def test_the_folder_is_named_with_data(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, sample, _ = show(capsys, results, "ruler/qa_1", "--data", str(DATA))
    assert code == 0
    assert sample["prompt_head"].startswith("Answer the question based on the given documents.")
    assert sample["prompt_tail"].endswith(" Answer:")


def test_without_it_the_flag_is_named_and_the_rest_is_shown(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, sample, _ = show(capsys, results, "ruler/qa_1")
    assert code == 0
    assert sample["prompt"].startswith("cannot be made again: ruler/qa_1: ")
    assert sample["prompt"].endswith("(here: --data FOLDER)")
    assert sample["targets"]


def test_another_file_is_refused(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dev-v2.0.json").write_bytes((DATA / "dev-v2.0.json").read_bytes() + b"\n")
    code, sample, said = show(capsys, results, "ruler/qa_1", "--data", str(tmp_path))
    assert (code, sample) == (2, None)
    assert "dev-v2.0.json is another file than data_sha256=8aaf74475788e7fe" in said
    assert "(here: --data FOLDER)" in said


def test_a_task_without_data_takes_none(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = show(capsys, results, "ruler/niah_single_1", "--data", str(DATA))
    assert code == 2
    assert "task 'ruler/niah_single_1' reads no data of its own" in said
    code, sample, _ = show(capsys, results, "ruler/niah_single_1")
    assert code == 0
    assert "special magic number" in sample["prompt_head"]


def test_other_documents_than_the_cells_are_refused(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = next(record for record in read(results) if record["task"]["name"] == "ruler/niah_single_1")
    text = {"identity": "another", "label": "elsewhere", "source": "folder x", "revision": None}
    record = {**record, "task": {**record["task"], "corpus": text}}
    row = samples(results, record["cell_id"])[1]
    with pytest.raises(UsageError, match="not the documents of this cell"):
        replay.prompt_again(record, row, "noise", [], str(results.parent / "mine.toml"))


def test_the_prompt_made_anew_and_the_one_kept_are_the_stored_one(
    results: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ROPEBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(sample_cache, "WORTH", 0.0)
    for task, data in (("ruler/qa_1", str(DATA)), ("ruler/niah_single_1", None)):
        record = replay.find_record(results, cell_of(results, task))
        row = replay.find_row(results, record, 1)
        for _ in range(2):
            example, _ = replay.prompt_again(record, row, None, [], str(results.parent / "mine.toml"), data)
            assert example.tokens == row["tokens"] <= 1024
    assert len(list((tmp_path / "samples").iterdir())) == 2

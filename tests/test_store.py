"""The results folder: what is written comes back, what is torn is reported, what is bad is named by file and line."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes import Coins, Few, cell, writer
from ropebench import lines
from ropebench.errors import UsageError
from ropebench.record import SCHEMA, canonical, digest, ids_sha256, provenance, summary
from ropebench.store import NotStored, Stored, Writer, append, newest_ok, read, samples

Json = dict[str, Any]
GOLDEN = Path(__file__).parent / "data" / "schema"


def record(cell_id: str = "c1", status: str = "ok", created: str = "2026-01-01T00:00:00Z", **more: Any) -> Json:
    return {
        "schema": SCHEMA, "kind": "run", "cell_id": cell_id, "created": created, "outcome": {"status": status},
        "condition": {"n_requested": 4, "n_scored": 4, "n_skipped": 0}, **more,
    }  # fmt: skip


def row(cell_id: str = "c1", index: int = 0, **more: Any) -> Json:
    return {
        "schema": SCHEMA, "kind": "sample", "cell_id": cell_id, "index": index, "prompt_sha256": "f" * 64,
        "scores": {}, "skip": None, **more,
    }  # fmt: skip


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    to = Writer(tmp_path / "new" / "results")
    one, two = record(created="2026-01-02T00:00:00Z"), record("c2", value=0.1 + 0.2, text="é\n\u2028")
    rows = [row(index=1), row(index=0, meta={"depth": 1 / 3})]
    for item in (one, two):
        to.record(item)
    for item in rows:
        to.sample(item)
    assert read(to.folder) == [two, one]  # oldest first
    assert samples(to.folder) == [rows[1], rows[0]]
    assert samples(to.folder, "c2") == []
    assert sorted(f.name for f in to.folder.iterdir()) == [f"{to.run_id}.jsonl", f"{to.run_id}.samples.jsonl"]
    assert len(to.path.read_bytes().splitlines()) == 2


def test_a_missing_folder_holds_nothing(tmp_path: Path) -> None:
    assert read(tmp_path / "no") == []
    assert samples(tmp_path / "no") == []
    assert Stored.read(tmp_path / "no") == Stored()


@pytest.mark.parametrize("end", [b'{"schema":1,"cell_id":"c3', '{"schema":1,"cell_id":"é'.encode()[:-1], b"\0\0\0"])
def test_a_torn_last_line_is_reported_and_skipped(tmp_path: Path, end: bytes) -> None:
    file = tmp_path / "old.jsonl"
    file.write_bytes(canonical(record()).encode() + b"\n" + end)
    said: list[str] = []
    assert read(tmp_path, said.append) == [record()]
    assert said == ["old.jsonl:2: the last line is torn (a run was cut off); skipped"]


def test_a_torn_line_is_reported_without_being_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "old.jsonl").write_text("{")
    with caplog.at_level(logging.WARNING):
        assert read(tmp_path) == []
    assert "old.jsonl:1" in caplog.text


def test_a_whole_last_line_without_its_newline_counts(tmp_path: Path) -> None:
    (tmp_path / "old.jsonl").write_text(canonical(record()))
    said: list[str] = []
    assert read(tmp_path, said.append) == [record()]
    assert said == []


@pytest.mark.parametrize("line", [
    '{"schema":1,"cell_id":"c3', "[]", "nonsense", '"text"', "{}", '{"schema":1}', '{"schema":"1","cell_id":"c"}',
    '{"schema":true,"cell_id":"c"}', '{"schema":1,"cell_id":"c"}', '{"schema":1,"cell_id":"c","kind":"run"}',
    '{"schema":1,"cell_id":"c","kind":"run","outcome":{"status":"fine"},"condition":{}}',
    canonical(record())[:-1] + ',"value":NaN}', canonical(record())[:-1] + ',"value":-Infinity}', "[" * 100_000,
])  # fmt: skip
def test_any_other_bad_line_is_an_error_with_file_and_line(tmp_path: Path, line: str) -> None:
    good = canonical(record()) + "\n"
    (tmp_path / "old.jsonl").write_text(good + "\n" + line + "\n" + good)
    with pytest.raises(UsageError, match=r"^old\.jsonl:3: "):
        read(tmp_path)


def test_a_bad_sample_row_is_an_error_with_file_and_line(tmp_path: Path) -> None:
    bad = row()
    del bad["prompt_sha256"]
    (tmp_path / "old.samples.jsonl").write_text(canonical(row()) + "\n" + canonical(bad) + "\n")
    with pytest.raises(UsageError, match=r"^old\.samples\.jsonl:2: "):
        samples(tmp_path)


def test_a_schema_from_the_future_asks_for_an_upgrade(tmp_path: Path) -> None:
    (tmp_path / "new.jsonl").write_text(canonical(record(schema=99)) + "\n")
    with pytest.raises(UsageError, match=r"new\.jsonl:1: schema 99 is newer"):
        read(tmp_path)


def test_an_old_schema_is_upgraded_at_read_time_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "UPGRADES", {
        -1: lambda old: {**old, "schema": 0, "steps": [-1]},
        0: lambda old: {**old, "schema": SCHEMA, "steps": [*old["steps"], 0]},
    })  # fmt: skip
    file = tmp_path / "old.jsonl"
    file.write_text(canonical(record(schema=-1)) + "\n")
    before = file.read_bytes()
    assert read(tmp_path)[0]["steps"] == [-1, 0]
    assert file.read_bytes() == before


def test_every_upgrade_step_has_a_golden_file() -> None:
    missing = [step for step in lines.UPGRADES if not list((Path(__file__).parent / "data").rglob(f"schema-{step}.*"))]
    assert missing == []


def test_schema_1_is_read_with_what_it_does_not_say_as_null() -> None:
    # The golden files hold one record of the first evidence and its rows, as schema 1 wrote them.
    (old,) = read(GOLDEN)
    rows = samples(GOLDEN)
    assert old["schema"] == rows[0]["schema"] == SCHEMA
    assert old["series"] is None
    assert old["condition"]["first_id"] is None
    assert (old["cost"]["runs"], old["cost"]["partial"]) == (None, None)
    assert old["cost"]["seconds"] > 0
    assert [(row["index"], row["series"], row["cost"]) for row in rows] == [(i, None, None) for i in range(5)]
    written = json.loads((GOLDEN / "schema-1.jsonl").read_text())
    kept = {group: {k: v for k, v in old[group].items() if k in written[group]} for group in ("condition", "cost")}
    assert {**old, **kept, "schema": 1} == {**written, "series": None}


@pytest.mark.parametrize("group", ["condition", "cost"])
def test_a_line_of_schema_1_that_is_not_whole_is_named(tmp_path: Path, group: str) -> None:
    (tmp_path / "old.jsonl").write_text(canonical({**record(schema=1), "outcome": 3, group: 3}) + "\n")
    with pytest.raises(UsageError, match=r"^old\.jsonl:1: not a whole ropebench record"):
        read(tmp_path)


def test_the_newest_ok_record_of_a_cell_wins() -> None:
    old, new = record(created="1", value=1), record(created="2", value=2)
    failed = record(status="error", created="3")
    other = record("c2", status="out_of_memory", created="1")
    later = record("c2", status="error", created="2")
    assert newest_ok([old, new, failed, other, later, {"kind": "lens", "cell_id": "c9"}]) == [new, later]
    assert newest_ok([failed, old]) == [old]


def test_the_newest_row_of_a_sample_wins(tmp_path: Path) -> None:
    for run, value in (("20260101T000000000001Z-ffffff", 1.0), ("20260101T000000000002Z-000000", 2.0)):
        writer(tmp_path, run).sample(row(scores={"right": value}))
    assert samples(tmp_path)[0]["scores"] == {"right": 2.0}


def test_runs_of_one_second_have_files_of_their_own_in_order(tmp_path: Path) -> None:
    runs = [Writer(tmp_path).run_id for _ in range(20)]
    assert len(set(runs)) == 20
    assert [run.split("-")[0] for run in runs] == sorted(run.split("-")[0] for run in runs)
    assert list(tmp_path.iterdir()) == []  # files appear with their first line


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with pytest.raises(UsageError, match="is a file, not a folder"):
        Writer(tmp_path / "results")
    with pytest.raises(UsageError, match="is a file, not a folder"):
        read(tmp_path / "results")
    with pytest.raises(UsageError, match="cannot be written"):
        Writer(tmp_path / "results" / "below")


@pytest.mark.parametrize("name", ["a\0b", "x" * 300])
def test_a_name_that_no_folder_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        Writer(tmp_path / name)


def test_a_folder_that_cannot_be_written_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "touch", refuse)  # root may write anywhere
    with pytest.raises(UsageError, match=r"cannot be written: Permission denied; name another with --results"):
        Writer(tmp_path)


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "run.jsonl"
    append(file, record())
    whole, write = file.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:7]))
    with pytest.raises(NotStored, match=r"only 7 of \d+ bytes"):
        append(file, record())
    assert file.read_bytes() == whole


def test_a_failing_write_names_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(NotStored, match="No space left on device"):
        append(tmp_path / "run.jsonl", record())


def test_not_a_number_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        append(tmp_path / "run.jsonl", {"value": float("nan")})
    assert not (tmp_path / "run.jsonl").exists()


APPENDING = """
import sys
from ropebench.store import Writer
to = Writer(sys.argv[1])
for i in range(50):
    to.sample({"schema": 1, "kind": "sample", "cell_id": sys.argv[2], "index": i, "prompt_sha256": "f", "scores": {},
               "text": "x" * 5000})
"""


def test_processes_that_append_at_once(tmp_path: Path) -> None:
    started = [subprocess.Popen([sys.executable, "-c", APPENDING, str(tmp_path), name]) for name in ("a", "b", "c")]
    assert [process.wait(timeout=60) for process in started] == [0, 0, 0]
    assert [(r["cell_id"], r["index"]) for r in samples(tmp_path)] == [(c, i) for c in "abc" for i in range(50)]


def stored(of: Any, **condition: int) -> Stored:
    counts = {"n_requested": 4, "n_scored": 4, "n_skipped": 0, **condition}
    return Stored({of.id: record(of.id, condition=counts)})


def test_done_is_an_ok_record_with_the_wanted_samples() -> None:
    one = cell(Coins(), n=4)
    assert stored(one).done(one)
    assert stored(one).done(cell(Coins(), n=2))
    assert not stored(one).done(cell(Coins(), n=5))
    assert not stored(one).done(cell(Coins(), n=4, seed=1))
    assert not Stored().done(one)
    assert not Stored({one.id: record(one.id, status="error")}).done(one)
    assert not Stored({one.id: record(one.id, status="unsupported")}).done(one)


def test_a_source_that_is_used_up_is_done_whatever_n() -> None:
    one = cell(Few(), n=1000)
    assert stored(one, n_requested=10, n_scored=2, n_skipped=1).done(one)
    assert not stored(one, n_requested=3, n_scored=2, n_skipped=1).done(one)  # there may be more


def test_hashes_are_stable() -> None:
    assert canonical({"b": [1, 0.5, None], "a": "é"}) == '{"a":"é","b":[1,0.5,null]}'
    assert digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1}) == "d3626ac30a87e6f7"
    assert ids_sha256([1, 2, 3]) == "7c8f5059290305cec8323d79521f0353c9ac308b60cb4c1976340d0ce4a121d5"
    assert ids_sha256([1, 23]) != ids_sha256([12, 3])


def test_summary_is_the_mean_and_its_standard_error() -> None:
    assert summary([]) == {"value": None, "stderr": None, "n": 0}
    assert summary([0.5]) == {"value": 0.5, "stderr": None, "n": 1}
    assert summary([0.0, 1.0, 1.0, 0.0]) == {"value": 0.5, "stderr": pytest.approx(0.288675134595), "n": 4}


def test_provenance_holds_no_path_and_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret" / "texts").mkdir(parents=True)
    words = (
        "ropebench", "run", "--docs", f"name={tmp_path}/texts", f"--docs=niah:{tmp_path}/texts",
        f"--model={tmp_path}/m",
        "secret/texts", "--docs", "hub:owner/name/file.jsonl", "owner/model", "yarn:beta_fast=16", "hf_AbC123", "~/x/y",
        "../up/file.py", "--n", "a:1,b:2", "--token=hf_AbC123",
    )  # fmt: skip
    made = provenance(words, "cpu")
    assert made["argv"] == [
        "ropebench", "run", "--docs", "name=texts", "--docs=niah:texts", "--model=m", "texts", "--docs",
        "hub:owner/name/file.jsonl", "owner/model", "yarn:beta_fast=16", "hf_…", "y", "file.py", "--n", "a:1,b:2",
        "--token=hf_…",
    ]  # fmt: skip
    text = json.dumps(made)
    assert os.uname().nodename not in text
    assert str(tmp_path.parent) not in text
    assert {"python", "ropebench", "torch", "transformers", "datasets", "lm_eval"} == set(made["versions"])

"""A stranger's records are looked over: layout, identity, and every number from its sample rows again."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from ropebench import store
from ropebench.cli import main
from ropebench.record import digest
from ropebench.validate import GROUPS, OPTIONAL, SAMPLE, TOP, coverage, identity_of, problems

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"


@pytest.fixture(scope="module")
def run() -> tuple[list, list]:
    """The stored runs of today's layout, as they were read."""
    records = [r for r in store.newest_ok(store.read(RESULTS)) if r["series"] is not None]
    cells = {record["cell_id"] for record in records}
    return records, [row for row in store.samples(RESULTS) if row["cell_id"] in cells]


@pytest.fixture
def one(run) -> tuple[dict, list]:
    """One stored record with a metric that is derived or not, and its rows, to be spoiled."""
    record = copy.deepcopy(next(r for r in run[0] if r["condition"]["n_scored"] > 3))
    rows = [copy.deepcopy(row) for row in run[1] if row["cell_id"] == record["cell_id"]]
    return record, [row for row in rows if row["series"] == record["series"]]


def fatal(record, rows) -> list[str]:
    return [one.text for one in problems([record], rows) if one.fatal]


def test_every_stored_number_comes_out_of_its_rows_again():
    records = [record for record in store.newest_ok(store.read(RESULTS)) if record["model"]["base"] == "unscaled"]
    assert len(records) > 50
    found = problems(records, store.samples(RESULTS))
    assert [str(problem) for problem in found if problem.fatal] == []


def test_what_is_spoiled_is_found(one):
    record, rows = one
    assert fatal(record, rows) == []
    name = next(iter(rows[0]["scores"]))

    def spoiled(change) -> str:
        changed, own = copy.deepcopy(record), copy.deepcopy(rows)
        change(changed, own)
        return " | ".join(fatal(changed, own))

    def set_in(group, key, value):
        return lambda r, _: r[group].__setitem__(key, value)

    cases = {
        "cell_id is": set_in("condition", "length", 99),
        "and what the record describes": lambda r, _: r["method"]["inv_freq"].__setitem__(3, 0.5),
        "samples_sha256 is not": lambda _, own: own[0].__setitem__("prompt_sha256", "f" * 64),
        "is recorded as": lambda _, own: own[0]["scores"].__setitem__(name, 0.123456),
        "says": lambda _, own: own.pop(),
        "sample rows are missing": lambda _, own: own.clear(),
        "lacks cost.seconds": lambda r, _: r["cost"].pop("seconds"),
        "lacks provenance": lambda r, _: r.pop("provenance"),
        "does not tell the version of torch": lambda r, _: r["provenance"]["versions"].__setitem__("torch", None),
        "whole path": lambda r, _: r["provenance"]["argv"].append("/home/me/model"),
        "kind is 'bench'": lambda r, _: r.__setitem__("kind", "bench"),
        "does not declare": lambda _, own: own[0]["scores"].__setitem__("luck", 1.0),
        "without an error": set_in("outcome", "status", "error"),
        "condition.length": set_in("condition", "length", "1k"),
    }
    for words, change in cases.items():
        assert words in spoiled(change), words
    value = record["outcome"]["metrics"][record["outcome"]["primary"]]
    value["value"] = value["value"] + 1e-6
    assert "is recorded as" in fatal(record, rows)[0]


def test_a_score_outside_its_range_and_a_record_twice_are_found(one):
    record, rows = one
    bounded = next((m["name"] for m in record["task"]["metrics"] if m.get("high") == 1.0), None)
    if bounded:
        spoiled = copy.deepcopy(rows)
        spoiled[0]["scores"][bounded] = 60.0
        assert any("outside 0.0–1.0" in text for text in fatal(record, spoiled))
    assert any("stands twice" in p.text for p in problems([record, record], rows))


def test_what_is_worth_knowing_is_no_refusal(one):
    record, rows = one
    record["provenance"]["dirty"] = True
    found = problems([record], rows)
    assert [p.fatal for p in found] == [False]
    assert "uncommitted" in found[0].text


def test_an_identity_is_that_of_the_cell(run):
    for record in run[0]:
        if not record["method"]["length_dependent"] and record["method"]["inv_freq"]:
            assert digest(identity_of(record)) == record["cell_id"]


def test_coverage_says_what_is_missing(one):
    record, _ = one
    record["method"] |= {"name": "mine", "label": "mine×2"}
    record["task"]["label"] = "another"
    other = copy.deepcopy(record)
    other["method"]["label"], other["condition"]["length"], other["cell_id"] = "theirs×2", 777, "x"
    said = [str(one) for one in coverage([record], [other])]
    assert any("no unmodified model" in text for text in said)
    assert any("mine×2 has no result at 777" in text for text in said)


# The command


@pytest.fixture
def offer(tmp_path, one) -> Path:
    record, rows = one
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "theirs.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    (folder / "theirs.samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder / "theirs.jsonl"


def test_good_records_are_taken_in_and_nothing_is_overwritten(offer, tmp_path, capsys):
    results = tmp_path / "results"
    words = ["leaderboard", "--results", str(results), "--out", str(tmp_path / "board"), "--add", str(offer)]
    assert main([*words, "--check"]) == 0
    assert "in order; nothing was added" in capsys.readouterr().out
    assert not results.exists()
    assert main(words) == 0
    assert "added theirs.jsonl, theirs.samples.jsonl" in capsys.readouterr().out
    assert (results / "theirs.jsonl").read_bytes() == offer.read_bytes()
    assert (tmp_path / "board" / "index.html").is_file()
    (results / "theirs.samples.jsonl").write_text("", encoding="utf-8")
    assert main(words) == 2
    assert "another file of that name" in capsys.readouterr().err
    assert (results / "theirs.samples.jsonl").read_text(encoding="utf-8") == ""


def test_bad_records_are_refused_whole(offer, tmp_path, capsys):
    results = tmp_path / "results"
    offer.with_name("theirs.samples.jsonl").unlink()
    words = ["leaderboard", "--results", str(results), "--out", str(tmp_path / "board"), "--add", str(offer)]
    assert main(words) == 1
    printed = capsys.readouterr().out
    assert "sample rows are missing" in printed
    assert "refused: 1 problems" in printed
    assert not results.exists()
    assert not (tmp_path / "board").exists()
    offer.write_bytes(offer.read_bytes()[:-40])
    assert main(words) == 2
    assert "must be whole" in capsys.readouterr().err
    assert main([*words[:-1], str(tmp_path / "none.jsonl")]) == 2
    assert "no results file" in capsys.readouterr().err


# The page that explains the layout


def rows_of(text: str) -> set[str]:
    """The keys in the first column of the tables of some Markdown, those named in running text left out."""
    found = set()
    for line in text.splitlines():
        if line.startswith("| `"):
            found |= {word.strip(" `") for word in line.split("|")[1].split(",")}
    return found


def test_the_page_explains_exactly_the_keys_of_a_record(run):
    text = (RESULTS / "README.md").read_text(encoding="utf-8")
    record_part = text.split("## A record")[1].split("## A sample row")[0]
    groups = {group: record_part.split(f"`{group}`:", 1)[1].split("\n`", 1)[0] for group in GROUPS}
    for group, keys in GROUPS.items():
        if group == "provenance":  # in running text, at the end
            about = record_part.split("`provenance`:")[1]
            assert [key for key in (*keys, "imported") if f"`{key}`" not in about] == []
        else:
            assert rows_of(groups[group]) == set(keys), group
    assert rows_of(record_part.split("`model`:")[0]) == set(TOP)
    assert rows_of(text.split("## A sample row")[1].split("\n## ")[0]) == set(SAMPLE)


def test_the_keys_are_those_that_runs_write(run):
    for record in run[0]:
        assert set(record) == {*TOP, *GROUPS}
        for group, keys in GROUPS.items():
            missing = {key for key in keys if key not in record[group]} - {key for g, key in OPTIONAL if g == group}
            assert (missing, set(record[group]) - set(keys)) == (set(), set()), group
    for row in run[1]:
        assert set(row) == set(SAMPLE)

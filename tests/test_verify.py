"""`ropebench verify`: stored records follow from their rows, hashes and methods, and what was tampered with is named by
its line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ropebench import store
from ropebench.cli import main
from ropebench.record import canonical
from ropebench.verify import verdict
from stub_run import finish

RESULTS = Path(__file__).parents[1] / "results"


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> dict[str, list[dict[str, Any]]]:
    """The lines of a run by kind of file."""
    folder = tmp_path_factory.mktemp("run")
    finish(folder)
    return {
        ".samples.jsonl" if file.name.endswith(store.SAMPLES) else ".jsonl": [
            json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()
        ]
        for file in folder.glob("*.jsonl")
    }


def written(folder: Path, lines: dict[str, list[Any]]) -> Path:
    for suffix, several in lines.items():
        text = "".join((one if isinstance(one, str) else canonical(one)) + "\n" for one in several)
        (folder / f"run{suffix}").write_text(text, encoding="utf-8")
    return folder


def fatal(folder: Path) -> list[str]:
    return [str(one) for one in verdict(store.everything(folder)).fatal]


def test_the_stored_results_are_in_order():
    found = verdict(store.everything(RESULTS))
    assert [str(one) for one in found.fatal] == []
    assert found.records >= 105
    assert found.tables > 90


def test_a_fresh_run_is_in_order(tmp_path, measured, capsys):
    assert main(["verify", str(written(tmp_path, measured))]) == 0
    assert f"in order: {len(measured['.jsonl'])} records" in capsys.readouterr().out


def record(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, list[Any]]], Any]:
    """A change to the record in line 7, which is one of a scaled method."""
    return lambda lines: change(lines[".jsonl"][6])


def row(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, list[Any]]], Any]:
    return lambda lines: change(lines[".samples.jsonl"][1])


def slowed(one: dict[str, Any]) -> None:
    """A table that is off by two in a million, and a cell_id made to fit."""
    from ropebench.record import digest
    from ropebench.validate import identity_of

    one["method"]["inv_freq"][1] *= 1 + 2e-6
    one["cell_id"] = digest(identity_of(one))


def first_value(one: dict[str, Any]) -> dict[str, Any]:
    return one["outcome"]["metrics"][one["outcome"]["primary"]]


def repeated(lines: dict[str, list[Any]]) -> None:
    again = json.loads(json.dumps(lines[".samples.jsonl"][1]))
    again["scores"] = {name: value / 2 + 0.1 for name, value in again["scores"].items()}
    lines[".samples.jsonl"].insert(0, again)


SPOILED: dict[str, tuple[Callable[[dict[str, list[Any]]], Any], str, str]] = {
    "a number": (record(lambda r: first_value(r).__setitem__("value", 0.77)), "run.jsonl:7", "its rows give"),
    "no number": (record(lambda r: first_value(r).pop("value")), "run.jsonl:7", "outcome.metrics"),
    "a score": (row(lambda r: r["scores"].update(dict.fromkeys(r["scores"], 0.5))), "run.samples.jsonl:1", "rows give"),
    "a prompt": (
        row(lambda r: r.__setitem__("prompt_sha256", "f" * 64)),
        "run.samples.jsonl:1",
        "not the hash of its rows",
    ),
    "a length": (record(lambda r: r["condition"].__setitem__("length", 99)), "run.jsonl:7", "cell_id is"),
    "a time": (record(lambda r: r.__setitem__("created", "2020-01-01T00:00:00Z")), "run.jsonl:7", "record_id is not"),
    "a frequency": (record(slowed), "run.jsonl:7", "frequencies are not those of"),
    "attention": (
        record(lambda r: r["method"].__setitem__("attention_factor", 1.5)),
        "run.jsonl:7",
        "attention_factor",
    ),
    "a shape": (record(lambda r: r["model"].__setitem__("rotary_dim", 10**12)), "run.jsonl:7", "inv_freq has shape"),
    "a group": (record(lambda r: r.pop("cost")), "run.jsonl:7", "lacks cost"),
    "a kind deep inside": (record(lambda r: r["outcome"]["metrics"].update(x=[1])), "run.jsonl:7", "outcome.metrics"),
    "parameters": (record(lambda r: r["method"].__setitem__("params", {"a": "b"})), "run.jsonl:7", "cell_id is"),
    "no rows": (lambda lines: lines.pop(".samples.jsonl"), "run.jsonl:1", "sample rows are missing"),
    "a line": (lambda lines: lines[".jsonl"].insert(2, '{"schema": 2'), "run.jsonl:3", "not a JSON record"),
    "depth": (lambda lines: lines[".jsonl"].insert(2, "[" * 100_000), "run.jsonl:3", "not a JSON record"),
    "twice": (lambda lines: lines[".jsonl"].append(lines[".jsonl"][0]), "run.jsonl:13", "stands twice"),
    "another score": (repeated, "run.samples.jsonl:3", "other scores here than at run.samples.jsonl:1"),
}


@pytest.mark.parametrize("what", SPOILED)
def test_what_was_tampered_with_is_named_by_its_line(what, tmp_path, measured, capsys):
    change, place, words = SPOILED[what]
    lines = json.loads(json.dumps(measured))
    change(lines)
    said = fatal(written(tmp_path, lines))
    assert any(place in one and words in one for one in said), said
    assert main(["verify", str(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["fatal"] == len(said)


def test_rows_without_a_record_and_a_torn_line_are_notes(tmp_path, measured, capsys):
    lines = json.loads(json.dumps(measured))
    last = lines[".jsonl"].pop()
    written(tmp_path, lines)
    with (tmp_path / "run.jsonl").open("a", encoding="utf-8") as file:
        file.write(canonical(last)[:50])
    assert main(["verify", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "run.jsonl:12: the last line is torn" in printed
    place = next(n for n, one in enumerate(lines[".samples.jsonl"], 1) if one["cell_id"] == last["cell_id"])
    assert f"run.samples.jsonl:{place}: sample rows of cells without a record" in printed


def test_a_method_of_another_version_is_not_held_against_today(tmp_path, measured):
    from ropebench.record import digest
    from ropebench.validate import identity_of

    lines = json.loads(json.dumps(measured))
    one = lines[".jsonl"][6]
    one["method"]["version"] += 1
    one["method"]["inv_freq"][0] *= 2
    old, one["cell_id"] = one["cell_id"], digest(identity_of(one))
    counts = one["condition"]
    one["record_id"] = digest([one["cell_id"], one["run_id"], one["created"], counts["n_scored"] + counts["n_skipped"]])
    for each in lines[".samples.jsonl"]:
        each["cell_id"] = one["cell_id"] if each["cell_id"] == old else each["cell_id"]
    found = verdict(store.everything(written(tmp_path, lines)))
    assert found.fatal == []
    assert any("was not computed again" in note.text for note in found.notes)


def test_nothing_to_look_at_is_a_mistake(tmp_path, capsys):
    assert main(["verify", str(tmp_path / "none")]) == 2
    assert main(["verify", str(tmp_path)]) == 2
    assert "no records" in capsys.readouterr().err


def test_it_needs_no_torch():
    code = "import sys; from ropebench.cli import main; code = main(['verify', sys.argv[1]]); assert not code"
    code += "; assert not {'torch', 'transformers', 'pandas', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code, str(RESULTS)], check=True, capture_output=True, timeout=120)

"""lm-eval's result files come in as what they are. tests/data/lm_eval was written by lm-eval 0.4.13 with its dummy
model over six made-up sums (`--log_samples`); paths and the description of the machine are taken out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ropebench import store
from ropebench.cli import main
from ropebench.errors import UsageError
from ropebench.lm_harness import imported
from ropebench.report.cells import blocks, cell_rows, samples_by_cell
from ropebench.validate import problems

DATA = Path(__file__).parent / "data" / "lm_eval"
GIVEN = {"model": "smollm2-135m", "trained_length": 8192, "length": 2048}


@pytest.fixture
def files(tmp_path) -> Path:
    shutil.copytree(DATA, tmp_path / "out")
    return next((tmp_path / "out").glob("results_*.json"))


def changed(file: Path, change) -> Path:
    whole = json.loads(file.read_text(encoding="utf-8"))
    change(whole)
    file.write_text(json.dumps(whole), encoding="utf-8")
    return file


def test_records_hold_lm_evals_numbers_and_say_where_they_are_from(files):
    found = imported.read(files, **GIVEN)
    assert [str(one) for one in problems(found.records, found.samples) if one.fatal] == []
    by_task = {record["task"]["name"]: record for record in found.records}
    assert set(by_task) == {"lm_eval/made_parity", "lm_eval/made_sums"}
    parity = by_task["lm_eval/made_parity"]
    results = json.loads(files.read_text(encoding="utf-8"))["results"]["made_parity"]
    assert parity["outcome"]["metrics"]["acc"]["value"] == pytest.approx(results["acc,none"])
    assert parity["outcome"]["metrics"]["acc"]["stderr"] == pytest.approx(results["acc_stderr,none"])
    assert parity["task"]["scorer"] == "lm_eval"
    assert "(imported)" in parity["task"]["label"]
    assert "(imported)" in parity["method"]["label"]
    made = parity["provenance"]
    assert made["imported"]["tool"] == "lm_eval"
    assert made["imported"]["version"] == "0.4.13"
    assert made["versions"]["lm_eval"] == "0.4.13"
    assert made["commit"] is None
    assert parity["model"]["rotary_dim"] is None
    assert parity["cost"]["seconds"] is None
    rows = [row for row in found.samples if row["cell_id"] == parity["cell_id"]]
    lines = next(files.parent.glob("samples_made_parity_*")).read_text(encoding="utf-8").splitlines()
    assert [(r["scores"]["acc"], r["prompt_sha256"]) for r in rows] == [
        (line["acc"], line["prompt_hash"]) for line in map(json.loads, lines)
    ]


def test_an_imported_number_is_no_cell_of_ours_and_in_no_table_with_one(files):
    (one, _) = imported.read(files, **GIVEN).records
    own = json.loads(json.dumps(one))
    del own["provenance"]["imported"]
    own["method"] |= {"label": "native", "inv_freq": [1.0], "attention_factor": 1.0}
    own["task"]["label"] = own["task"]["label"].removesuffix(" (imported)")
    from ropebench.record import digest
    from ropebench.validate import identity_of

    assert digest(identity_of(own)) != one["cell_id"]
    own["cell_id"] = "own"
    assert len(blocks(cell_rows([one, own]))) == 2


def test_the_command_brings_them_in_once_and_reports_show_them(files, tmp_path, capsys):
    results = str(tmp_path / "results")
    words = ["import", "lm-eval", str(files.parent), "--model", "smollm2-135m", "--length", "2k", "--results", results]
    assert main(words) == 0
    assert "2 records, 12 sample rows" in capsys.readouterr().out
    assert main(words) == 0
    assert "there already" in capsys.readouterr().out
    assert len(list(Path(results).iterdir())) == 2
    assert main(["report", "--results", results]) == 0
    text = capsys.readouterr().out
    assert "lm_eval/made_parity (imported) · acc, %" in text
    assert "native (imported)  67 [30–90]" in text
    assert main(["leaderboard", "--results", results, "--out", str(tmp_path / "board")]) == 0
    page = (tmp_path / "board" / "index.html").read_text(encoding="utf-8")
    assert "imported from lm_eval 0.4.13" in page
    records = store.newest_ok(store.read(results))
    assert samples_by_cell(records, store.samples(results)).keys() == {r["cell_id"] for r in records}


def test_ruler_metrics_become_lengths_and_what_was_not_measured_is_no_number(files):
    def ruler(whole):
        whole["results"] = {"made_sums": {"4096,none": 0.5, "4096_stderr,none": 0.2, "8192,none": -1}}
        whole["configs"] = {"made_sums": whole["configs"]["made_sums"]}
        whole["higher_is_better"] = {"made_sums": {"4096": True, "8192": True}}

    for file in files.parent.glob("samples_*"):
        file.unlink()
    (record,) = imported.read(changed(files, ruler), **GIVEN).records
    assert record["condition"]["length"] == 4096
    assert record["outcome"]["metrics"] == {"score": {"value": 0.5, "stderr": 0.2, "n": 6}}


def test_a_metric_that_is_no_mean_is_left_out_and_said(files):
    def other(whole):
        whole["results"]["made_sums"]["exact_match,none"] = 0.25

    found = imported.read(changed(files, other), **GIVEN)
    assert [record["task"]["name"] for record in found.records] == ["lm_eval/made_parity"]
    assert found.left_out == ["made_sums: exact_match,none is not the mean of its samples; left out"]


def test_a_method_of_ropebenchs_model_in_lm_eval_is_named(files):
    def ours(whole):
        whole["config"] |= {"model": "ropebench", "model_args": "pretrained=owner/name,method=yarn,factor=4"}

    found = imported.read(changed(files, ours), trained_length=4096, length=8192)
    assert {(r["model"]["id"], r["method"]["name"], r["method"]["label"]) for r in found.records} == {
        ("owner/name", "yarn", "yarn×4 (imported)")
    }


def test_what_the_file_does_not_say_must_be_said(files, tmp_path):
    for left, word in (("model", "--model"), ("trained_length", "--trained-length"), ("length", "--length")):
        with pytest.raises(UsageError, match=word):
            imported.read(files, **{key: value for key, value in GIVEN.items() if key != left})
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no lm-eval results file"):
        imported.files_in(tmp_path / "empty")
    files.write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match="not a results file of lm-eval"):
        imported.read(files, **GIVEN)

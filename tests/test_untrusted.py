"""What strangers write is input: results files, names, documents and lm-eval's results can be wrong, and no more.

Names in pages: test_site.py, test_report.py; in spreadsheets: test_exports.py; of models: test_model.py; whatever else
goes wrong: test_fuzz.py.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from fakes import cell
from ropebench import store
from ropebench.arguments import parser
from ropebench.cli import COMMANDS, main
from ropebench.corpus import open_corpus
from ropebench.errors import UsageError, plain
from ropebench.outcome import failure, record_of
from ropebench.record import canonical, provenance, without_secrets
from ropebench.replay import prompt_again
from ropebench.report import figures
from ropebench.report.cells import blocks, cell_rows
from ropebench.report.paired import by_cell
from stub_run import finish

ROOT = Path(__file__).parents[1]
NAMES = (
    "../../../tmp/up",
    "/tmp/absolute",
    "a\0b",
    "x" * 300,
    "..",
    "",
    "CON",
    "~/x",
    "a\\b",
    "\x1b[2J",
    "$\\frac{$",
    "漢" * 90,
)


# Names


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_no_name_leads_a_plot_out_of_its_folder(name, records, samples):
    for record in records:
        record["model"]["id"] = name
        record["task"]["label"] = name + record["task"]["label"]
        record["task"]["corpus"] = None
    planned = figures.plan(blocks(cell_rows(records, samples)), samples, by_cell(records))
    assert len(planned) > 5
    stems = [one.stem for one in planned]
    assert [stem for stem in stems if not re.fullmatch(r"[\w.%+=×@-]{1,200}", stem) or stem.startswith(".")] == []
    assert len(set(stems)) == len(stems)


def test_a_name_is_no_formula_in_a_plot(tmp_path):
    from ropebench.report.plots import figure, save

    with figure(2, 2) as (drawn, axes):
        axes.set_title("$\\frac{$ and $x$")
        save(drawn, tmp_path / "plot")
    assert "<!-- $\\frac{$ and $x$ -->" in (tmp_path / "plot.svg").read_text(encoding="utf-8")


def test_no_text_of_a_record_commands_the_terminal(tmp_path, capsys):
    finish(tmp_path)
    file = next(one for one in tmp_path.glob("*.jsonl") if not one.name.endswith(store.SAMPLES))
    evil = json.dumps("\x1b]0;title\x07\x1b[2J\x9b\u202efake")[1:-1]
    file.write_text(file.read_text(encoding="utf-8").replace('"id":"fake"', f'"id":"{evil}"'), encoding="utf-8")
    for words in (
        ["report"],
        ["report", "--json"],
        ["verify"],
        ["compare", "none", "pi×4"],
        ["report", "--model", "x"],
    ):
        main([*words, *([str(tmp_path)] if words == ["verify"] else ["--results", str(tmp_path)])])
        said = capsys.readouterr()
        assert not set("\x1b\x07\x9b\u202e") & set(said.out + said.err), words
        if words == ["report", "--json"]:
            assert json.loads(said.out)[0]["model_id"] == json.loads(f'"{evil}"')  # nothing is lost
    assert plain("a\ttab\nline é × 漢") == "a\ttab\nline é × 漢"


# Results files


def test_results_are_neither_read_nor_written_through_a_link(tmp_path):
    outside = tmp_path / "outside.jsonl"
    outside.write_text("", encoding="utf-8")
    (tmp_path / "results").mkdir()
    link = tmp_path / "results" / "run.jsonl"
    link.symlink_to(outside)
    with pytest.raises(UsageError, match=r"run\.jsonl: not a plain file"):
        store.read(tmp_path / "results")
    with pytest.raises((UsageError, store.NotStored)):
        store.append(link, {"schema": 2})
    assert outside.read_text(encoding="utf-8") == ""


def test_a_record_names_no_code(tmp_path):
    """Where a record's task is a YAML folder or a file, `show` does not run it; a person may with --plugin."""
    finish(tmp_path)
    record = store.newest_ok(store.read(tmp_path))[0]
    for name in ("lm_eval:/tmp/evil", "lm_eval/../evil", "lm_eval:evil.yaml", "lm_eval/.evil"):
        record["task"]["name"] = name
        with pytest.raises(UsageError, match="is a file; ropebench runs none that a record names"):
            prompt_again(record, {}, None, (), None)


def test_what_a_record_holds_in_place_of_a_sample_is_said(tmp_path):
    finish(tmp_path)
    record = store.newest_ok(store.read(tmp_path))[0]
    for name in (["a"], {"a": 1}, None, 7):
        record["task"]["name"] = name
        with pytest.raises(UsageError, match="cannot be made again"):
            prompt_again(record, {}, None, (), None)


def test_half_a_character_and_a_number_without_end_are_no_records(tmp_path):
    line = '{"schema": 2, "kind": "bench", "cell_id": "a", "x": %s}\n'
    for wrong in (r'"\ud800"', "1e999", "-1e+999", "NaN", "Infinity", "9" * 5000, "[" * 5000):
        (tmp_path / "run.jsonl").write_text(line % '"fine"' + line % wrong, encoding="utf-8")
        with pytest.raises(UsageError, match=r"run\.jsonl:2: not a JSON record"):
            store.read(tmp_path)
    (tmp_path / "run.jsonl").write_text(line % r'"\ud83d\ude00 1e999"', encoding="utf-8")
    assert store.read(tmp_path)[0]["x"] == "😀 1e999"
    assert json.loads(canonical({"\ud800": "\udfff"}).encode()) == {"\ufffd": "\ufffd"}


# Documents


def test_a_folder_of_documents_is_all_that_is_read(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    (folder / "a.txt").write_text("fine", encoding="utf-8")
    (folder / "b.txt").symlink_to(folder / "a.txt")  # inside: the same folder's
    assert [one.text for one in open_corpus(str(folder)).documents()] == ["fine", "fine"]
    (folder / "c.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(UsageError, match=r"c\.txt in 'docs' is no file of this folder"):
        open_corpus(str(folder))
    (folder / "c.txt").unlink()
    os.mkfifo(folder / "d.txt")  # never ends
    with pytest.raises(UsageError, match=r"d\.txt in 'docs' is no file of this folder"):
        open_corpus(str(folder))


@pytest.mark.parametrize("line", ["[" * 100_000, '{"text": ' + "9" * 5000 + "}", '{"text": 7}', r'{"text": "\ud800"}',
                                  '{"input_ids": [-1]}', '{"input_ids": [1.5]}', "[]", "\0"], ids=range(8))  # fmt: skip
def test_a_line_that_is_no_document_is_named(line, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "fine"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"--docs: a\.jsonl:2: "):
        list(open_corpus(str(tmp_path)).documents())


def test_a_document_may_be_named_as_it_likes(tmp_path):
    folder = os.fsencode(tmp_path / "=HYPERLINK(1)")
    os.mkdir(folder)
    with open(os.path.join(folder, b"\xff<script>.txt"), "w", encoding="utf-8") as file:
        file.write("text")
    corpus = open_corpus(os.fsdecode(folder))
    assert "text" in json.loads(canonical([one.text for one in corpus.documents()]))
    canonical([corpus.describe(), [one.name for one in corpus.documents()]]).encode()


# lm-eval's results

GOOD: dict[str, Any] = {
    "results": {"arc": {"acc,none": 0.5, "acc_stderr,none": 0.1}}, "configs": {"arc": {"task": "arc"}},
    "config": {"model": "hf", "model_args": "pretrained=a/b"}, "n-samples": {"arc": {"original": 4, "effective": 4}},
    "versions": {"arc": 1.0}, "higher_is_better": {"arc": {"acc": True}}, "lm_eval_version": "0.4.13",
}  # fmt: skip
ROW = {"doc_id": 0, "target": "x", "resps": [["y"]], "filtered_resps": ["y"], "acc": 1.0, "prompt_hash": "b"}


def brought_in(folder: Path, whole: Any, rows: list[Any] | None = None) -> tuple[int, str]:
    folder.mkdir(exist_ok=True)
    text = whole if isinstance(whole, str) else json.dumps(whole)
    (folder / "results_x.json").write_text(text, encoding="utf-8")
    if rows is not None:
        (folder / "samples_arc_x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    words = ["import", "lm-eval", str(folder / "results_x.json"), "--trained-length", "2048", "--length", "1024"]
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
        code = main([*words, "--results", str(folder / "res")])
    return code, said.getvalue()


def changed(group: str, key: str, value: Any) -> dict[str, Any]:
    whole = json.loads(json.dumps(GOOD))
    whole[group][key] = value
    return dict(whole)


@pytest.mark.parametrize("whole, rows", [
    ("[" * 100_000, None), ("9" * 5000, None), (json.dumps(GOOD).replace("0.5", "NaN"), None),
    (json.dumps(GOOD).replace("0.5", "1e999"), None), (changed("results", "arc", {"acc,none": 7}), None),
    (changed("results", "arc", [1]), None), (changed("n-samples", "arc", "x"), None),
    (changed("n-samples", "arc", {"effective": -4}), None), (changed("n-samples", "arc", {"effective": 10**30}), None),
    (changed("config", "model_args", [1]), None), (GOOD, [ROW | {"doc_id": {"a": 1}}]), (GOOD, [ROW | {"acc": "x"}]),
    (GOOD, [ROW]), (GOOD, [[]]),
], ids=range(14))  # fmt: skip
def test_an_lm_eval_file_with_a_mistake_is_one_clear_line_and_writes_nothing(whole, rows, tmp_path):
    code, said = brought_in(tmp_path / "in", whole, rows)
    assert code == 2
    assert said.startswith("ropebench: error: ")
    assert said.count("\n") == 1
    assert not (tmp_path / "in" / "res").exists()


def test_an_imported_file_is_in_order_whatever_it_names(tmp_path, capsys):
    whole = changed("config", "model_args", "pretrained=<script>,token=hf_abcdefgh,api_key=xyzxyz,x==cmd")
    for group in ("results", "configs", "n-samples"):
        whole[group]["../../up\0"] = whole[group]["arc"]
    whole["results"]["arc"] = {"acc,none": 1.0}
    rows = [ROW | {"doc_id": index, "resps": [["\ud800<script>"]], "filtered_resps": ["\ud800"]} for index in range(4)]
    assert brought_in(tmp_path / "in", whole, rows)[0] == 0
    results = tmp_path / "in" / "res"
    assert {one.parent for one in results.rglob("*")} == {results}
    assert "hf_abc" not in (text := "".join(one.read_text(encoding="utf-8") for one in results.iterdir()))
    assert "xyzxyz" not in text
    assert main(["verify", str(results)]) == 0
    assert "2 records with 4 sample rows" in capsys.readouterr().out
    assert main(["report", "--results", str(results)]) == 0


def test_an_import_without_rows_is_in_order_but_said(tmp_path, capsys):
    assert brought_in(tmp_path / "in", GOOD)[0] == 0
    assert main(["verify", str(tmp_path / "in" / "res")]) == 0
    assert "4 sample rows are missing" in capsys.readouterr().out


# Secrets and code


def test_no_secret_of_the_environment_gets_into_a_record(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "correct-horse-battery")
    monkeypatch.setenv("HF_TOKEN", "plainlookingvalue")
    monkeypatch.setenv("HARMLESS", "visible-value")
    said = "GET https://me:pw@hub/x?token=abcdef123 with correct-horse-battery, plainlookingvalue, ghp_abcdefgh12"
    status, error = failure(RuntimeError(said))
    made = json.dumps([error, provenance(("run", f"--plugin={said}", "visible-value"), "cpu")])
    assert status == "error"
    for secret in ("correct-horse", "plainlooking", "me:pw", "abcdef123", "ghp_abc"):
        assert secret not in made
    assert "visible-value" in made
    assert without_secrets("tokens: 12, the keyboard, secretary, niah:tokens=500") == (
        "tokens: 12, the keyboard, secretary, niah:tokens=500"
    )


@pytest.mark.parametrize("asked", [False, True])
def test_a_models_own_code_is_recorded(asked):
    cost: dict[str, Any] = {"seconds": 0.0, "tokens": 0, "peak_bytes": None}
    record = record_of(
        cell(trust_remote_code=asked), [], status="error", error={"type": "E", "message": "x"}, live=None,
        first_id=None, bos_used=None, cost=cost, run_id="r", series="r", argv=(), device="cpu",
    )  # fmt: skip
    assert record["model"]["remote_code"] is asked
    assert cell().trust_remote_code is False


def test_the_help_says_what_is_code():
    top = parser(COMMANDS)
    said = " ".join(top.format_help().split())
    for word in ("--plugin", "YAML", "--trust-remote-code", "run as code"):
        assert word in said
    for command in ("run", "plan", "inspect", "lm-eval", "show", "list"):
        with pytest.raises(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
            top.parse_args([command, "--help"])
        assert "run as code" in " ".join(out.getvalue().split()), command


def test_nothing_that_is_read_can_be_code():
    """No pickle, no YAML that builds objects, no eval; plug-ins alone are executed, and in one place."""
    unpickling = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
    found = []
    for file in [*(ROOT / "bench" / "ropebench").rglob("*.py"), *(ROOT / "tasks").glob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"{file.name}: {name}" for name in names if name.split(".")[0] in unpickling]
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in ("eval", "exec", "torch.load", "np.load", "pd.read_pickle", "os.system"):
                    found.append(f"{file.name}: {called}")
    assert found == ["registry.py: exec"]

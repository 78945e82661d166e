"""Tables for other programs (`report --format`), and `ropebench.load_results`."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

import ropebench
from report_records import FIXTURES, block
from ropebench import store
from ropebench.cli import main
from ropebench.errors import UsageError
from ropebench.report import formats
from ropebench.report.cells import cell_rows
from ropebench.report.tables import COLUMNS, Table, table

ROOT = Path(__file__).parents[1]

# Every mark that LaTeX reads as something else, and letters of our own tables.
NASTY = Table(
    r"50 % of a_b & c$d #1 {x} ~y ^z \input{/etc/passwd}",
    ("method", "2× [n]"),
    (("yarn_paper×2", "−1 [3–4]"), ("[a]", "*"), ("<b>|c", "100 % λ √ 漢")),
    None,
    ("n < 5 & so on; 50 % told_from 0",),
)


@pytest.fixture
def stored(tmp_path) -> Path:
    for file in FIXTURES.glob("fixture*.jsonl"):
        shutil.copy(file, tmp_path / file.name)
    return tmp_path


def test_latex_text_is_text(tmp_path):
    text = formats.latex(NASTY, "nasty")
    body = text.split("\\centering")[1]
    assert r"\textbackslash " in body
    assert r"\input" not in body
    assert not re.search(r"(?<!\\)[%#]", body)
    assert "漢" not in body
    assert r"100 \% $\lambda$ $\surd$ ?" in body
    assert "$<$b$>$$|$c" in body  # as text in LaTeX's first encoding they print as other letters
    assert "\n{[}a]" in body  # a bare bracket would be the distance to the line before
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in rows} == {1}
    assert [rule in body for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [True] * 3


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex")
def test_latex_compiles(records, samples, tmp_path):
    found = [formats.latex(one, f"t{i}") for i, one in enumerate((NASTY, table(block(records, samples, "niah"))))]
    head = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n"
    (tmp_path / "all.tex").write_text(head + "\n".join(found) + "\\end{document}\n", encoding="utf-8")
    words = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "all.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-1500:]


def test_tables_by_name_and_format(stored, capsys, tmp_path):
    run = ["report", "--results", str(stored)]
    assert main([*run, "--format", "csv"]) == 0
    printed = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert tuple(printed[0]) == COLUMNS
    out = tmp_path / "out"
    for form in formats.FORMATS:
        assert main([*run, "--format", form, "--out", str(out)]) == 0
    capsys.readouterr()
    names = {file.stem for file in out.glob("*.md")}
    assert "cells" in names
    assert len(names) > 3
    for suffix in formats.SUFFIXES.values():
        assert {file.stem for file in out.glob(f"*{suffix}")} == names
    tidy = pd.read_parquet(out / "cells.parquet")
    again = json.loads((out / "cells.json").read_text(encoding="utf-8"))
    assert list(tidy.columns) == list(COLUMNS)
    assert len(tidy) == len(again) == len(printed) - 1
    assert tidy["value"].dropna().tolist() == [row["value"] for row in again if row["value"] is not None]
    name = min(names - {"cells"})
    assert main([*run, "--format", "json", "--table", name]) == 0
    one = json.loads(capsys.readouterr().out)
    lines = list(csv.reader(io.StringIO((out / f"{name}.csv").read_text(encoding="utf-8"))))
    assert one["columns"] == lines[0]
    assert len(one["rows"]) == len(lines) - 1
    assert len(pd.read_parquet(out / f"{name}.parquet")) == len(one["rows"])
    assert main([*run, "--format", "json", "--table", "all"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == names


def test_what_contradicts_itself_is_said(stored, capsys):
    run = ["report", "--results", str(stored)]
    for more, word in (
        (["--format", "csv", "--table", "all"], "--out DIR"),
        (["--format", "csv", "--table", "cell"], "did you mean 'cells'?"),
        (["--table", "cells"], "goes with --format"),
        (["--json", "--format", "csv"], "give one"),
    ):
        assert main([*run, *more]) == 2
        assert word in capsys.readouterr().err


def test_no_cell_is_a_formula(records, samples, tmp_path):
    for record in records:
        record["model"]["id"] = "=HYPERLINK(1)"
    rows = cell_rows(records, samples)
    nasty = Table("t", ("a", "b"), (("+1.6 [+1, +2]", "@x"), ("-5", "plain")))
    for text in (formats.rendered("csv", ["cells"], {}, rows), formats.rendered("csv", ["t"], {"t": nasty}, rows)):
        cells = [cell for line in csv.reader(io.StringIO(text.decode())) for cell in line]
        started = [cell for cell in cells if cell[:1] in ("=", "+", "-", "@", "\t", "\r")]
        assert [cell for cell in started if not re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", cell)] == []
    assert "'=HYPERLINK(1)" in formats.rendered("csv", ["cells"], {}, rows).decode()


def test_two_columns_of_one_name_survive_parquet(tmp_path):
    found = Table("At a glance", ("method", "rank", "rank"), (("a", "1", "2"),))
    (path,) = formats.write("parquet", ["t"], {"t": found}, [], tmp_path)
    assert pd.read_parquet(path).to_dict("records") == [{"method": "a", "rank": "1", "rank (2)": "2"}]


# load_results


def test_one_row_per_cell_with_the_value_that_tables_show(stored):
    frame = ropebench.load_results(stored)
    records = store.newest_ok(store.read(stored))
    assert sorted(frame["cell_id"]) == sorted(record["cell_id"] for record in records)
    found = frame.set_index("cell_id")
    for record in records:
        kept = record["outcome"]["metrics"].get(record["outcome"]["primary"], {}).get("value")
        value = found.loc[record["cell_id"], "measured"]
        assert (kept is None and pd.isna(value)) or value == kept


def test_samples_know_their_cell(stored):
    frame = ropebench.load_results(stored, samples=True)
    assert {"model_id", "method_label", "task_label", "condition_length", "prompt_sha256"} <= set(frame.columns)
    assert frame.groupby(["cell_id", "index"]).size().max() == 1
    niah = frame[frame["task_label"].str.startswith("niah")]
    cells = ropebench.load_results(stored).set_index("cell_id")
    for cell_id, rows in niah.groupby("cell_id"):
        assert rows["score_recall"].mean() == pytest.approx(cells.loc[cell_id, "measured"])


def test_nothing_stored_is_said(tmp_path):
    with pytest.raises(UsageError, match="no records"):
        ropebench.load_results(tmp_path)


def test_every_column_is_explained(stored):
    """Those of the record by its keys' tables, the others by name in the page's section on Python."""
    text = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w.]+)`", text))
    groups = ("model", "method", "task", "condition", "outcome", "cost", "provenance")
    for column in ropebench.load_results(stored).columns:
        group, _, key = column.partition("_")
        known = column in named or (
            group in groups and any(key == name or key.startswith(f"{name}_") for name in named)
        )
        assert known, f"{column} is not in results/README.md"


def test_the_example_in_the_documents_runs(monkeypatch, capsys):
    text = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(ROOT)
    exec(compile(example, "results/README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "yarn×2" in printed
    assert "16384" in printed

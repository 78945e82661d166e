"""Tables for other programs: LaTeX, Markdown, CSV, JSON and Parquet.

Each table has a name, made of its title; `cells` is the tidy one, a row per cell at full precision (`tables.COLUMNS`).
LaTeX needs the packages booktabs and, for tables of pdflatex, nothing else; CSV text that a spreadsheet would run as a
formula gets a leading apostrophe; the writers of LaTeX and Parquet are pandas'.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from ropebench.errors import UsageError, unknown
from ropebench.report.cells import Row
from ropebench.report.tables import COLUMNS, Table, as_csv, as_json, as_markdown, neutral, number, plain_rows

CELLS = "cells"
SUFFIXES = {"latex": ".tex", "markdown": ".md", "csv": ".csv", "json": ".json", "parquet": ".parquet"}
FORMATS = tuple(SUFFIXES)
_DATA = ("csv", "json", "parquet")

# What a table on paper shows of a cell; the data formats have all of COLUMNS.
_SHORT = {
    "model": "model_id", "task": "task_label", "method": "method_label", "length": "condition_length",
    "metric": "metric", "value": "value", "low": "low", "high": "high", "interval": "interval", "n": "n",
    "status": "outcome_status",
}  # fmt: skip


def named(tables: Iterable[Table]) -> dict[str, Table]:
    """Tables by name: letters, digits, dots and hyphens of their titles, numbered where two would be alike."""
    found: dict[str, Table] = {}
    for one in tables:
        stem = re.sub(r"[^A-Za-z0-9.]+", "-", one.title).strip("-.").lower()[:90] or "table"
        name, again = stem, 1
        while name in found or name == CELLS:
            again += 1
            name = f"{stem}-{again}"
        found[name] = one
    return found


def chosen(word: str | None, names: Sequence[str], form: str, to_folder: bool) -> list[str]:
    """The tables that a word means: a name, `all`, or None: all on paper and in a folder, else the tidy one.

    Raises UsageError for a name that is not there, and where one output cannot hold several tables.
    """
    every = [CELLS, *names]
    if word is None:
        return every if to_folder else [CELLS] if form in _DATA else list(names)
    if word == "all":
        if not to_folder and form in ("csv", "parquet"):
            raise UsageError(f"--format {form} holds one table: give --out DIR for all of them, or --table NAME")
        return every
    if word not in every:
        raise unknown("table", word, [*every, "all"])
    return [word]


def rendered(form: str, names: Sequence[str], tables: dict[str, Table], rows: Sequence[Row]) -> bytes:
    """Tables in one format; several one after the other, in JSON as an object by name."""
    if form == "json" and len(names) > 1:
        parts = [f"{json.dumps(name)}: {_one(form, name, tables, rows).decode().rstrip()}" for name in names]
        return ("{" + ",\n".join(parts) + "}\n").encode()
    return b"\n".join(_one(form, name, tables, rows) for name in names)


def write(form: str, names: Sequence[str], tables: dict[str, Table], rows: Sequence[Row], folder: Path) -> list[Path]:
    """One file per table, `NAME.tex` and so on; returns them."""
    written = []
    for name in names:
        path = folder / f"{name}{SUFFIXES[form]}"
        path.write_bytes(_one(form, name, tables, rows))
        written.append(path)
    return written


def _one(form: str, name: str, tables: dict[str, Table], rows: Sequence[Row]) -> bytes:
    if name == CELLS:
        if form == "csv":
            return as_csv(rows).encode()
        if form == "json":
            return as_json(rows).encode()
        if form == "parquet":
            return _parquet(pd.DataFrame(plain_rows(rows), columns=list(COLUMNS)))
        found = short(rows)
    else:
        found = tables[name]
    if form == "latex":
        return latex(found, name).encode()
    if form == "markdown":
        return as_markdown(found).encode()
    if form == "csv":
        return _csv(found).encode()
    if form == "json":
        plain = {"title": found.title, "columns": found.columns, "rows": found.rows, "notes": found.notes}
        return (json.dumps(plain, ensure_ascii=False, indent=1) + "\n").encode()
    return _parquet(pd.DataFrame(list(found.rows), columns=_distinct(found.columns), dtype=str))


def short(rows: Sequence[Row]) -> Table:
    """The tidy table as text, with the columns that fit on paper."""
    lines = []
    for row in plain_rows(rows):
        line = (row[key] for key in _SHORT.values())
        lines.append(tuple("" if v is None else number(v) if isinstance(v, float) else str(v) for v in line))
    return Table("All cells", tuple(_SHORT), tuple(lines))


def _csv(found: Table) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([neutral(text) for text in line] for line in (found.columns, *found.rows))
    return out.getvalue()


def _parquet(frame: pd.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.to_parquet(out, engine="pyarrow", index=False)
    return out.getvalue()


def _distinct(columns: Sequence[str]) -> list[str]:
    """Column names, numbered where a table has one twice (`rank` of several tasks)."""
    seen: dict[str, int] = {}
    names = []
    for name in columns:
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names


# What pdflatex has no letter for, or another one (its first fonts print < as ¡), in mathematics; the rest of our tables
# is in its usual encodings.
_SIGNS = {
    "×": r"$\times$", "−": "$-$", "≠": r"$\neq$", "≤": r"$\leq$", "≥": r"$\geq$", "<": "$<$", ">": "$>$",
    "λ": r"$\lambda$", "…": r"\ldots{}", "→": r"$\to$", "½": r"$\frac{1}{2}$", "÷": r"$\div$", "±": r"$\pm$",
    "√": r"$\surd$", "│": "|", "|": "$|$", "\u202f": r"\,",
}  # fmt: skip
_BACK = {r"\textasciitilde ": r"\textasciitilde{}", r"\textasciicircum ": r"\textasciicircum{}"}


def latex(found: Table, label: str) -> str:
    """A table environment with booktabs rules, its title as caption, notes below it."""
    plain = [[_plain(text) for text in line] for line in (found.columns, *found.rows)]
    frame = pd.DataFrame(plain[1:], columns=plain[0])
    # A bare tabular: captions and notes are escaped by the same rules, as cells of one more table.
    body = frame.to_latex(index=False, escape=True, column_format="l" * len(found.columns))
    tabular = "\n".join(_row(line) for line in body.splitlines())
    title, *notes = (_text(_plain(text)) for text in (found.title, *found.notes))
    lines = [
        r"% \usepackage{booktabs}", r"\begin{table}", r"\centering", rf"\caption{{{title}}}", rf"\label{{tab:{label}}}",
        _signs(tabular), *(rf"\par\footnotesize {note}" for note in notes), r"\end{table}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """One line without control characters, and without letters that no LaTeX is set up for."""
    return "".join(c if c.isprintable() and ord(c) < 0x2600 else "?" for c in " ".join(text.split()))


def _row(line: str) -> str:
    """A line that begins with a bracket would be read as the distance to the line before."""
    return re.sub(r"^\s*([\[*])", r"{\1}", line)


def _text(text: str) -> str:
    """Text escaped as pandas escapes a cell."""
    body = pd.DataFrame([[text]]).to_latex(index=False, header=False, escape=True)
    return _signs(body.split(r"\toprule", 1)[1].rsplit(r"\\", 1)[0].replace(r"\midrule", "").strip())


def _signs(text: str) -> str:
    for sign, spelled in {**_BACK, **_SIGNS}.items():
        text = text.replace(sign, spelled)
    return "".join(c if ord(c) < 0x250 or c in "–—‘’“”•€" else "?" for c in text)

"""leaderboard/index.html: one file that needs no network, to be sorted, filtered and asked where a number is from.

The page is a function of the records and of the plots that lie beside it (their bytes are put into it), so that
`leaderboard --check` can compare it. Everything out of a record is escaped by Jinja2 or set as text by the script, and
the page's Content-Security-Policy runs no other script than ours and loads nothing.

Sorting is done by tablesort (page/tablesort.min.js; MIT, page/tablesort.LICENCE): three kilobytes, no dependency,
usable by keyboard, and still released.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from ropebench.report import figures, provenance, summary
from ropebench.report.advice import in_short, outside
from ropebench.report.cells import Block, Record, Row, Samples
from ropebench.report.effective import ENOUGH, Enough
from ropebench.report.sections import composite_tables, family_tables, tables_of
from ropebench.report.tables import Table, cell_text, number

_HOME = Path(__file__).parent / "page"
_SCRIPTS = ("tablesort.min.js", "tablesort.number.min.js", "page.js")
_LENGTH = re.compile(r"(\d+) \(")
_NUMBER = re.compile(r"[+−-]?\d+(\.\d+)?(e[+-]?\d+)?(?![\w.])")


@dataclass(frozen=True)
class Board:
    """What a leaderboard shows: its blocks by model, their plots, the records and samples behind them (several seeds
    pooled), the records as they were `measured`, and what is `said` about what the numbers do and do not show."""

    by_model: Mapping[str, Sequence[Block]]
    planned: Sequence[figures.Planned]
    samples: Samples
    records: Mapping[str, Record]
    measured: Sequence[Record]
    said: Sequence[str]
    enough: Enough = ENOUGH

    def plots_of(self, block: Block) -> list[figures.Planned]:
        """The plots of one block, those of its family and model left out."""
        return [one for one in self.planned if one.block is block and not one.of_model]

    def family_plots(self, blocks: Sequence[Block]) -> list[figures.Planned]:
        """The plots of a model's families of tasks, and of its frequencies."""
        return [one for one in self.planned if one.of_model and any(one.block is b for b in blocks)]


def page(board: Board, folder: Path) -> str:
    """The page as text; plots are read from `folder`, and one that is not there is left out."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    script = "\n".join((_HOME / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    rows = [row for blocks in board.by_model.values() for block in blocks for row in block.rows]
    found = [block for blocks in board.by_model.values() for block in blocks]
    environment = Environment(
        loader=FileSystemLoader(_HOME), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    return environment.get_template("page.html").render(
        style=Markup((_HOME / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=f"sha256-{digest}",
        models=[_model(name, blocks, board, folder) for name, blocks in board.by_model.items()],
        choices=_choices(rows),
        cells=[_line(block, row) for block in found for row in block.rows],
        about={row["cell_id"]: _about(block, row, board.records) for block in found for row in block.rows},
        limits=board.said,
        sources=provenance.sources(board.measured),
        corpora=provenance.corpora(board.measured) or ["none"],
        commands=provenance.commands(board.measured),
    )


def _choices(rows: Sequence[Row]) -> dict[str, list[Any]]:
    named = {"model": "model_id", "task": "task_label", "length": "condition_length", "method": "label"}
    return {name: list(dict.fromkeys(sorted(row[key] for row in rows) if name == "length" else
                                     (row[key] for row in rows))) for name, key in named.items()}  # fmt: skip


def _model(name: str, blocks: Sequence[Block], board: Board, folder: Path) -> dict[str, Any]:
    short = in_short(blocks, board.samples, board.records)
    alone = outside(blocks)
    glance = summary.glance(alone, board.samples, board.records)
    return {
        "name": name,
        "trained_length": blocks[0].trained_length,
        "short": short and _grid(short),
        "said": [summary.verdict(block, board.samples, board.records) for block in alone],
        "glance": glance and _grid(glance),
        "composite": [_grid(one) for one in composite_tables(blocks, board.samples)],
        "families": [_grid(one) for one in family_tables(blocks, board.samples, board.enough)],
        "pictures": [_picture(one, folder) for one in board.family_plots(blocks)],
        "parts": [
            {
                "task": block.first["task_label"],
                "tables": [_grid(one, block, place == 0) for place, one in enumerate(_tables(block, board))],
                "pictures": [_picture(one, folder) for one in board.plots_of(block)],
            }
            for block in blocks
        ],
    }


def _tables(block: Block, board: Board) -> list[Table]:
    return tables_of(block, board.samples, board.records, board.enough)


def _picture(one: figures.Planned, folder: Path) -> dict[str, str]:
    file = folder / f"{one.stem}.png"
    data = b64encode(file.read_bytes()).decode() if file.is_file() else ""
    return {"title": f"{one.title}", "data": data}


def _grid(found: Table, block: Block | None = None, values: bool = False) -> dict[str, Any]:
    """A table as the template takes it: columns know their length, cells their number; `values`: a cell is a record."""
    columns: list[dict[str, Any]] = []
    for place, text in enumerate(found.columns):
        length = int(at.group(1)) if block is not None and (at := _LENGTH.match(text)) else None
        filled = [row[place] for row in found.rows if row[place]]
        numeric = place > 0 and bool(filled) and sum(bool(_NUMBER.match(text)) for text in filled) * 2 >= len(filled)
        columns.append({"text": text, "length": length, "number": numeric, "beyond": place == found.divider})
    rows = []
    for row in found.rows:
        cells = []
        for column, text in zip(columns, row, strict=True):
            cell = block.cell(row[0], column["length"]) if values and block is not None and column["length"] else None
            cells.append({"text": text, "sort": _sort(text), "about": cell and text and cell["cell_id"]})
        rows.append({"method": row[0] if block is not None else None, "cells": cells})
    return {"title": found.title, "columns": columns, "rows": rows, "notes": found.notes}


def _sort(text: str) -> str:
    """The number that a text begins with, as a script compares it; what has none comes below all others."""
    at = _NUMBER.match(text)
    return f"{float(at.group(0).replace('−', '-')):.9f}" if at else "-999999999"


def _line(block: Block, row: Row) -> dict[str, Any]:
    """One row of the table of all numbers."""
    text = cell_text(row, block.percent)
    value, _, interval = text.partition(" [")
    return {
        "model": row["model_id"],
        "task": row["task_label"],
        "named": " · ".join((row["task_label"], *block.qualifiers)),
        "length": row["condition_length"],
        "multiple": block.multiple(row["condition_length"]).removesuffix("×"),
        "method": row["label"],
        "metric": f"{block.measure}, %" if block.percent else block.measure,
        "value": value,
        "sort": _sort(value),
        "interval": interval.removesuffix("]"),
        "n": row["n"],
        "about": row["cell_id"],
    }


def _about(block: Block, row: Row, records: Mapping[str, Record]) -> list[tuple[str, str]]:
    """What a number rests on, as pairs to be shown when it is pointed at."""
    record = records[row["cell_id"]]
    made, task = record["provenance"], record["task"]
    corpus = task.get("corpus") or {}
    versions = ", ".join(f"{name} {version}" for name, version in (made.get("versions") or {}).items() if version)
    haystacks = "documents" if not block.percent else "independent samples or haystacks"
    held = [f"seed {row['condition_seed']}", block.bos, f"chat template {row['condition_chat_template']}"]
    error = record["outcome"].get("error") or {}
    facts = {
        "value": f"{row['label']} at {row['condition_length']} tokens: {cell_text(row, block.percent)}",
        "interval": f"95 %, {row['interval']}" if row["low"] is not None else str(row["interval"] or ""),
        "n": f"{row['n']} samples, {row['clusters']} {haystacks}, {row.get('condition_n_skipped') or 0} skipped",
        "status": " ".join(f"{row['outcome_status']} {error.get('type') or ''} {error.get('message') or ''}".split()),
        "full value": "" if row["value"] is None else number(row["value"], digits=7),
        "task": f"{task['label']}, version {task['version']}, scorer {task['scorer']}",
        "corpus": ", ".join(str(corpus[key]) for key in ("label", "identity", "licence") if corpus.get(key)),
        "held fixed": ", ".join(map(str, held)),
        "model": ", ".join(str(record["model"][key]) for key in ("revision", "dtype") if record["model"].get(key)),
        "measured by": provenance.origin(record),
        "versions": versions,
        "on": f"{made.get('platform')}, {made.get('device')}, {record['created']}",
        "record": str(record.get("record_id")),
        "run": str(record.get("run_id")),
        "cell": f"{row['cell_id']} (ropebench show {row['cell_id']})",
    }
    return [(name, value) for name, value in facts.items() if value]

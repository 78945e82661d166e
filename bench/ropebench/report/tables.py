"""Tables by context length: terminal, Markdown, CSV, JSON.

One table per model, task and condition (seed, BOS rule, chat template); rows are methods with factor and parameters
in their label, the baseline first; columns are lengths in tokens and as multiples of the trained window. A cell is

    10.1 [8.2–12.5]      value and 95 % interval (perplexity: exp of the NLL's interval)
    60 [23–88]           a score of 0–1 as a percentage, with Wilson's interval
    10.1 [n too small]   a value without an interval, and why
    uninformative        the model is not above chance inside its window, so that its score says nothing (see `gate`)
    out_of_memory        a cell that failed, by its status; blank: not run

The factor on cos and sin has a column where it is not 1 for all. Whatever limits a comparison stands in the notes under
the table. CSV and JSON hold one row per cell at full precision.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ropebench.report.cells import Block, Row
from ropebench.report.gate import UNINFORMATIVE
from ropebench.report.notes import notes

# What goes into CSV and JSON: enough to recompute the table and to find the record.
COLUMNS = (
    "model_id", "model_revision", "model_dtype", "model_attention", "model_quantization", "model_base",
    "model_trained_length", "task_label", "task_version", "task_scorer", "task_corpus_label", "method_label",
    "method_name", "method_version", "method_factor", "method_set_params", "condition_length", "condition_seed",
    "condition_bos", "condition_bos_used", "condition_chat_template", "method_attention_factor",
    "method_length_dependent", "metric", "direction", "value", "low", "high", "interval", "stderr", "n", "clusters",
    "measured", "informative", "dissociation", "condition_n_skipped", "condition_tokens_min", "condition_tokens_max",
    "outcome_status", "outcome_error_type", "outcome_error_message", "cost_seconds", "cost_peak_bytes",
    "provenance_commit", "provenance_device", "task_samples_sha256", "cell_id", "run_id", "created",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Text ready to be laid out. `divider` is the index of the first column beyond the trained window, if any."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    divider: int | None = None
    notes: tuple[str, ...] = ()


def table(block: Block, mean: bool | None = None) -> Table:
    """The table of one block. `mean` adds the mean over lengths, blank where any is missing (default: for scores)."""
    lengths, labels = block.lengths, block.labels
    mean = (block.percent and len(lengths) > 1) if mean is None else mean
    counts = {length: {row["n"] for row in block.rows if row["condition_length"] == length and _ok(row)}
              for length in lengths}  # fmt: skip
    factors = {label: _attention_factor(block, label) for label in labels}
    shown = set(factors.values()) - {"", "1"}
    columns = ["method", *(["attention factor"] if shown else [])]
    first = len(columns)
    columns += [_heading(block, length, counts[length]) for length in lengths]
    rows = []
    for label in labels:
        cells = [block.cell(label, length) for length in lengths]
        pairs = zip(cells, lengths, strict=True)
        line = [factors[label]] if shown else []
        line += [cell_text(cell, block.percent, len(counts[length]) > 1) for cell, length in pairs]
        if mean:
            values = [cell["value"] if cell else None for cell in cells]
            known = [value for value in values if value is not None]
            line.append(number(sum(known) / len(known), block.percent) if len(known) == len(values) else "")
        rows.append((label, *line))
    if mean:
        columns.append("mean")
    beyond = [place for place, length in enumerate(lengths, first) if length > block.trained_length]
    return Table(title(block), tuple(columns), tuple(rows), beyond[0] if beyond else None, tuple(notes(block)))


def _attention_factor(block: Block, label: str) -> str:
    """The factor on cos and sin, as read back from the model; a range where it depends on the length."""
    cells = (block.cell(label, length) for length in block.lengths)
    found = sorted({cell["method_attention_factor"] for cell in cells if cell and cell.get("method_attention_factor")})
    return "–".join(f"{value:.5g}" for value in dict.fromkeys([*found[:1], *found[-1:]]))


def title(block: Block) -> str:
    """Model, task, metric with its unit and direction, and what sets this table apart from its neighbours."""
    unit = f"{block.measure}, %" if block.percent else block.measure
    parts = [block.first["model_id"], block.first["task_label"], f"{unit} ({block.first['direction']} is better)"]
    return " · ".join([*parts, *block.qualifiers])


def _ok(row: Row) -> bool:
    return bool(row["outcome_status"] == "ok")


def _heading(block: Block, length: int, counts: set[int]) -> str:
    several = f" n={counts.copy().pop()}" if len(counts) == 1 else ""
    return f"{length} ({block.multiple(length)}){several}"


def cell_text(cell: Row | None, percent: bool, with_n: bool = False) -> str:
    """One cell: value and interval, the status of a failure, or nothing."""
    if cell is None:
        return ""
    if not _ok(cell):
        return str(cell["outcome_status"])
    if cell["interval"] == UNINFORMATIVE:
        return UNINFORMATIVE
    if cell["value"] is None:
        return "no samples"
    bounds = (
        f"{number(cell['low'], percent)}–{number(cell['high'], percent)}"
        if cell["low"] is not None and cell["high"] is not None
        else cell["interval"]
    )
    return f"{number(cell['value'], percent)} [{bounds}]" + (f" n={cell['n']}" if with_n else "")


def number(value: float, percent: bool = False, digits: int = 3) -> str:
    """A share of 1 as a whole percentage, anything else with `digits` significant digits and no exponent below 1e6."""
    if percent:
        return f"{100 * value:.0f}"
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    rounded = float(f"{value:.{digits - 1}e}")
    places = max(0, digits - 1 - int(f"{rounded:e}".partition("e")[2]))
    return f"{rounded:.{places}f}"


def as_text(found: Table) -> str:
    """Aligned plain text; `│` stands before the first length beyond the trained window."""
    widths = [max(len(line[place]) for line in (found.columns, *found.rows)) for place in range(len(found.columns))]

    def lay(line: Sequence[str]) -> str:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        if found.divider is not None:
            padded.insert(found.divider, "│")
        return "  ".join(padded).rstrip()

    rule = "─" * len(lay(["x" * width for width in widths]))
    lines = [found.title, lay(found.columns), rule, *map(lay, found.rows), *(f"  {note}" for note in found.notes)]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is: no tables, tags, links or emphasis out of a model's or a file's name."""
    text = " ".join(str(text).split()).replace("\\", "\\\\").replace("&", "&amp;")
    for mark, safe in (("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("*", "\\*"), ("`", "\\`"), ("](", "]\\(")):
        text = text.replace(mark, safe)
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)


def as_markdown(found: Table, heading: str = "###") -> str:
    """A Markdown section: heading, table, notes as a list."""
    lines = [
        f"{heading} {escape(found.title)}",
        "",
        "| " + " | ".join(map(escape, found.columns)) + " |",
        "|" + "|".join("---" for _ in found.columns) + "|",
        *("| " + " | ".join(map(escape, row)) + " |" for row in found.rows),
        "",
        *(f"- {escape(note)}" for note in found.notes),
    ]
    return "\n".join(lines).rstrip() + "\n"


def plain_rows(rows: Iterable[Row]) -> list[Row]:
    """Flat rows reduced to COLUMNS, in a fixed order: model, task, condition, method, length."""
    kept = [{name: row.get(name) for name in COLUMNS} for row in rows]
    key: Callable[[Row], tuple[str, ...]] = lambda row: (  # noqa: E731
        *(str(row[name]) for name in ("model_id", "task_label", "condition_seed", "method_label")),
        f"{row['condition_length']:012d}",
        str(row["created"]),
        str(row["cell_id"]),
    )
    return sorted(kept, key=key)


def as_json(rows: Iterable[Row]) -> str:
    """A JSON list with one object per cell (COLUMNS); scores 0–1, null for unknown."""
    return json.dumps(plain_rows(rows), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_csv(rows: Iterable[Row]) -> str:
    """CSV with one line per cell (COLUMNS), full precision, empty for unknown, LF line ends.

    Text that a spreadsheet would run as a formula gets a leading apostrophe; numbers stay numbers.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in plain_rows(rows):
        writer.writerow([neutral(row[name]) for name in COLUMNS])
    return out.getvalue()


def neutral(value: Any) -> Any:
    """A CSV value that no spreadsheet takes for a formula."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return "" if value is None else value

"""What `ropebench list` shows: a table, and in Markdown a page for every task and method.

Rows are those of `ropebench.listing`. In one document the members of a family (`ruler/vt` …) stand together, and the
protocol that tasks of one file share is said once; written as files, each page is complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from ropebench.report.tables import Table, as_markdown, escape

Row = Mapping[str, Any]

_COLUMNS = {
    "methods": ("name", "summary", "parameters"),
    "tasks": ("name", "summary", "metric", "minimum_length", "parameters"),
    "models": ("name", "source", "trained_length", "chat_template", "note"),
    "sweeps": ("name", "about"),
    "published": ("model", "method", "task", "metric", "confidence", "source", "where", "training", "numbers"),
}


def table(what: str, rows: Sequence[Row]) -> Table:
    """One line for each that can be named."""
    columns = _COLUMNS[what]
    body = tuple(tuple(_cell(row.get(column)) for column in columns) for row in rows)
    return Table(f"{len(rows)} {what}{' rows' if what == 'published' else ''}", columns, body)


def _cell(value: Any) -> str:
    if isinstance(value, list):  # parameters as they are written on the command line
        return ":".join(f"{one['name']}={one['default']}" for one in value)
    return "" if value is None else str(value)


def document(what: str, rows: Sequence[Row]) -> str:
    """Everything in one Markdown document."""
    if what not in ("tasks", "methods"):
        return as_markdown(table(what, rows), "#")
    parts = [_index(what, rows)]
    for family, members in groupby(rows, lambda row: str(row["name"]).split("/")[0]):
        same = list(members)
        several = len(same) > 1
        parts += [f"## {escape(family)}\n"] if several else []
        # The members that share a protocol stand together, below it.
        for shared in dict.fromkeys(row.get("protocol") for row in same):
            sharing = [row for row in same if row.get("protocol") == shared]
            parts += [f"{shared}\n"] if several and shared else []
            parts += [_page(row, "###" if several else "##", whole=not several) for row in sharing]
    return "\n".join(parts)


def write(what: str, rows: Sequence[Row], folder: Path) -> list[Path]:
    """`tasks.md` (or `methods.md` …) with a table of all, and one Markdown file for each; returns the files."""
    pages = {f"{what}.md": document(what, rows)}
    if what in ("tasks", "methods"):
        pages = {f"{what}.md": _index(what, rows, links=True)} | {
            _file(row): _page(row, "#", whole=True) for row in rows
        }
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return [folder / name for name in pages]


def _file(row: Row) -> str:
    return f"{row['name']}.md".replace("/", "-")


def _index(what: str, rows: Sequence[Row], links: bool = False) -> str:
    """A heading, and a table of all pages."""
    named = [f"[{escape(row['name'])}]({_file(row)})" if links else escape(row["name"]) for row in rows]
    columns: tuple[str, ...] = ("method", "what it does")
    body: list[tuple[str, ...]] = [(name, escape(row["summary"])) for name, row in zip(named, rows, strict=True)]
    if what == "tasks":
        columns = ("task", "what it measures", "primary metric", "chance", "needs")
        for place, row in enumerate(rows):
            name, _, _, chance, _ = _metric(row["metrics"][0]) if row.get("metrics") else [""] * 5
            body[place] += tuple(map(escape, (name, chance, needs(row))))
    return f"# {what.capitalize()}\n\n{_grid(columns, body)}\n"


def _page(row: Row, heading: str, whole: bool) -> str:
    """One page; `whole` has in it the protocol that other tasks may share."""
    blocks = [f"{heading} {escape(row['name'])}", escape(row["summary"]), _facts(row)]
    blocks += [row.get("protocol", "") if whole else "", row.get("about", "")]
    if row.get("metrics"):
        blocks.append("**Metrics**" + (" (with the default parameters)" if row["parameters"] else ""))
        body = [tuple(map(escape, _metric(metric))) for metric in row["metrics"]]
        blocks.append(_grid(("metric", "better", "range", "chance", "unit"), body))
    if row.get("parameters"):
        lines = [(one["name"], "required" if one["required"] else one["default"], one["takes"], one["meaning"])
                 for one in row["parameters"]]  # fmt: skip
        body = [tuple(map(escape, line)) for line in lines]
        blocks += ["**Parameters**", _grid(("parameter", "default", "takes", "meaning"), body)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _grid(columns: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A Markdown table of cells that are escaped already."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, ["---"] * len(columns), *body))


def _facts(row: Row) -> str:
    """What there is to know before it is used, as a list."""
    facts: dict[str, Any] = {}
    if "scorer" in row:
        facts = {
            "scorer": "; ".join([row["scorer"], *(f"{name} by {at}" for at, name in row["other_scorers"].items())]),
            "minimum length": f"{row['minimum_length']} tokens" if row["minimum_length"] else "",
            "samples per cell": f"{row['default_n']} by default",
            "needs": needs(row),
            "chat template": "as asked" if row["chat"] else "never: plain text",
        }
    elif "aliases" in row:
        varies = "depends on the length of each sequence" if row["length_dependent"] else ""
        facts = {"table": varies, "also called": ", ".join(row["aliases"])}
    facts |= {"source": row.get("source"), "defined in": row["origin"], "version": row["version"]}
    return "\n".join(f"- {name}: {escape(value)}" for name, value in facts.items() if value)


def needs(row: Row) -> str:
    """What a task reads beside the model: long text, a data set, or nothing."""
    parts = []
    if row.get("needs_corpus"):
        default = row["default_docs"]
        parts.append(f"long text: {default}, or another by --docs" if default else "long text, given by --docs")
    for one in row.get("parameters", ()):
        if one["name"] == "data":
            hub = f"{one['default']} from the hub, or " if one["default"] not in ("", "none") else ""
            parts.append(f"data: {hub}{row['name']}:data=FOLDER")
    return "; ".join(parts) or "nothing"


def _metric(metric: Row) -> tuple[str, str, str, str, str]:
    """Name, direction, range, chance level and unit."""
    low, high, chance = metric["low"], metric["high"], metric["chance"]
    span = f"{low:g} – {high:g}" if low is not None and high is not None else ""
    span = span or (f"at least {low:g}" if low is not None else f"at most {high:g}" if high is not None else "open")
    unit = metric["unit"] + (
        f" ({metric['derived'][0]} of the mean {metric['derived'][1]})" if metric["derived"] else ""
    )
    return metric["name"], metric["direction"], span, "" if chance is None else f"{chance:.3g}", unit.strip()

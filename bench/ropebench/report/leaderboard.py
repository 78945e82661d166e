"""leaderboard/: README.md, leaderboard.csv, plots and index.html, from records alone. Never edited by hand.

The text depends on nothing but the records and sample rows (no clock, no paths), so `check` compares it byte for byte.
Plots are checked for existence only: their bytes depend on the installed matplotlib, and their numbers are in the CSV.
The page holds the plots that lie beside it, and is compared with what it would be with those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ropebench.errors import UsageError
from ropebench.report import figures, provenance, site, summary
from ropebench.report.advice import in_short, outside
from ropebench.report.cells import Block, Record, Samples, blocks, cell_rows
from ropebench.report.dissociation import with_dissociation
from ropebench.report.effective import ENOUGH, Enough
from ropebench.report.limits import limits
from ropebench.report.paired import by_cell
from ropebench.report.pooling import pooled
from ropebench.report.repeats import disagreements
from ropebench.report.sections import composite_tables, family_tables, tables_of
from ropebench.report.tables import as_csv, as_markdown, escape

README, CSV, PAGE = "README.md", "leaderboard.csv", "index.html"


def build(
    records: Iterable[Record], samples: Samples, out_dir: Path, every: Iterable[Record] = (), enough: Enough = ENOUGH
) -> list[Path]:
    """Write the leaderboard into a folder (made if needed); returns the files. `records`: one per cell; `every`: all
    that are stored, to see whether repeats agree.

    Raises UsageError when there are no records.
    """
    records = list(records)
    texts, board = _pages(records, samples, every, enough)
    out_dir.mkdir(parents=True, exist_ok=True)
    drawn = [path for one in board.planned for path in figures.draw(one, board.samples, out_dir, enough)]
    texts[PAGE] = site.page(board, out_dir)
    written = []
    for name, text in texts.items():
        (out_dir / name).write_text(text, encoding="utf-8", newline="\n")
        written.append(out_dir / name)
    return written + drawn


def check(
    records: Iterable[Record], samples: Samples, out_dir: Path, every: Iterable[Record] = (), enough: Enough = ENOUGH
) -> list[str]:
    """Names of files that are missing or differ from what `build` would write; empty when all is up to date."""
    texts, board = _pages(list(records), samples, every, enough)
    texts[PAGE] = site.page(board, out_dir)
    stale = [name for name, text in texts.items() if not _same(out_dir / name, text)]
    plots = [f"{one.stem}{suffix}" for one in board.planned for suffix in (".png", ".svg")]
    return stale + [name for name in plots if not (out_dir / name).is_file()]


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def _pages(
    records: list[Record], samples: Samples, every: Iterable[Record], enough: Enough = ENOUGH
) -> tuple[dict[str, str], site.Board]:
    if not records:
        raise UsageError("no records to build a leaderboard from; run `ropebench run` first or name the results folder")
    measured, (records, samples) = records, pooled(records, samples)
    cells = by_cell(records)
    rows = with_dissociation(cell_rows(records, samples), samples, cells)
    found = blocks(rows)
    by_model: dict[str, list[Block]] = {}
    for block in found:
        by_model.setdefault(block.first["model_id"], []).append(block)
    apart, alike = disagreements(every)
    said = [*apart, *limits(found, samples, cells), *alike]
    board = site.Board(by_model, figures.plan(found, samples, cells), samples, cells, measured, said, enough)
    parts = [_OPENING, "## Summary\n"]
    for model, members in by_model.items():
        parts.append(_summary(model, members, samples, cells))
    for model, members in by_model.items():
        parts.append(f"## Results: {escape(model)}\n")
        parts += [as_markdown(one) for one in family_tables(members, samples, enough)]
        parts += map(_image, board.family_plots(members))
        parts += [_results(block, board) for block in members]
    parts.append("## What these numbers do and do not show\n")
    parts.append("".join(f"- {escape(line)}\n" for line in said))
    parts.append(_provenance(measured))
    return {README: "\n".join(parts), CSV: as_csv(rows)}, board


_OPENING = """# Leaderboard

Generated from the records in `results/` by `ropebench leaderboard`; not edited by hand. Every number can be recomputed
from the sample rows stored beside the records. `ropebench leaderboard --check` says whether this page is up to date.

A row is a method with its factor (`yarn×2`) and the parameters that differ from its defaults. Lengths are tokens fed to
the model; `2×` is twice the window the model was trained with. Brackets hold 95 % intervals. `no BOS`: no token that
marks the beginning of a text was fed before it.
"""


def _summary(model: str, members: Sequence[Block], samples: Samples, cells: dict[str, Record]) -> str:
    lines = [f"### {escape(model)} (trained on {members[0].trained_length} tokens)", ""]
    short = in_short(members, samples, cells)
    if short is not None:
        lines += [as_markdown(short, "####")]
    alone = outside(members)
    for block in alone:
        said = summary.verdict(block, samples, cells)
        lines.append(f"- {escape(said[0])}")
        lines += [f"  {escape(line)}" for line in said[1:]]
    text = "\n".join(lines) + "\n"
    glance = summary.glance(alone, samples, cells)
    tables = [*([] if glance is None else [glance]), *composite_tables(members, samples)]
    return "\n".join([text, *(as_markdown(one, "####") for one in tables)])


def _results(block: Block, board: site.Board) -> str:
    tables = tables_of(block, board.samples, board.records, board.enough)
    parts = [as_markdown(one, "####" if place else "###") for place, one in enumerate(tables)]
    return "\n".join([*parts, *map(_image, board.plots_of(block))])


def _image(planned: figures.Planned) -> str:
    return f"![{escape(planned.title)}]({planned.stem}.png)\n"


def _provenance(records: Sequence[Record]) -> str:
    lines = ["## Provenance", "", *(f"- {escape(line)}" for line in provenance.sources(records)), "", "Corpora:", ""]
    lines += [f"- {escape(line)}" for line in provenance.corpora(records)] or ["- none"]
    lines += ["", "The commands that measured this:", "", "```"]
    lines += [line.replace("```", "") for line in provenance.commands(records)]
    lines += ["```", "", "To regenerate this page from the records: `ropebench leaderboard`.", ""]
    return "\n".join(lines)

"""leaderboard/: README.md, leaderboard.csv and plots, from records alone. Never edited by hand.

The text depends on nothing but the records and sample rows (no clock, no paths), so `check` compares it byte for byte.
Plots are checked for existence only: their bytes depend on the installed matplotlib, and their numbers are in the CSV.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ropebench.errors import UsageError
from ropebench.record import canonical
from ropebench.report import figures, summary
from ropebench.report.advice import in_short, outside
from ropebench.report.cells import Block, Record, Samples, blocks, cell_rows
from ropebench.report.dissociation import with_dissociation
from ropebench.report.limits import limits
from ropebench.report.paired import by_cell
from ropebench.report.pooling import pooled
from ropebench.report.repeats import disagreements
from ropebench.report.sections import composite_tables, family_tables, tables_of
from ropebench.report.tables import as_csv, as_markdown, escape

README, CSV = "README.md", "leaderboard.csv"


def build(records: Iterable[Record], samples: Samples, out_dir: Path, every: Iterable[Record] = ()) -> list[Path]:
    """Write the leaderboard into a folder (made if needed); returns the files. `records`: one per cell; `every`: all
    that are stored, to see whether repeats agree.

    Raises UsageError when there are no records.
    """
    records = list(records)
    texts, planned, samples = _pages(records, samples, every)
    out_dir.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in texts.items():
        (out_dir / name).write_text(text, encoding="utf-8", newline="\n")
        written.append(out_dir / name)
    return written + [path for one in planned for path in figures.draw(one, samples, out_dir)]


def check(records: Iterable[Record], samples: Samples, out_dir: Path, every: Iterable[Record] = ()) -> list[str]:
    """Names of files that are missing or differ from what `build` would write; empty when all is up to date."""
    texts, planned, _ = _pages(list(records), samples, every)
    stale = [name for name, text in texts.items() if not _same(out_dir / name, text)]
    plots = [f"{one.stem}{suffix}" for one in planned for suffix in (".png", ".svg")]
    return stale + [name for name in plots if not (out_dir / name).is_file()]


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def _pages(
    records: list[Record], samples: Samples, every: Iterable[Record]
) -> tuple[dict[str, str], list[figures.Planned], Samples]:
    if not records:
        raise UsageError("no records to build a leaderboard from; run `ropebench run` first or name the results folder")
    measured, (records, samples) = records, pooled(records, samples)
    cells = by_cell(records)
    rows = with_dissociation(cell_rows(records, samples), samples, cells)
    found = blocks(rows)
    planned = figures.plan(found, samples, cells)
    by_model: dict[str, list[Block]] = {}
    for block in found:
        by_model.setdefault(block.first["model_id"], []).append(block)
    parts = [_OPENING, "## Summary\n"]
    for model, members in by_model.items():
        parts.append(_summary(model, members, samples, cells))
    for model, members in by_model.items():
        parts.append(f"## Results: {escape(model)}\n")
        parts += [as_markdown(one) for one in family_tables(members)]
        parts += [_image(one) for one in planned if one.family is not None and any(one.block is b for b in members)]
        for block in members:
            own = [one for one in planned if one.block is block and one.family is None]
            parts.append(_results(block, samples, cells, own))
    parts.append("## What these numbers do and do not show\n")
    apart, alike = disagreements(every)
    said = [*apart, *limits(found, samples, cells), *alike]
    parts.append("".join(f"- {escape(line)}\n" for line in said))
    parts.append(_provenance(measured))
    return {README: "\n".join(parts), CSV: as_csv(rows)}, planned, samples


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


def _results(block: Block, samples: Samples, cells: dict[str, Record], planned: Sequence[figures.Planned]) -> str:
    parts = [as_markdown(one, "####" if place else "###") for place, one in enumerate(tables_of(block, samples, cells))]
    return "\n".join([*parts, *map(_image, planned)])


def _image(planned: figures.Planned) -> str:
    return f"![{escape(planned.title)}]({planned.stem}.png)\n"


def _provenance(records: Sequence[Record]) -> str:
    lines = ["## Provenance", "", *(f"- {line}" for line in _sources(records)), "", "Corpora:", ""]
    lines += [f"- {line}" for line in _corpora(records)] or ["- none"]
    lines += ["", "The commands that measured this:", "", "```"]
    lines += sorted({shlex.join(record["provenance"]["argv"]).replace("```", "") for record in records})
    lines += ["```", "", "To regenerate this page from the records: `ropebench leaderboard`.", ""]
    return "\n".join(lines)


def _sources(records: Sequence[Record]) -> list[str]:
    found: dict[str, int] = {}
    for record in records:
        made = record["provenance"]
        commit = made.get("commit")
        name = f"commit `{commit[:12]}`" if commit else "no commit (installed package)"
        name += " with uncommitted changes" if made.get("dirty") else ""
        found[name] = found.get(name, 0) + 1
    lines = [f"{name}: {count} cells" for name, count in sorted(found.items())]
    versions: dict[str, set[str]] = {}
    for record in records:
        for package, version in (record["provenance"].get("versions") or {}).items():
            if version:
                versions.setdefault(package, set()).add(str(version))
    listed = ", ".join(f"{package} {' and '.join(sorted(known))}" for package, known in sorted(versions.items()))
    machines = sorted({f"{r['provenance'].get('platform')}, {r['provenance'].get('device')}" for r in records})
    lines += [f"versions: {escape(listed)}", f"measured on: {escape('; '.join(machines))}", _cost(records)]
    models = sorted({f"{r['model']['id']}: {_model(r['model'])}" for r in records})
    return lines + [escape(f"model {text}") for text in models]


def _model(model: dict[str, Any]) -> str:
    parts = [f"source {model.get('source')}", f"revision {model.get('revision')}", model["dtype"]]
    parts.append(f"{model['attention']} attention")
    if model.get("quantization"):
        parts.append(f"{model['quantization']} weights")
    if model.get("base"):
        parts.append(f"starting from the {model['base']} table")
    return ", ".join(parts)


def _cost(records: Sequence[Record]) -> str:
    seconds = sum(record["cost"].get("seconds") or 0 for record in records)
    peak = max((record["cost"].get("peak_bytes") or 0 for record in records), default=0)
    text = f"cost: {seconds / 3600:.2f} hours of wall time (of each cell's last run, whatever else the machine did)"
    return f"{text}, at most {peak / 2**30:.2f} GiB of memory" if peak else text


def _corpora(records: Sequence[Record]) -> list[str]:
    # Lengths use different documents of one corpus, so they are collected over all records of it.
    found: dict[str, tuple[dict[str, Any], dict[str, str]]] = {}
    for record in records:
        corpus = record["task"].get("corpus")
        if corpus:
            stated = {key: corpus.get(key) for key in ("label", "source", "revision", "licence", "identity")}
            _, files = found.setdefault(canonical(stated), (stated, {}))
            files |= {f"{one['name']} {one['sha256'][:12]}": one["name"] for one in corpus.get("documents") or []}
    lines = []
    for _, (corpus, files) in sorted(found.items()):
        parts = [f"source {corpus.get('source')}"]
        parts += [f"revision {corpus['revision']}"] if corpus.get("revision") else []
        parts += [f"licence {corpus['licence']}" if corpus.get("licence") else "licence not stated"]
        documents = sorted(files)
        shown = ", ".join(f"{files[key]} (sha256 {key.rpartition(' ')[2]})" for key in documents[:8])
        more = f" and {len(documents) - 8} more, see the records" if len(documents) > 8 else ""
        count = f"{len(documents)} document{'' if len(documents) == 1 else 's'}"
        parts += [f"identity {corpus['identity']}"] if corpus.get("identity") else []
        named = f"; {count}: {shown}{more}" if documents else ""  # a haystack is the whole text, not single documents
        lines.append(escape(f"{corpus['label']}: {', '.join(parts)}{named}"))
    return lines

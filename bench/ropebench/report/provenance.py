"""Where the numbers of a set of records come from, as plain lines: code, versions, machines, cost, models, texts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from ropebench.record import canonical
from ropebench.report.cells import Record


def commands(records: Sequence[Record]) -> list[str]:
    """The command lines that measured the records, each once."""
    found = {" ".join(shlex.join(record["provenance"]["argv"]).split()) for record in records}
    return sorted(found - {""})


def sources(records: Sequence[Record]) -> list[str]:
    """Commits, versions, machines, cost and models."""
    found: dict[str, int] = {}
    for record in records:
        name = origin(record)
        found[name] = found.get(name, 0) + 1
    lines = [f"{name}: {count} cells" for name, count in sorted(found.items())]
    versions: dict[str, set[str]] = {}
    for record in records:
        for package, version in (record["provenance"].get("versions") or {}).items():
            if version:
                versions.setdefault(package, set()).add(str(version))
    listed = ", ".join(f"{package} {' and '.join(sorted(known))}" for package, known in sorted(versions.items()))
    machines = sorted({f"{r['provenance'].get('platform')}, {r['provenance'].get('device')}" for r in records})
    lines += [f"versions: {listed}", f"measured on: {'; '.join(machines)}", _cost(records)]
    models = sorted({f"{r['model']['id']}: {_model(r['model'])}" for r in records})
    return lines + [f"model {text}" for text in models]


def origin(record: Record) -> str:
    """The code that a record was measured with: `commit 12ab…`, or the results file of another tool."""
    made = record["provenance"]
    imported = made.get("imported")
    if imported:
        return f"imported from {imported.get('tool')} {imported.get('version') or ''}".rstrip()
    commit = made.get("commit")
    name = f"commit {commit[:12]}" if commit else "no commit (installed package)"
    return name + (" with uncommitted changes" if made.get("dirty") else "")


def _model(model: dict[str, Any]) -> str:
    parts = [f"source {model.get('source')}", f"revision {model.get('revision')}"]
    parts += [model["dtype"]] if model.get("dtype") else []
    parts += [f"{model['attention']} attention"] if model.get("attention") else []
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


def corpora(records: Sequence[Record]) -> list[str]:
    """Long texts, with the documents read of each."""
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
        lines.append(f"{corpus['label']}: {', '.join(parts)}{named}")
    return lines

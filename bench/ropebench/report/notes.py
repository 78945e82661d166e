"""What stands under a table: the settings, the kind of interval, and everything that limits a comparison."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ropebench.report.cells import Block, Row, quantizations
from ropebench.stats import MIN_CLUSTERS


def notes(block: Block) -> list[str]:
    """What a reader must know to use the table: the settings, then everything that limits a comparison."""
    first = block.first
    lines = [settings(block), _interval_note(block), *_coverage(block), *_gate_notes(block), *_length_dependent(block)]
    for length in block.disagreeing():
        groups: dict[Any, list[str]] = {}
        for label in block.labels:
            cell = block.cell(label, length)
            if cell is not None and cell["outcome_status"] == "ok":
                groups.setdefault(cell["task_samples_sha256"], []).append(label)
        listed = " ≠ ".join(", ".join(members) for members in groups.values())
        common = block.common(length)
        if common:
            lines.append(
                f"at {length} the methods have different samples ({listed}): each value is over its own; ranks are "
                f"over the {common} that all have, a difference over those that both have"
            )
        else:
            lines.append(f"NOT COMPARABLE at {length}: the methods saw different samples ({listed})")
    for row in block.rows:
        where = f"{row['label']} at {row['condition_length']}"
        if row["outcome_status"] != "ok":
            lines.append(f"{where}: {row['outcome_status']}{_reason(row)}")
        if row.get("condition_failed_seeds"):
            lines.append(f"{where}: {row['condition_failed_seeds']}; the value is that of the other seeds")
        if row.get("condition_n_skipped"):
            lines.append(f"{where}: {row['condition_n_skipped']} samples skipped (they do not fit)")
    window = first.get("model_sliding_window")
    if window is not None and any(length > window for length in block.lengths):
        lines.append(f"layers with a sliding window of {window} tokens see nothing beyond it, whatever the method")
    return [*lines, *block.notes]


def _reason(row: Row) -> str:
    parts = [row.get("outcome_error_type"), row.get("outcome_error_message")]
    said = ": ".join(" ".join(str(part).split()) for part in parts if part)
    return f" ({said[:200]})" if said else ""


def seeds(rows: Sequence[Row]) -> str:
    """`seed 0`; `seeds 0, 1 pooled` where a row has several; `seed 0 or 1` where rows differ."""
    known = sorted({str(row["condition_seed"]) for row in rows})
    text = " or ".join(one.replace("+", ", ") for one in known)
    return f"seeds {text} pooled" if any("+" in one for one in known) else f"seed {text}"


def settings(block: Block) -> str:
    """Corpus, scorer, seed, BOS, chat template, number format and device, in one line."""
    first = block.first
    used = {row.get("condition_bos_used") for row in block.rows if row["outcome_status"] == "ok"}
    added = " (added)" if used == {True} else " (not added)" if used == {False} else ""
    parts = [
        f"corpus {first['task_corpus_label']}" if first.get("task_corpus_label") else "no corpus",
        f"scorer {first['task_scorer']}" if first.get("task_scorer") else "",
        _params(first.get("task_params")),
        seeds(block.rows),
        f"BOS {first['condition_bos']}{added}" if first["condition_bos"] else "",
        f"chat template {first['condition_chat_template']}",
        first["model_dtype"],
        f"{first['model_attention']} attention" if first["model_attention"] else "",
        f"{', '.join(formats)} weights" if (formats := quantizations(block.rows)) else "",
        ", ".join(sorted({str(row["provenance_device"]) for row in block.rows})),
        f"trained on {block.trained_length} tokens",
    ]
    return " · ".join(str(part) for part in parts if part)


def _params(text: str | None) -> str:
    """A task's parameters in words, such as the protocol and the document filter of a perplexity."""
    return " ".join(f"{name}={value}" for name, value in json.loads(text or "{}").items() if value is not None)


_KINDS = {
    "t": "t over documents or haystacks",
    "exp t": "exp of the t interval of the mean NLL over documents",
    "bootstrap-t": "bootstrap-t over documents, haystacks or samples, no end inside that of t",
    "exp bootstrap-t": "exp of the bootstrap-t interval of the mean NLL over documents, no end inside that of t",
    "wilson": "Wilson",
    "clustered wilson": "Wilson with the effective number of samples, from the spread between haystacks or samples",
}


def _interval_note(block: Block) -> str:
    done = [row for row in block.rows if row["outcome_status"] == "ok"]
    kinds = sorted({row["interval"] for row in done if row["low"] is not None})
    text = "95 % intervals: " + "; ".join(_KINDS.get(kind, kind) for kind in kinds) if kinds else "no intervals"
    if any(row["interval"] == "n too small" for row in done):
        text += f"; n too small: fewer than {MIN_CLUSTERS} independent documents, haystacks or samples"
    shared = sorted({(row["n"], row["clusters"]) for row in done if 0 < row["clusters"] < row["n"]})
    if shared:
        listed = ", ".join(f"{n} samples in {clusters}" for n, clusters in shared)
        text += f"; samples share documents or haystacks ({listed})"
    return text


def _coverage(block: Block) -> list[str]:
    """Scores are compared down a column; along a row only where every length has as many samples."""
    counts = block.counts()
    if not block.percent or len(set(counts.values())) < 2:
        return []
    listed = ", ".join(f"{n} at {length}" for length, n in sorted(counts.items()))
    return [
        f"lengths have different numbers of samples ({listed}), so other depths too: a rise or fall from one length to "
        "the next, and the mean over lengths, may come from that; compare methods within a length"
    ]


def _gate_notes(block: Block) -> list[str]:
    first = block.first
    if first["informative"] is None:
        return [
            f"whether the model can do this at all is unknown: the unmodified model was not measured at or below its "
            f"window of {block.trained_length} tokens"
        ]
    if not block.uninformative:
        return []
    return [
        f"uninformative: the unmodified model is not shown to be above chance ({100 * first['chance']:.2g} %) at or "
        f"below its window of {block.trained_length} tokens, by the intervals of its primary score (corrected for the "
        "number of lengths); what was measured stands in CSV and JSON as `measured`"
    ]


def _length_dependent(block: Block) -> list[str]:
    """Which frequencies a method used whose table depends on the length: a score means little without that."""
    labels = [label for label in block.labels if any(r["method_length_dependent"] for r in block.of(label))]
    if not labels:
        return []
    return [
        f"{', '.join(labels)}: the table depends on the length. It is set once per sample, before the pass, for the "
        "whole sample: generation keeps the one for prompt plus answer budget from the first token to the last, "
        "likelihood is one full pass per length, and nothing computed under another table is reused"
    ]

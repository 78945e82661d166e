"""What the numbers do and do not show: from n, clusters, widths, corpora, seeds, weights and failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ropebench.comparison import smallest_decisive_n
from ropebench.report.cells import Block, Record, Row, Samples, quantizations
from ropebench.report.notes import seeds
from ropebench.report.paired import compared_metric
from ropebench.report.tables import number
from ropebench.stats import MIN_CLUSTERS


def limits(blocks: Sequence[Block], samples: Samples, records: Mapping[str, Record]) -> list[str]:
    """One line per table, then one for each thing that limits all of them."""
    lines: list[str] = []
    for block in blocks:
        metric = compared_metric(block, records)
        done = [row for row in block.rows if row["value"] is not None]
        if block.uninformative:
            lines.append(
                f"{block.title}: uninformative. The unmodified model is not shown to be above chance inside its "
                "window, so no method's score says anything beyond it."
            )
        elif done:
            lines.append(_score_limits(block, done) if block.percent else _width_limits(block, done, metric))
        for length in block.disagreeing():
            common = block.common(length)
            how = f"compared on the {common} in common" if common else "not compared there"
            lines.append(f"{block.title}: at {length} the methods saw different samples; they are {how}.")
    return [*lines, *_general([row for block in blocks for row in block.rows])]


def _span(values: Sequence[int]) -> str:
    return str(min(values)) if min(values) == max(values) else f"{min(values)}–{max(values)}"


def _width_limits(block: Block, done: Sequence[Row], metric: str) -> str:
    clusters = [row["clusters"] for row in done]
    several = "" if max(clusters) == 1 else "s"
    text = f"{block.title}: {_span(clusters)} document{several} of one corpus, {seeds(block.rows)}."
    if min(clusters) < MIN_CLUSTERS:
        text += (
            f" Fewer than {MIN_CLUSTERS} have no interval and no test: where all of them agree on an order of methods "
            "this is said, as an observation on these documents."
        )
    known = [row for row in done if row["low"] is not None]
    if known:
        widest = max(known, key=lambda row: row["high"] - row["low"])
        text += (
            f" A single value is uncertain by as much as {number(widest['low'])}–{number(widest['high'])} around "
            f"{number(widest['value'])} ({widest['label']} at {widest['condition_length']}), because documents differ; "
            "methods are therefore compared document by document, and a difference whose interval includes 0 may still "
            "exist."
        )
    if metric == "nll":
        text += (
            " Most tokens are predicted from nearby text, so a low perplexity does not show that distant text is used."
        )
    return text


def _score_limits(block: Block, done: Sequence[Row]) -> str:
    counts = sorted({row["n"] for row in done if row["n"]}, reverse=True)
    steps = ", ".join(f"{100 / n:.0f} points with n = {n}" for n in counts)
    text = f"{block.title}: {_span(counts)} samples per cell; one sample is {steps}."
    sure = next((row for row in done if row["value"] == 1 and row["low"] is not None and row["n"] == counts[0]), None)
    if sure is not None:
        text += f" {number(1, True)} % of {sure['n']} is compatible with {number(sure['low'], True)}–100 %."
    clusters = [row["clusters"] for row in done]
    if any(row["clusters"] < row["n"] for row in done):
        text += (
            f" The samples of a cell share {_span(clusters)} haystack{'' if max(clusters) == 1 else 's'}, so they are "
            "fewer independent ones."
        )
    if max(clusters) < MIN_CLUSTERS:
        text += f" Fewer than {MIN_CLUSTERS} independent samples have no interval and no test: this ranks nothing here."
    elif max(clusters) < smallest_decisive_n() and all(row["clusters"] == row["n"] for row in done):
        text += (
            f" With fewer than {smallest_decisive_n()} independent samples the exact paired test cannot tell any two "
            "methods apart: this ranks nothing here."
        )
    return text


def _general(rows: Sequence[Row]) -> list[str]:
    lines = []
    models = sorted({row["model_id"] for row in rows})
    if len(models) == 1:
        lines.append(f"One model ({models[0]}): nothing here says how the methods order on others.")
    weights = quantizations(rows)
    if weights:
        listed = ", ".join(weights)
        lines.append(f"Quantised weights ({listed}): absolute values differ from those of the full-precision model.")
    drawn = sorted({str(row["condition_seed"]) for row in rows})
    if len(drawn) == 1 and "+" not in drawn[0]:
        lines.append(f"One seed ({drawn[0]}): the samples were drawn once.")
    lines.append(
        "Decisions are at the 5 % level after Holm's correction within each table; between tables there is none, and "
        "intervals are each by themselves."
    )
    failed = sum(row["outcome_status"] != "ok" for row in rows)
    if failed:
        lines.append(f"{failed} of {len(rows)} cells failed: they stand in the tables by status and enter no mean.")
    dirty = sum(row.get("provenance_dirty") is True for row in rows)
    if dirty:
        lines.append(f"{dirty} of {len(rows)} cells were measured from a working tree with uncommitted changes.")
    return [*lines, "A blank cell was not run."]

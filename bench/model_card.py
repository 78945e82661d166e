"""Write the card of the bundled model from stored records and its training log; no number in it is typed by hand.

    python bench/model_card.py RESULTS LOG > bench/ropebench/_models/tiny/README.md

RESULTS holds the records of the sweeps `tiny-skills` (inside the window) and `tiny` (beyond it), LOG is the log.jsonl
of `ropebench lens train tiny`.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ropebench import store
from ropebench.lens.tiny.recipe import RECIPE
from ropebench.record import canonical
from ropebench.report.cells import Block, blocks, cell_rows, samples_by_cell
from ropebench.report.tables import Table, as_markdown, cell_text, table

# What the model is meant to do at its window: task label, and from which score on it counts as reached.
GOALS = (
    ("niah:number", 0.95, "one number in prose, asked for by its key"),
    ("kv", 0.90, "one value among keys and values alone"),
    ("infinitebench_generated/passkey", 0.95, "a pass key in repeated noise"),
    ("niah:passkey", 0.95, "a pass key in prose"),
    ("vt:1-hop", 0.80, "the value at the end of a chain of one assignment"),
    ("arithmetic/addition:1-digit-add", 0.90, "sums of one-digit numbers"),
    ("arithmetic/addition:2-digit-add", 0.90, "sums of two-digit numbers"),
    ("arithmetic/addition:2-digit-subtract", None, "differences of two-digit numbers"),
    ("arithmetic/copy:4-digit", None, "copies of four digits"),
)
STEPS = (25, 250, 500, 1000, 1500, 2000, 2500, 2800, 3000, 3500, 4000, 4800, 6000, 8000, 10000, 12000, 14000, 14800)
CURVE = ("prose", "echo.nll", "kv.nll", "lines.nll", "niah.nll", "vt.nll", "drills.nll")

HEAD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
tags: [rope, long-context, context-extension, toy-model]
---

# tiny: the bundled model of ropebench

A Llama-architecture model of {parameters:,} parameters, trained from scratch with a window of **{window} tokens**, so
that a 16-fold extension is {longest:,} tokens and takes seconds. It exists to test methods that stretch a RoPE window,
and for nothing else: it speaks no useful English.

| | |
|---|---|
| layers, heads, head_dim, hidden, MLP | {layers}, {heads}, {head_dim}, {hidden}, {inner} |
| theta | {theta:g}: the band of the YaRN and MrRoPE formulas is pairs 3 to 16 |
| vocabulary | {vocabulary} byte-level BPE, trained on the same text |
| weights | bfloat16 safetensors, {megabytes:.1f} MB, input and output embeddings tied |
| training | {tokens:,} tokens in {steps:,} steps, AdamW, seed {seed}, in float32 on a CPU |
| recipe | `ropebench lens train tiny --out DIR`: every number of it is in `ropebench/lens/tiny/recipe.py` |

**Data.** Natural text that comes with Python (the manual in `pydoc_data.topics` less its first 60,000 characters, and
the docstrings of the standard library; PSF License), and samples of ropebench's own generators at lengths up to the
window: keys and values, needles in prose, pass keys, chains of assignments, drills of digits. Question texts of RULER
(Apache-2.0) are among them. Training seeds begin at 1,000,000,000 and evaluations have small ones, so no random stream
is shared; but there are few one- and two-digit sums, so **addition is held out by its seed only**: the very sums were
seen.

**Licence.** Apache-2.0, as ropebench.
"""


def skills(found: Sequence[Block]) -> Table:
    """Scores at the window and half of it, with their intervals, beside the goal."""
    lengths = sorted({length for block in found for length in block.lengths})
    by_label = {block.first["task_label"].split("[")[0]: block for block in found}
    rows = []
    for label, goal, meaning in GOALS:
        block = by_label[label]
        cells = [block.cell("none", length) for length in lengths]
        value = cells[-1]["measured"]
        reached = "" if goal is None else "yes" if value >= goal else "no"
        shown = [f"{cell_text(cell, True)}, n={cell['n']}" for cell in cells]
        rows.append((label, meaning, *shown, "" if goal is None else f"{goal:.0%}", reached))
    title = "Skills inside the window, in percent with 95 % intervals"
    columns = ("task", "asks for", *(f"{length} tokens" for length in lengths), "goal", "reached")
    return Table(title, columns, tuple(rows))


def curve(log: Sequence[dict[str, Any]]) -> Table:
    """The training losses at some steps. The same seed on one thread of the same machine gives the same numbers."""
    at = {line["step"]: line for line in log}
    rows = tuple(
        (str(step), f"{at[step]['tokens']:,}", *(f"{at[step][key]:.3f}" if key in at[step] else "" for key in CURVE))
        for step in STEPS
    )
    notes = (
        "Mean over the last 25 steps, nats per token: natural text, and the answers of each kind of row. A kind is "
        "blank outside the stages of the curriculum that have it.",
        "The first steps are what a retraining should show again.",
    )
    return Table("The training curve", ("step", "tokens", *(k.removesuffix(".nll") for k in CURVE)), rows, None, notes)


def _of_curve(record: dict[str, Any]) -> bool:
    return "tiny" in record["provenance"]["argv"] and record["method"]["name"] != "none"


def card(results: str, log: str) -> str:
    records = [r for r in store.newest_ok(store.read(results)) if r["model"]["id"] == "tiny"]
    samples = samples_by_cell(records, store.samples(results))
    lines = [json.loads(line) for line in Path(log).read_text(encoding="utf-8").splitlines()]
    from safetensors import safe_open

    weights = Path(__file__).parent / "ropebench" / "_models" / "tiny" / "model.safetensors"
    with safe_open(str(weights), "pt") as stored:
        parameters = sum(math.prod(stored.get_slice(key).get_shape()) for key in stored.keys())  # noqa: SIM118
    shape = RECIPE.shape
    head = HEAD.format(
        parameters=parameters, megabytes=weights.stat().st_size / 1e6, longest=16 * shape.window,
        tokens=lines[-1]["tokens"], steps=RECIPE.steps, seed=RECIPE.seed, **vars(shape),
    )  # fmt: skip
    at_window = [r for r in records if "tiny-skills" in r["provenance"]["argv"]]
    # The unmodified model at its window is one cell of both sweeps.
    asked = {canonical([r["task"]["label"], r["task"]["params"]]) for r in records if _of_curve(r)}
    beyond = [r for r in records if r["condition"]["length"] >= shape.window]
    beyond = [r for r in beyond if canonical([r["task"]["label"], r["task"]["params"]]) in asked]
    parts = [head, as_markdown(skills(blocks(cell_rows(at_window, samples))), "##")]
    parts.append("## Beyond the window\n")
    parts.append("One factor of 16 at every length, as a deployed model has it; `none` is the model unmodified.\n")
    shown = blocks(cell_rows(beyond, samples))
    parts += [as_markdown(table(block)) for block in shown]
    parts.append(as_markdown(curve(lines), "##"))
    commits = sorted({r["provenance"]["commit"] for r in records})
    parts.append(f"Records: `results/` of the repository, measured by commit {', '.join(c[:12] for c in commits)}.\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(card(*sys.argv[1:]))

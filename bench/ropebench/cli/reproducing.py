"""`ropebench reproduce`: a published sweep through the ordinary run, and what came of it beside what was published."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from ropebench.arguments import sweep_of
from ropebench.cli import measuring
from ropebench.cli.output import quietly, say, stored_in

if TYPE_CHECKING:
    from ropebench.plan import Plan
    from ropebench.published import Reproduction


def reproduce(options: argparse.Namespace, words: list[str]) -> int:
    from ropebench.plan import make_plan
    from ropebench.published import reproduction
    from ropebench.report import published as against
    from ropebench.report.tables import as_text

    quietly()
    rep = reproduction(options.name, options.published)
    options.sweep = rep.sweep
    plan = make_plan(sweep_of(options))
    for line in _notes(rep, plan):
        say(f"note: {line}\n")
    if options.plan:
        return measuring.plan(options, words)
    as_json, options.json = options.json, False
    with redirect_stdout(sys.stderr if as_json else sys.stdout):  # stdout is for the one JSON document
        code = measuring.run(options, words)
    cells = {cell.id for cell in plan.cells}
    found = against.measured(*stored_in(options.results, lambda record: record["cell_id"] in cells))
    if as_json:
        print(json.dumps(against.reproduction_rows(rep, found), ensure_ascii=False))
    else:
        print("\n" + "\n".join(map(as_text, against.reproduction_tables(rep, found))), end="")
    return code


def _notes(rep: Reproduction, plan: Plan) -> Iterator[str]:
    """What a person should know before anything is measured: how close this comes to what was published."""
    from ropebench.published.match import planned
    from ropebench.report.published import departures, held_against

    cells = planned(plan.cells)
    tasks = {task for cell in cells for task in (cell.task, cell.task.split("/")[0])}
    pairs = held_against(rep, cells)
    for protocol in rep.protocols:
        if protocol.task not in tasks:
            yield f"{protocol.task} is left out; {rep.source} published it too ({protocol.says})"
            continue
        if protocol.unknown:
            yield f"{protocol.task}: closest protocol to {protocol.says}; not published: {', '.join(protocol.unknown)}"
        else:
            yield f"{protocol.task}: published protocol: {protocol.says}"
        mine = [one for one in pairs if one.row.protocol == protocol]
        for text, lengths in departures(one for one in mine if one.ours).items():
            yield f"{protocol.task} DIFFERS from the published protocol ({_span(lengths)}): {text}"
        if left := [one.row.length for one in mine if one.ours is None]:
            yield f"{protocol.task}: published numbers that this does not measure again: {_span(left)}"


def _span(lengths: list[int]) -> str:
    ordered = sorted(set(lengths))
    ends = f"{ordered[0]}" if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"
    return f"{len(ordered)} length{'s' if len(ordered) > 1 else ''}, {ends} tokens"

"""`run --executor ray`: the same run over many workers."""

from __future__ import annotations

import argparse
from typing import Any

from ropebench.amounts import duration
from ropebench.cli.stopping import stopping
from ropebench.errors import UsageError


def cluster_of(options: argparse.Namespace) -> Any:
    """The `Cluster` that the flags ask for; None for a run in this process, where its flags mean nothing."""
    named = [name for name in ("address", "gpus_per_cell", "workers") if getattr(options, name) is not None]
    if options.executor != "ray":
        if named:
            raise UsageError(f"--{named[0].replace('_', '-')} is for --executor ray: add that, or leave it out")
        return None
    from ropebench.ray_crew import Cluster

    return Cluster(options.address, options.gpus_per_cell, options.workers)


def crew_of(cluster: Any, sweep: Any) -> Any:
    """Connect to Ray. Raises UsageError for what cannot be, before anything is started."""
    from ropebench.ray_crew import crew
    from ropebench.served import is_served

    if is_served(sweep.model):
        raise UsageError(
            "--executor ray: a served model runs at its server; leave it out (--batch-size asks side by side)"
        )
    if (cluster.gpus or 0) > 1 and sweep.device_map is None:
        raise UsageError(
            f"--gpus-per-cell {cluster.gpus:g}: a model uses one GPU unless it is spread over several: add "
            "--device-map auto, or give 1"
        )
    return crew(cluster, sweep.device)


def planned(crew: Any, plan: Any) -> Any:
    """The plan as it is on the workers' devices."""
    from ropebench.plan import make_plan
    from ropebench.ray_crew import resolved

    sweep = resolved(crew, plan.sweep)
    return plan if sweep == plan.sweep else make_plan(sweep)


def measured(
    crew: Any, plan: Any, pending: list[Any], stored: Any, writer: Any, live: Any, argv: list[str], records: list[Any]
) -> list[Any]:
    """Run the cells on the crew's workers, telling `live`; their records go into `records` as they are written. Returns
    the records of cells that other runs on the same folder measured meanwhile."""
    from ropebench.cluster import Foreman, generates
    from ropebench.cost import total
    from ropebench.model import load_tokenizer
    from ropebench.overview import estimates
    from ropebench.rates import rates_for
    from ropebench.ray_crew import order
    from ropebench.run import preflight
    from ropebench.tokens import feed_of

    first = pending[0]
    tokenizer = load_tokenizer(first.card, first.trust_remote_code)
    preflight(pending, tokenizer)
    try:
        feeds = feed_of(pending, stored, tokenizer)
    except UsageError:  # a later sample cannot be made: its cell will say so, and the others are measured
        feeds = {}
    order(crew, plan.sweep, tuple(argv), writer.run_id)

    def expected(ready: Any) -> Any:
        rates = rates_for(first, stored, ready.hardware)
        found = estimates(plan, feeds, rates, ready.held)
        whole = total([found.get(cell.id) for cell in pending])
        about = f", about {duration(whole['seconds'])} of work" if whole["seconds"] is not None else ""
        live.say(f"{first.card.id} in {first.dtype} on {crew.size} × {ready.device}, {len(pending)} cells{about}")
        live.event(
            "run_begin", run_id=writer.run_id, model=first.card.id, device=ready.device, dtype=first.dtype,
            cells=len(pending), cells_stored=len(plan.cells) - len(pending), estimate=whole, workers=crew.size,
        )  # fmt: skip
        return found

    def watch(at: Any) -> None:
        if at.record is not None:
            records.append(at.record)
        live(at)

    with stopping() as stop:
        every = Foreman(
            pending, crew, stored, writer, tuple(argv), watch, expected, generates(pending, tokenizer), live.say,
            stop.check,
        ).run()  # fmt: skip
    return [record for record in every if record["run_id"] != writer.run_id]

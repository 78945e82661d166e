"""What a person or a machine sees while a run is under way."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TextIO

from ropebench.amounts import duration, size
from ropebench.errors import UsageError, plain


class Live:
    """Tells a run as it goes: to a person as one line that is rewritten, on a terminal only; to a machine, where
    `log` names a file (`-`: standard error), as one JSON object per line. `quiet` leaves the person's part out.

    With the log on standard error nothing else is written there but errors. Raises UsageError for a file that cannot
    be written.
    """

    def __init__(self, quiet: bool = False, log: str | None = None) -> None:
        self._log: TextIO | None = None
        if log == "-":
            self._log = sys.stderr
        elif log is not None:
            try:
                self._log = open(log, "a", encoding="utf-8", buffering=1)  # noqa: SIM115  closed in `close`
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                raise UsageError(f"--log-json {log!r} cannot be written: {reason}") from None
        self._talks = not quiet and log != "-"
        self._line = self._talks and sys.stderr.isatty()

    def say(self, text: str) -> None:
        """A sentence for a person."""
        if self._talks:
            sys.stderr.write(("\r\033[K" if self._line else "") + plain(text) + "\n")

    def event(self, name: str, **more: Any) -> None:
        """A line for a machine."""
        if self._log is not None:
            from datetime import UTC, datetime

            time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            self._log.write(json.dumps({"event": name, "time": time, **more}, ensure_ascii=False) + "\n")
            self._log.flush()

    def __call__(self, at: Any) -> None:
        """A `Progress` of the run."""
        if self._line:
            sys.stderr.write("\r\033[K" + plain(line(at))[:200])
            sys.stderr.flush()
        if self._log is None:
            return
        cell, more = at.cell, {}
        if at.event == "sample":
            row = at.row
            cost = row["cost"] or {}
            more = {"index": row["index"], "skip": row["skip"], "scores": row["scores"], "run_id": row["run_id"],
                    "seconds": cost.get("seconds"), "tokens": cost.get("tokens")}  # fmt: skip
        elif at.event == "cell_end":
            outcome, cost = at.record["outcome"], at.record["cost"]
            more = {"status": outcome["status"], "error": outcome["error"], "record_id": at.record["record_id"],
                    **{key: cost[key] for key in ("seconds", "tokens", "peak_bytes", "estimate")}}  # fmt: skip
        self.event(
            at.event, cell=at.number, cells=at.cells, cell_id=cell.id, method=cell.method_label, task=cell.task_label,
            length=cell.length, samples_done=at.sample, samples=at.samples, tokens_per_second=at.tokens_per_second,
            seconds_left=at.seconds_left, **more,
        )  # fmt: skip

    def close(self) -> None:
        """Leave the line, and the file."""
        if self._line:
            sys.stderr.write("\r\033[K")
        if self._log is not None and self._log is not sys.stderr:
            with suppress(OSError):
                self._log.close()


def line(at: Any) -> str:
    """Cell, sample, tokens per second, time left of the run. With several workers: how many cells are done by how many,
    the newest cell, and all their tokens per second."""
    cell = at.cell
    where = f"cell {at.number}/{at.cells}"
    if at.workers is not None:
        where = f"{at.done}/{at.cells} cells done  {at.workers} worker{'s' * (at.workers != 1)}"
    parts = [
        f"{where}  {cell.method_label}  {cell.task_label}  {cell.length} tokens",
        f"sample {min(at.sample + 1, at.samples)}/{at.samples}",
        f"{at.tokens_per_second:,.0f} tokens/s" if at.tokens_per_second else "",
        f"{duration(at.seconds_left)} left" if at.seconds_left is not None else "",
    ]
    return "  ".join(part for part in parts if part)


def against(records: Sequence[Any]) -> str | None:
    """What a run cost, beside what was expected; None where nothing was measured."""
    costs = [record["cost"] for record in records]
    if not costs:
        return None
    from ropebench.cost import total

    expected = total([cost["estimate"] for cost in costs])
    tokens, seconds = sum(cost["tokens"] for cost in costs), sum(cost["seconds"] for cost in costs)
    peak = max((cost["peak_bytes"] for cost in costs if cost["peak_bytes"]), default=None)

    def beside(estimate: Any, text: str) -> str:
        return f"{text} (expected {estimate})" if estimate not in (None, "unknown") else f"{text} (no estimate)"

    words = [
        beside(f"{expected['tokens']:,}" if expected["tokens"] is not None else None, f"{tokens:,} tokens"),
        beside(duration(expected["seconds"]), duration(seconds)),
        beside(size(expected["peak_bytes"]), f"peak {size(peak)}"),
    ]
    return "cost: " + ", ".join(words) + (f"; time by {expected['basis']}" if expected["basis"] else "")

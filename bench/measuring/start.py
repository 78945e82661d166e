"""How long a person waits for `ropebench --help`, and what putting a rotary table in costs."""

from __future__ import annotations

import statistics
import subprocess
import sys
from functools import partial

from measuring.figure import Figure
from measuring.sizes import Sizes
from measuring.subject import Subject, seconds

TIMES = 7


def help_time(sizes: Sizes) -> list[Figure]:
    """The best of several, each beside a start of Python that does nothing."""
    command, nothing = [sys.executable, "-m", "ropebench.cli", "--help"], [sys.executable, "-c", ""]
    times, bare = list[float](), list[float]()
    for _ in range(TIMES):
        for words, into in ((command, times), (nothing, bare)):
            into.append(seconds(partial(subprocess.run, words, capture_output=True, check=True))[0])
    row = {
        "ratio": statistics.median(a / b for a, b in zip(times, bare, strict=True)),
        "ours_seconds": min(times),
        "plain_seconds": min(bare),
        "python_share": min(bare) / min(times),
        "median_seconds": statistics.median(times),
    }
    return [Figure("help", f"ropebench --help (best of {TIMES})", min(times), 0.3, "<", "s", row)]


def switching(subject: Subject, sizes: Sizes) -> list[Figure]:
    """A table into the model and out again, read back both times, as a share of the shortest pass it could serve."""
    from measuring import plain
    from ropebench.apply import applied
    from ropebench.registry import Registry

    geometry, length = subject.loaded.card.geometry, min(sizes.sweep_lengths)
    table = Registry.load().build("method", "yarn")[0].frequencies(geometry, 2.0, 2 * geometry.trained_length)
    ids = [1] * length

    def switch() -> None:
        for _ in range(100):
            with applied(subject.model, table):
                pass

    spent = seconds(switch)[0] / 100
    serves = min(seconds(lambda: plain.nll(subject.model, ids))[0] for _ in range(2))
    what = f"putting a table in and taking it out again (mean of 100) ÷ one pass at {length}"
    row = {"ratio": spent / serves, "ours_seconds": spent, "pass_seconds": serves}
    return [Figure("switch", what, spent / serves, 0.01, "<", "%", row)]

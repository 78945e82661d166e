"""What every test shares: no hub, no cache but its own, no window system.

Set on import, before any test module pulls in a library that reads these once.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

_CACHE = tempfile.mkdtemp(prefix="ropebench-tests-")

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "Agg"
os.environ["ROPEBENCH_CACHE"] = _CACHE
if "PYTEST_XDIST_WORKER" in os.environ:  # threads that outnumber the cores wait for one another in busy loops
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_unconfigure() -> None:
    shutil.rmtree(_CACHE, ignore_errors=True)


@pytest.fixture(autouse=True)
def no_stand_in_stays() -> Iterator[None]:
    """What a hub of one test's making gave is not found by the next test."""
    yield
    data = sys.modules.get("ropebench.ruler.data")
    if data is not None:
        data._fetched.cache_clear()


@pytest.fixture
def records() -> list[dict[str, Any]]:
    """Made-up records, for the tests of reports."""
    from report_records import lines

    return lines("fixture.jsonl")


@pytest.fixture
def samples() -> dict[str, list[dict[str, Any]]]:
    """The sample rows of `records` by cell_id."""
    from report_records import lines

    found: dict[str, list[dict[str, Any]]] = {}
    for row in lines("fixture.samples.jsonl"):
        found.setdefault(row["cell_id"], []).append(row)
    return found


@pytest.fixture
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes seconds and is tested in test_report_page.py: with this fixture a plot is three bytes."""
    from ropebench.report import figures

    def draw(one: Any, samples: Any, folder: Any, *_: Any) -> list[Any]:
        paths = [folder / f"{one.stem}{suffix}" for suffix in (".png", ".svg")]
        for path in paths:
            path.write_bytes(path.suffix.encode())
        return paths

    monkeypatch.setattr(figures, "draw", draw)

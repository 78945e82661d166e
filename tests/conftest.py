"""What every test shares: no hub, no cache but its own, no window system.

Set on import, before any test module pulls in a library that reads these once.
"""

from __future__ import annotations

import os
import shutil
import tempfile

_CACHE = tempfile.mkdtemp(prefix="ropebench-tests-")

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "Agg"
os.environ["ROPEBENCH_CACHE"] = _CACHE


def pytest_unconfigure() -> None:
    shutil.rmtree(_CACHE, ignore_errors=True)

"""The one cache folder: what is slow to make, and can be thrown away at any time."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """ROPEBENCH_CACHE, else `ropebench` in the user's cache folder."""
    chosen = os.environ.get("ROPEBENCH_CACHE")
    if chosen:
        return Path(os.path.expanduser(chosen))
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ropebench"

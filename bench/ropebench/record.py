"""The unit of evidence: a record (one cell's outcome) and its sample rows, as plain JSON objects.

A record is a nested mapping, one line of JSON, with the groups of `results/README.md`:

    schema, kind, record_id, cell_id, run_id, series, created,
    model{…}, method{…}, task{…}, condition{…}, outcome{…}, cost{…}, provenance{…}

A sample row is {schema, kind="sample", cell_id, run_id, series, index, prompt_sha256, tokens, skip, scores{}, output,
targets, meta{}, nll_bins{}, cost{}}. Numbers are full precision, unknown is null, and NaN or infinity cannot be
written.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ropebench import __version__

SCHEMA = 2
STATUSES = ("ok", "error", "out_of_memory", "unsupported")

Json = dict[str, Any]

HALVES = re.compile("[\ud800-\udfff]")


def canonical(value: Any) -> str:
    """The one spelling of a JSON value: sorted keys, no spaces, no NaN. Half a character (a lone surrogate, which a
    file's name may hold and UTF-8 cannot) becomes U+FFFD."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return HALVES.sub("\ufffd", text)


def digest(value: Any, digits: int = 16) -> str:
    """First hex digits of the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:digits]


def ids_sha256(ids: Sequence[int]) -> str:
    """SHA-256 of token ids, as decimal text joined by spaces: two runs saw the same input when these agree."""
    return hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()


def now() -> str:
    """UTC, to the second, as ISO 8601."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *words], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _tracked_here() -> bool:
    """Whether this very file is part of a git checkout (a wheel inside somebody's repository is not)."""
    return bool(_git("ls-files", "--error-unmatch", Path(__file__).name))


@cache
def provenance(argv: tuple[str, ...], device: str) -> Json:
    """What produced a number: commit, command, versions, platform. No host name, no paths, no environment."""
    here = _tracked_here()
    return {
        "commit": _git("rev-parse", "HEAD") if here else None,
        "dirty": bool(_git("status", "--porcelain", "--", "..", "../../tasks")) if here else None,
        "argv": [_last_part(word) for word in argv],
        "versions": {
            "python": platform.python_version(),
            "ropebench": __version__,
            **{name: _version(name) for name in ("torch", "transformers", "lm_eval", "datasets")},
        },
        "platform": f"{sys.platform}-{platform.machine()}",
        "device": device,
    }


def _last_part(word: str) -> str:
    """An argument with every path in it (also behind `=`, `:` or `,`) reduced to its last part, and anything that looks
    like a secret removed; of a server's address nothing is left."""
    word = re.sub(r"\bhttps?://\S+", "http…", without_secrets(word))
    return "".join(_name(piece) for piece in re.split(r"([=:,])", word))


# Who may log in where: in an address, by the beginnings of well-known access tokens, or behind a word for one.
_LOGIN = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@]*@", re.IGNORECASE)
_TOKEN = re.compile(
    r"\b(hf|sk|ghp|gho|ghs|github_pat|glpat|xox[abp])([_-])[\w-]{6,}|\b(?:AKIA|AIza|eyJ)[\w.-]{12,}|\b(hf_)\w+"
)
_NAMED = re.compile(
    r"([\w-]*(?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|bearer)[\"']?(?:\s*[=:]\s*|\s+)[\"']?)[^\s,;&\"']{6,}",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile("token|secret|passw|key|credential", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """Text without logins in addresses, without what looks like an access token, and without the value of any
    environment variable that is named like one."""
    for name, value in os.environ.items():
        if len(value) >= 8 and _SECRET_NAME.search(name):
            text = text.replace(value, "…")
    text = _TOKEN.sub(lambda m: f"{m[1]}{m[2]}…" if m[1] else f"{m[3]}…" if m[3] else "…", _LOGIN.sub(r"\1…@", text))
    return _NAMED.sub(r"\1…", text)


def _name(piece: str) -> str:
    """The last part of a path; a hub id (owner/name) stays whole."""
    here = "/" in piece and os.path.exists(piece)
    return Path(piece).name if here or piece.startswith(("/", "./", "../", "~")) else piece


def summary(values: Sequence[float]) -> Json:
    """Mean, standard error (sample standard deviation ÷ √n; null below two samples) and n."""
    n = len(values)
    if n == 0:
        return {"value": None, "stderr": None, "n": 0}
    mean = sum(values) / n
    if n == 1:
        return {"value": mean, "stderr": None, "n": 1}
    variance = sum((v - mean) ** 2 for v in values) / (n - 1)
    return {"value": mean, "stderr": (variance / n) ** 0.5, "n": n}

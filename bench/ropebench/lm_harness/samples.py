"""Samples that lm-eval's tasks generate to a length (its port of RULER), made in a process of their own.

lm-eval draws them from Python's and NumPy's global random state and from generators that its modules keep, so what
comes out depends on everything that was drawn before; and where its parts do not fit into a short length, some of its
loops never end and swallow every exception. A process has a state of its own, and can be ended.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np

from ropebench.cache import cache_dir
from ropebench.errors import UsageError
from ropebench.lm_harness.index import VERSION, Source, config_of
from ropebench.lm_harness.network import network
from ropebench.record import digest

PATIENCE = 120.0  # seconds for any length, and for each token of it:
PATIENCE_PER_TOKEN = 0.02

Rows = dict[str, list[dict[str, Any]]]


def generated(source: Source, size: int, tokenizer: Any, seed: int) -> Rows:
    """The rows of each split, for prompts of `size` tokens; from the cache where they have been made before.

    Raises UsageError where lm-eval fails, or is not done in time.
    """
    folder = cache_dir() / "lm_eval"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        words = saved_tokenizer(tokenizer, folder)
    except OSError as error:
        raise UsageError(f"the cache folder cannot be written ({error}); set ROPEBENCH_CACHE") from None
    key = digest([source.name, source.code, size, words.name, seed, VERSION], 32)
    made = folder / f"samples-{key}.json"
    if not made.is_file():
        _make(source, size, words, seed, made)
    rows: Rows = json.loads(made.read_text(encoding="utf-8"))
    return rows


def _make(source: Source, size: int, tokenizer: Path, seed: int, made: Path) -> None:
    out = made.with_name(f"{made.name}.{os.getpid()}.part")
    offline = bool(huggingface_hub.constants.HF_HUB_OFFLINE)  # set by --offline too
    request = [source.name, str(source.yaml), source.origin, source.code, size, str(tokenizer), seed, str(out), offline]
    code = "import sys; from ropebench.lm_harness.samples import write; write(sys.argv[1])"
    here = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])}
    patience = PATIENCE + PATIENCE_PER_TOKEN * size
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, json.dumps(request)],
            env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            timeout=patience, check=False,
            process_group=0 if os.name == "posix" else None,  # a first Ctrl-C at the terminal lets a sample be finished
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        out.unlink(missing_ok=True)
        raise UsageError(
            f"lm_eval/{source.name}: lm-eval has not made its samples of {size} tokens within {patience:.0f} s; where "
            "its parts do not fit it never ends: give a longer length, or take ropebench's own ruler/… tasks"
        ) from None
    if done.returncode or not out.is_file():
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no reason given")
        raise UsageError(f"lm_eval/{source.name}: lm-eval cannot make samples of {size} tokens ({last.strip()})")
    out.replace(made)


def write(request: str) -> None:
    """The other process: seed as lm-eval does, make the splits, write them."""
    name, yaml, origin, code, size, tokenizer, seed, out, offline = json.loads(request)
    with network(offline):
        config = config_of(Source(name, Path(yaml), origin, code), functions=True)
        random.seed(seed)
        np.random.seed(1234 + seed)
        given = {**(config.get("metadata") or {}), "tokenizer": tokenizer, "max_seq_lengths": [size]}
        splits = config["custom_dataset"](**given, **(config.get("dataset_kwargs") or {}))
    rows = {split: [dict(row) for row in data] for split, data in splits.items()}
    Path(out).write_text(json.dumps(rows), encoding="utf-8")


def saved_tokenizer(tokenizer: Any, folder: Path) -> Path:
    """The tokenizer at hand as a folder named by its contents: lm-eval loads one by name, from the hub's newest
    revision, and allows it to run code of its own."""
    unfinished = Path(tempfile.mkdtemp(dir=folder))
    tokenizer.save_pretrained(str(unfinished))
    total = sha256()
    for file in sorted(file for file in unfinished.rglob("*") if file.is_file()):
        total.update(str(file.relative_to(unfinished)).encode() + b"\0" + file.read_bytes())
    final = folder / f"tokenizer-{total.hexdigest()[:16]}"
    if final.is_dir():
        shutil.rmtree(unfinished)
    else:
        unfinished.rename(final)
    return final

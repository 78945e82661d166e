"""Peak memory of one perplexity pass above the loaded model: ropebench's against the full logits.

Each is measured in a process of its own, and as the operating system counts: the resident set's high-water mark.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from measuring.figure import AnswersDiffer, Figure
from measuring.perplexity import NEAR
from measuring.sizes import Sizes
from measuring.subject import Subject

WAYS = ("ours", "plain")


def peaks(subject: Subject, sizes: Sizes) -> list[Figure]:
    """Raises AnswersDiffer where the two processes give different NLL."""
    ours, full = (in_child(way, subject, sizes.peak_length) for way in WAYS)
    apart = abs(ours["nll"] - full["nll"])
    if not apart <= NEAR:
        raise AnswersDiffer(f"the chunked pass and the full logits differ by {apart:.2e} nats per token")
    what = f"peak memory above the weights, one {sizes.peak_length}-token perplexity pass: ours ÷ full logits"
    if not (ours["bytes"] and full["bytes"]):
        return [Figure("memory", what, None, 1 / 20)]
    ratio = ours["bytes"] / full["bytes"]
    row = {"ratio": ratio, "ours_bytes": ours["bytes"], "plain_bytes": full["bytes"], "difference_nats": apart}
    return [Figure("memory", what, ratio, 1 / 20, row=row)]


def in_child(way: str, subject: Subject, length: int) -> dict[str, Any]:
    """What `child` prints, from a process of its own. Raises RuntimeError with the end of what it complained of."""
    script = Path(__file__).parents[1] / "measure.py"
    command = [sys.executable, str(script), "--child", way, "--length", str(length)]
    command += ["--model", subject.word, "--docs", subject.docs]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the {way} pass at {length} tokens failed: {done.stderr.strip()[-300:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def child(way: str, subject: Subject, length: int) -> dict[str, Any]:
    """Bytes of one pass above what was resident before it (None where the system does not tell), and its mean NLL."""
    import torch

    from ropebench.engine import Engine
    from ropebench.run import encoder_of

    (cell,) = subject.plan(tasks=("proofpile",), lengths=(length,), n=1).cells
    ids = list(subject.examples(cell)[0].windows[0].ids)
    engine = Engine(subject.model, encoder_of(cell, subject.loaded.tokenizer))
    engine.nll(ids[:256])  # every weight is touched, every kernel used: neither belongs to the pass
    before = forgotten()
    if way == "ours":
        value = float(engine.nll(ids).mean(dtype="float64"))
    else:
        with torch.inference_mode():
            inputs = torch.tensor([ids])
            value = float(subject.model(inputs, labels=inputs, use_cache=False).loss)
    after = resident("VmHWM")
    return {"bytes": after - before if after and before else None, "nll": value}


def forgotten() -> int | None:
    """Bytes resident now, after Linux has forgotten this process's high-water mark; None elsewhere."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return resident("VmRSS")


def resident(name: str) -> int | None:
    """A line of /proc/self/status in bytes: VmRSS (now) or VmHWM (the most)."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)

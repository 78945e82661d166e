"""`make bench`: what ropebench saves against the plain way, as ratios within one run, on smollm2-135m.

The plain way is written out here as other tools do it: a separate forward pass per length, and the full logits. Each
pair of ways must give the same numbers in the same run, else the script fails. The table goes to the terminal and one
record per line to results/bench.jsonl.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from measure_ruler import ruler_rows
from ropebench.errors import UsageError
from ropebench.quiet import quiet
from ropebench.record import SCHEMA, digest, now, provenance
from ropebench.store import Writer, append

LENGTHS = range(512, 4096 + 1, 512)


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def one_pass(engine: Any, ids: list[int]) -> dict[str, Any]:
    """Perplexity at every length from one pass, against one full forward pass per length."""
    import numpy as np
    import torch

    def plain() -> list[float]:
        values = []
        for length in LENGTHS:
            part = torch.tensor([ids[:length]])
            with torch.inference_mode():
                logits = engine.model(part, use_cache=False).logits[0, :-1].float()
            values.append(float(torch.nn.functional.cross_entropy(logits, part[0, 1:])))
        return values

    def ours() -> list[float]:
        nll = engine.nll(ids[: max(LENGTHS)])
        return [float(np.mean(nll[: length - 1])) for length in LENGTHS]

    fast, slow = seconds(ours), seconds(plain)
    worst = max(abs(a - b) for a, b in zip(fast[1], slow[1], strict=True))
    if worst > 1e-4:
        raise SystemExit(f"one pass and separate passes differ by {worst:.2e} nats per token")
    return {
        "what": f"nll at {len(LENGTHS)} lengths up to {max(LENGTHS)}: one pass ÷ one forward per length",
        "ratio": fast[0] / slow[0],
        "ours_seconds": fast[0],
        "plain_seconds": slow[0],
        "largest_difference_nats": worst,
    }


def bare_forward(engine: Any, ids: list[int]) -> dict[str, Any]:
    """The NLL pass against the bare decoder at the same length: what the chunked head and the loss cost."""
    import torch

    part = ids[: max(LENGTHS) // 2]

    def bare() -> None:
        with torch.inference_mode():
            engine.decoder(input_ids=torch.tensor([part]), use_cache=False)

    pairs = [(seconds(lambda: engine.nll(part))[0], seconds(bare)[0]) for _ in range(3)]
    return {
        "what": f"nll pass ÷ bare decoder forward at {len(part)} (median of 3)",
        "ratio": statistics.median(ours / plain for ours, plain in pairs),
        "ours_seconds": statistics.median(ours for ours, _ in pairs),
        "plain_seconds": statistics.median(plain for _, plain in pairs),
    }


def switching(model: Any, geometry: Any) -> dict[str, Any]:
    """Putting a table in and taking it out, against the NLL pass it serves."""
    from ropebench.apply import applied
    from ropebench.methods import MrRopePro

    table = MrRopePro().frequencies(geometry, 2.0, 16384)

    def switch() -> None:
        for _ in range(100):
            with applied(model, table):
                pass

    spent, _ = seconds(switch)
    what = "putting a table in and taking it out again (mean of 100)"
    return {"what": what, "ratio": None, "ours_seconds": spent / 100}


def memory(way: str) -> int:
    """Peak memory above the loaded model, in bytes, of one 4K likelihood pass in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--memory", way], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def memory_child(way: str) -> None:
    import torch

    from ropebench.memory import PeakMemory

    loaded, engine, ids = prepared()
    part = ids[: max(LENGTHS)]
    engine.nll(part[:256])
    peak = PeakMemory(loaded.device)
    before = peak.bytes() or 0
    if way == "ours":
        engine.nll(part)
    else:
        with torch.inference_mode():
            inputs = torch.tensor([part])
            engine.model(inputs, labels=inputs, use_cache=False)
    print((peak.bytes() or 0) - before)


def prepared() -> tuple[Any, Any, list[int]]:
    from ropebench.corpus import open_corpus
    from ropebench.engine import Engine
    from ropebench.model import card, find, load
    from ropebench.prompt import Encoder

    loaded = load(card(find("smollm2-135m")), "cpu", "float32")
    encoder = Encoder(loaded.tokenizer)
    text = next(iter(open_corpus("installed").documents())).text[:60_000]
    return loaded, Engine(loaded.model, encoder), encoder.text(text)


def help_time() -> dict[str, Any]:
    command = [sys.executable, "-m", "ropebench.cli", "--help"]
    times = [seconds(lambda: subprocess.run(command, capture_output=True, check=True))[0] for _ in range(5)]
    bare = [seconds(lambda: subprocess.run([sys.executable, "-c", ""], check=True))[0] for _ in range(5)]
    return {
        "what": "ropebench --help ÷ starting Python (median of 5)",
        "ratio": statistics.median(times) / statistics.median(bare),
        "ours_seconds": statistics.median(times),
        "plain_seconds": statistics.median(bare),
    }


def record(row: dict[str, Any], run_id: str, device: str) -> dict[str, Any]:
    """One figure as a results line, with what every record has; `cell_id` is what was measured."""
    cell_id, created = digest(row["what"]), now()
    return {
        "schema": SCHEMA,
        "kind": "bench",
        "record_id": digest([cell_id, run_id, created]),
        "cell_id": cell_id,
        "run_id": run_id,
        "created": created,
        "bench": row,
        "provenance": provenance(("make", "bench"), device),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", choices=("ours", "plain"), help=argparse.SUPPRESS)
    parser.add_argument("--results", default="results")
    parser.add_argument("--ruler", type=int, default=100, metavar="N", help="samples of each RULER task (500: minutes)")
    options = parser.parse_args()
    quiet()
    if options.memory:
        memory_child(options.memory)
        return
    try:
        writer = Writer(options.results)  # a folder that cannot be written is said before minutes are spent
    except UsageError as error:
        raise SystemExit(str(error)) from None
    loaded, engine, ids = prepared()
    engine.nll(ids[:512])  # first use of the kernels

    def peaks() -> dict[str, Any]:
        ours, plain = memory("ours"), memory("plain")
        what = f"peak memory above the weights, one {max(LENGTHS)}-token pass: chunked ÷ full logits"
        return {"what": what, "ratio": ours / plain, "ours_bytes": ours, "plain_bytes": plain}

    for measured in (
        lambda: [one_pass(engine, ids)],
        lambda: [bare_forward(engine, ids)],
        lambda: [switching(loaded.model, loaded.card.geometry)],
        lambda: [help_time()],
        lambda: [peaks()],
        lambda: ruler_rows(options.ruler) if options.ruler else [],
    ):
        report(measured(), writer, loaded.device)


def report(rows: list[dict[str, Any]], writer: Writer, device: str) -> None:
    """Print what was measured, and append it to bench.jsonl."""
    for row in rows:
        ratio = f"{row['ratio']:8.3f}" if row["ratio"] is not None else " " * 8
        detail = "  ".join(f"{key}={value:.4g}" for key, value in row.items() if key not in ("what", "ratio"))
        print(f"{ratio}  {row['what']}\n          {detail}", flush=True)
        append(writer.folder / "bench.jsonl", record(row, writer.run_id, device))


if __name__ == "__main__":
    main()

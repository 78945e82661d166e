"""`make bench-gpu`: a random Llama-3-8B-shaped model in bfloat16 at 32K and 128K tokens on a CUDA card.

Tokens per second of an NLL pass, its share of the card's matrix rate (measured in the same run), the peak memory, and
every method's table read back from the device. Minutes; nothing is downloaded. Figures of a CUDA card are appended to
results/bench.jsonl; `--device cpu --shape tiny` shows that the code runs where there is none.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from functools import partial

from measuring import card
from measuring.figure import AnswersDiffer, Figure, detail, table
from ropebench.device import choose_device, choose_dtype
from ropebench.errors import UsageError
from ropebench.quiet import quiet
from ropebench.store import Writer, append
from ropebench.task import parse_length


def main(words: list[str] | None = None) -> int:
    """Exit codes: 0; 1 where a figure could not be given; 2 for a mistake in `words`."""
    options = arguments().parse_args(words)
    quiet()
    try:
        device = choose_device(options.device)
        dtype = choose_dtype(options.dtype, device)
        shape = card.SHAPES[options.shape]
        if options.lengths:
            shape = replace(shape, lengths=tuple(parse_length(word) for word in options.lengths.split(",")))
        if shape.name != "tiny" and not device.startswith("cuda"):
            raise UsageError(
                f"shape {options.shape} on {device}: it takes hours without a CUDA card; to see that it works give "
                "--device cpu --shape tiny"
            )
        writer = Writer(options.results) if device.startswith("cuda") else None
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return measured(shape, device, dtype, writer)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 or cpu (default: %(default)s)")
    parser.add_argument("--shape", default="llama3-8b", choices=card.SHAPES)
    parser.add_argument("--lengths", metavar="LENGTHS", help="such as 32k,128k (default: those of the shape)")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--results", default="results", metavar="FOLDER")
    return parser


def measured(shape: card.Shape, device: str, dtype: str, writer: Writer | None) -> int:
    """Measure, store what a card gives, and print the table."""
    figures: list[Figure] = []
    failed: list[tuple[str, str]] = []
    model, rate = card.random_model(shape, device, dtype), card.matrix_rate(device, dtype, shape.matrix)
    what = f"{card.name_of(device)}: product of {shape.matrix} × {shape.matrix} matrices in {dtype}"
    figures.append(Figure("matrix", what, rate / 1e12, unit="T operations/s", row={"operations_per_second": rate}))
    for work in (partial(card.tables, model, shape, device), partial(card.passes, model, shape, device, rate)):
        try:
            figures += work()
        except AnswersDiffer as error:
            failed.append((work.func.__name__, str(error)))
    for figure in figures:
        sys.stderr.write(f"{figure.name}: {detail(figure)}\n" if figure.row else "")
        if writer:
            append(writer.folder / "bench.jsonl", figure.record(writer.run_id, device, "bench-gpu"))
    print(table(figures, failed))
    print(
        f"stored in {writer.folder}/bench.jsonl" if writer else "not stored: these are not the figures of a CUDA card"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

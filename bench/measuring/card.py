"""`make bench-gpu`: a random model of a real shape at long lengths: speed, share of the card's matrix rate, memory.

Random weights cost what trained ones cost, and need no download. The same code runs a tiny shape on a CPU.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import partial
from typing import Any

from measuring.figure import AnswersDiffer, Figure
from measuring.operations import total
from measuring.subject import seconds


@dataclass(frozen=True)
class Shape:
    """Dimensions of a Llama, the lengths it is measured at, and the side of the matrices that the card's rate is
    measured with."""

    name: str
    config: dict[str, Any]
    lengths: tuple[int, ...]
    matrix: int


SHAPES = {
    "llama3-8b": Shape(
        "Llama-3-8B-shaped",
        {
            "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192,
            "rope_theta": 500000.0,
        },
        (32768, 131072),
        8192,
    ),
    "tiny": Shape(
        "tiny",
        {
            "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rope_theta": 10000.0,
        },
        (128, 256),
        128,
    ),
}  # fmt: skip


class NoWords:
    """A tokenizer for what is made of ids alone."""

    chat_template = bos_token_id = eos_token_id = None


def synchronised(device: str) -> None:
    """Wait until the device has done what it was given."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def random_model(shape: Shape, device: str, dtype: str) -> Any:
    """Weights drawn on the device itself, always the same."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model("llama", **shape.config, tie_word_embeddings=False)
    with torch.device(device):
        made: Any = AutoModelForCausalLM
        model = made.from_config(config, dtype=getattr(torch, dtype), attn_implementation="sdpa")
    return model.to(device).eval()


def matrix_rate(device: str, dtype: str, side: int, times: int = 20) -> float:
    """Operations per second of the product of two square matrices: the median of `times`, after some to warm up."""
    import torch

    a, b = (torch.randn(side, side, device=device).to(getattr(torch, dtype)) for _ in range(2))

    def product() -> None:
        a @ b
        synchronised(device)

    for _ in range(5):
        product()
    return float(2.0 * side**3 / statistics.median(seconds(product)[0] for _ in range(times)))


def peak(device: str) -> int | None:
    """The most bytes of the card that tensors took since the counter was last set back; None on a CPU."""
    import torch

    return int(torch.cuda.max_memory_allocated(device)) if device.startswith("cuda") else None


def passes(model: Any, shape: Shape, device: str, rate: float, times: int = 3) -> list[Figure]:
    """NLL passes of random ids through `Engine`. A length that does not fit into the card's memory is a figure without
    a number. Raises AnswersDiffer where an NLL is not finite."""
    import numpy as np

    from ropebench.engine import Engine
    from ropebench.memory import is_out_of_memory, release
    from ropebench.prompt import Encoder

    drawn = np.random.default_rng(0).integers(2, model.config.vocab_size, max(shape.lengths))
    ids = [int(i) for i in drawn]
    engine, figures = Engine(model, Encoder(NoWords())), list[Figure]()
    engine.nll(ids[: min(shape.lengths) // 2])  # first use of the kernels
    dtype = str(model.dtype).removeprefix("torch.")
    for length in shape.lengths:
        what = f"{shape.name} in {dtype} on {name_of(device)}: one NLL pass at {length}"
        try:
            row = one_length(engine, ids[:length], device, rate, times)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            row = {}
        if not row:
            release(device)
            figures.append(Figure(f"pass@{length}", f"{what} (memory ran out)", None, unit="tokens/s"))
            continue
        figures.append(Figure(f"pass@{length}", what, row["tokens_per_second"], unit="tokens/s", row=row))
        share = f"{what}: share of the measured matrix rate"
        figures.append(Figure(f"rate@{length}", share, row["share_of_matrix_rate"], unit="%"))
        if row["peak_bytes"] is not None:
            most = f"{what}: most memory, weights included"
            figures.append(Figure(f"peak@{length}", most, row["peak_bytes"] / 1e9, unit="GB"))
    return figures


def one_length(engine: Any, ids: list[int], device: str, rate: float, times: int) -> dict[str, Any]:
    """The median of `times` passes, in numbers. What the engine gives are numbers on the host, so a pass is over when
    they are there."""
    import numpy as np
    import torch

    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
    before, times_taken = peak(device), list[float]()
    for _ in range(times):
        spent, nll = seconds(partial(engine.nll, ids))
        if not np.isfinite(nll).all():
            raise AnswersDiffer(f"at {len(ids)} tokens {int((~np.isfinite(nll)).sum())} values are not finite")
        times_taken.append(spent)
    took, most, operations = statistics.median(times_taken), peak(device), total(engine.model.config, len(ids))
    return {
        "seconds": took,
        "tokens_per_second": len(ids) / took,
        "operations": operations,
        "operations_per_second": operations / took,
        "matrix_operations_per_second": rate,
        "share_of_matrix_rate": operations / took / rate,
        "peak_bytes": most,
        "peak_bytes_above_weights": None if most is None or before is None else most - before,
        "passes": times,
    }


def name_of(device: str) -> str:
    """What a card calls itself."""
    import torch

    return str(torch.cuda.get_device_name(device)) if device.startswith("cuda") else device


def tables(model: Any, shape: Shape, device: str) -> list[Figure]:
    """Put every method's table into the model, read it back from the device while tokens run under it, and look that
    the model is what it was afterwards.

    Raises AnswersDiffer where what is read back is not the method's table in float32, or is left behind.
    """
    import numpy as np
    import torch

    from ropebench.apply import applied, live
    from ropebench.geometry import geometry_of
    from ropebench.registry import Registry

    geometry, longest, registry = geometry_of(model.config), max(shape.lengths), Registry.load()
    # LongRoPE's factors come with a checkpoint; any will do here.
    given = {"longrope": {"long_factor": tuple(1.0 + i / 8 for i in range(geometry.pairs))}}
    factor = max(1.0, longest / geometry.trained_length)
    ids = torch.arange(64, device=device)[None] % model.config.vocab_size
    before, read, methods = live(model), dict[str, list[float]](), registry.of("method")
    for entry in methods:
        table = entry.cls(**given.get(entry.name, {})).frequencies(geometry, factor, longest)
        try:
            with applied(model, table), torch.inference_mode():
                finite = bool(model(ids, use_cache=False).logits.isfinite().all())
                back = live(model)
        except RuntimeError as error:
            raise AnswersDiffer(f"{entry.name} on {device}: {error}") from error
        same = np.array_equal(back.inv_freq.astype(np.float32), table.inv_freq.astype(np.float32))
        if not (same and finite and back.attention_factor == float(table.attention_factor)):
            raise AnswersDiffer(f"{entry.name}: what the model on {device} has is not the method's table")
        read[entry.name] = [*map(float, back.inv_freq)]
    if not live(model).same_as(before, rtol=0.0):
        raise AnswersDiffer("a table was left behind in the model")
    what = f"{shape.name} on {name_of(device)}: methods (×{factor:g}) whose table was read back from the device"
    return [Figure("tables", what, len(read), len(methods), "≥", "", {"inv_freq": read})]

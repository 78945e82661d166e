"""Where the time of ropebench's own way goes: the parts of the model, everything else, and the kernels beneath."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# What the modules of a decoder layer are called in transformers.
PARTS = {"self_attn": "attention", "attn": "attention", "attention": "attention", "mlp": "MLP"}
_MARK = "part: "


@dataclass(frozen=True)
class Profile:
    """Seconds in all, seconds by part (`everything else` among them), and (kernel, seconds, calls), slowest first."""

    seconds: float
    parts: dict[str, float]
    kernels: tuple[tuple[str, float, int], ...]


def profile(model: Any, work: Callable[[], Any]) -> Profile:
    """Run `work`, which runs `model`, under torch.profiler. The parts are wall time on the CPU; the profiler itself
    costs some per cent, so shares are to be read and not seconds."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # above its highest: it writes lines of its own to the terminal
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    with parts_marked(model), profiled(activities=[ProfilerActivity.CPU]) as found:
        began = time.perf_counter()
        work()
        spent = time.perf_counter() - began
    events = found.key_averages()
    parts = dict.fromkeys(("attention", "MLP", "LM head"), 0.0)
    for event in events:
        if event.key.startswith(_MARK):
            parts[event.key.removeprefix(_MARK)] = event.cpu_time_total / 1e6
    parts["everything else"] = spent - sum(parts.values())
    kernels = [(e.key, e.self_cpu_time_total / 1e6, e.count) for e in events if not e.key.startswith(_MARK)]
    return Profile(spent, parts, tuple(sorted(kernels, key=lambda kernel: -kernel[1])))


@contextmanager
def parts_marked(model: Any) -> Iterator[None]:
    """While inside, each part of the model says to the profiler when it runs."""
    from torch.profiler import record_function

    marked = [(module, PARTS.get(name.rpartition(".")[2])) for name, module in model.named_modules()]
    hooks: list[Any] = []
    for module, part in [*marked, (model.get_output_embeddings(), "LM head")]:
        if part is None:
            continue
        open_marks: list[Any] = []

        def enter(*_: Any, part: str = part, open_marks: list[Any] = open_marks) -> None:
            open_marks.append(record_function(_MARK + part))
            open_marks[-1].__enter__()

        def leave(*_: Any, open_marks: list[Any] = open_marks) -> None:
            open_marks.pop().__exit__(None, None, None)

        hooks += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave, always_call=True)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def as_text(name: str, found: Profile, kernels: int = 8) -> str:
    """The shares, largest first, and the kernels that took most."""
    lines = [f"{name}: {found.seconds:.1f} s under the profiler"]
    for part, spent in sorted(found.parts.items(), key=lambda item: -item[1]):
        lines.append(f"  {spent / found.seconds:7.1%}  {spent:8.2f} s  {part}")
    lines.append("  of which, by kernel (own time):")
    for kernel, spent, calls in found.kernels[:kernels]:
        lines.append(f"  {spent / found.seconds:7.1%}  {spent:8.2f} s  {kernel} ({calls} calls)")
    return "\n".join(lines)

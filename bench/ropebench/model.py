"""From a name to a model: aliases, where the weights are, what they were trained with; and, last, loading them.

`find` and `card` read names and configs only, so that whatever is wrong is said before any weight is loaded.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ropebench.errors import UsageError, unknown
from ropebench.geometry import RopeGeometry, geometry_of

_KEYS = {"source", "revision", "file", "trained_length", "instruct", "note", "install"}


def cache_dir() -> Path:
    """The one cache folder: ROPEBENCH_CACHE, else `ropebench` in the user's cache folder."""
    chosen = os.environ.get("ROPEBENCH_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ropebench"


@dataclass(frozen=True)
class ModelSpec:
    """A model by name. `source` is a hub id, `folder:PATH` or `gguf-package:PACKAGE`."""

    id: str
    source: str
    revision: str = "main"
    file: str | None = None
    trained_length: int | None = None
    instruct: bool = False
    note: str = ""
    install: str = ""


@dataclass(frozen=True)
class ModelCard:
    """What is known of a model without loading it. `path` is what the loader is given (folder or hub id); `revision`
    the hub commit or the SHA-256 of the weight files."""

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


def aliases(extra: str | None = None) -> dict[str, ModelSpec]:
    """Built-in aliases, then those of `extra` (or the file named by ROPEBENCH_MODELS), which win.

    Raises UsageError for a file that cannot be read, an unknown key or an alias without a source.
    """
    found = _read_aliases(Path(__file__).with_name("models.toml"))
    extra = extra or os.environ.get("ROPEBENCH_MODELS")
    return found | _read_aliases(Path(extra)) if extra else found


def _read_aliases(path: Path) -> dict[str, ModelSpec]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"models file {path.name}: {error}") from None
    specs = {}
    for name, table in tables.items():
        if not isinstance(table, Mapping) or "source" not in table:
            raise UsageError(f"models file {path.name}: alias {name!r} needs a table with a source")
        for key in table:
            if key not in _KEYS:
                raise unknown(f"key of alias {name!r} in {path.name}:", key, _KEYS)
        specs[name] = ModelSpec(name, **table)
    return specs


def find(name: str, extra: str | None = None, revision: str | None = None) -> ModelSpec:
    """The model a person means: an alias, a local folder, or a hub id (owner/name).

    Raises UsageError with the nearest alias for anything else.
    """
    known = aliases(extra)
    if name in known:
        spec = known[name]
        return spec if revision is None else ModelSpec(**{**spec.__dict__, "revision": revision})
    if "\0" in name or len(name) > 300:
        raise UsageError("a model is an alias, a folder or a hub id of at most 300 characters")
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UsageError(f"model folder {name!r} has no config.json; give a folder saved by save_pretrained")
        return ModelSpec(path.resolve().name, f"folder:{path.resolve()}")
    parts = name.split("/")
    if len(parts) == 2 and all(parts) and not name.startswith((".", "~")) and ".." not in parts:
        return ModelSpec(name, name, revision or "main")
    raise unknown("model", name, known, "or a local folder, or a hub id such as owner/name")


def card(
    spec: ModelSpec, trained_length: int | None = None, offline: bool = False, trust_remote_code: bool = False
) -> ModelCard:
    """Read a model's config (no weights). A GGUF file is converted once into the cache first.

    Raises UsageError when the source cannot be reached or read, or the model has no single RoPE table.
    """
    from ropebench.apply import sliding_window

    if spec.source.startswith("folder:"):
        folder = Path(spec.source.removeprefix("folder:")).expanduser()
        if not (folder / "config.json").is_file():
            raise UsageError(f"model {spec.id!r}: folder {folder.name!r} has no config.json")
        path, revision = str(folder), _weights_sha256(folder)
    elif spec.source.startswith("gguf-package:"):
        path, revision = _converted(spec)
    else:
        path, revision = spec.source, ""
    config = _config(spec, path, offline, trust_remote_code)
    revision = revision or getattr(config, "_commit_hash", None) or spec.revision
    geometry = geometry_of(config, trained_length or spec.trained_length)
    return ModelCard(spec, path, revision, config, geometry, sliding_window(config), offline)


def _config(spec: ModelSpec, path: str, offline: bool, trust_remote_code: bool) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(
            path,
            revision=spec.revision if path == spec.source else None,
            local_files_only=offline,
            trust_remote_code=trust_remote_code,
        )
    except (OSError, ValueError) as error:
        raise _unreachable(spec, error) from None


def _unreachable(spec: ModelSpec, error: Exception) -> UsageError:
    """What a person can do about a source that did not answer."""
    text = f"{type(error).__name__} {error} {error.__cause__!r}".lower()
    if "gated" in text or "401" in text or "403" in text:
        return UsageError(
            f"model {spec.id!r}: {spec.source} is gated: ask for access on its hub page, then log in with "
            "`hf auth login` (or set HF_TOKEN) and run this again"
        )
    if "trust_remote_code" in text:
        return UsageError(f"model {spec.id!r}: needs code from its repository; allow it with --trust-remote-code")
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return UsageError(
        f"model {spec.id!r}: cannot read {spec.source} from the model hub ({first}); check the name and the network, or "
        f"give a local folder: --model FOLDER, or an alias with source = \"folder:…\" in a file for --models"
    )


def _weights_sha256(folder: Path) -> str:
    """SHA-256 over the names and contents of a folder's weight files; remembered by (name, size, time) in the cache."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UsageError(f"model folder {folder.name!r} has no *.safetensors weights (other formats are not read)")
    key = json.dumps([[str(f), f.stat().st_size, f.stat().st_mtime_ns] for f in files])
    note = cache_dir() / "weights" / (hashlib.sha256(key.encode()).hexdigest()[:32] + ".txt")
    if note.is_file():
        return note.read_text().strip()
    total = hashlib.sha256()
    for file in files:
        total.update(file.name.encode())
        with file.open("rb") as handle:
            total.update(hashlib.file_digest(handle, "sha256").digest())
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(total.hexdigest())
    return total.hexdigest()


def _converted(spec: ModelSpec) -> tuple[str, str]:
    """The cached safetensors folder of a wheel's GGUF file, made on first use, and the file's SHA-256."""
    package = spec.source.removeprefix("gguf-package:")
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise UsageError(f"model {spec.id!r} comes in the package {package}: {spec.install or 'install it'}")
    file = Path(found.submodule_search_locations[0]) / str(spec.file)
    if not file.is_file():
        raise UsageError(f"model {spec.id!r}: {package} holds no {spec.file}: {spec.install}")
    with file.open("rb") as handle:
        sha = hashlib.file_digest(handle, "sha256").hexdigest()
    folder = cache_dir() / "models" / f"{spec.id}-{sha[:16]}"
    if not (folder / "config.json").is_file():
        _convert(spec, file, folder)
    return str(folder), sha


def _convert(spec: ModelSpec, file: Path, folder: Path) -> None:
    import torch

    try:
        import gguf  # noqa: F401
    except ImportError:
        raise UsageError(f"model {spec.id!r} is a GGUF file: pip install 'ropebench[gguf]'") from None
    from transformers import AutoModelForCausalLM, AutoTokenizer

    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}.part")
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
        # Renamed when complete: a folder with this name is always whole.
        if not folder.exists():
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def choose_device(word: str = "auto") -> str:
    """cuda, mps or cpu: the first that is there, or the one asked for. Raises UsageError for one that is not there."""
    import torch

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if word == "auto":
        return next(name for name, yes in there.items() if yes)
    name = word.split(":")[0]
    if name not in there:
        raise unknown("device", word, ["auto", *there])
    if not there[name]:
        raise UsageError(f"device {word!r} is not available here; available: {', '.join(n for n, y in there.items() if y)}")
    return word


def choose_dtype(word: str = "auto", device: str = "cpu") -> str:
    """bfloat16 where the hardware multiplies it, else float16 on mps and float32. Raises UsageError for other words."""
    import torch

    allowed = ("float32", "bfloat16", "float16")
    short = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
    word = short.get(word, word)
    if word == "auto":
        if device.startswith("cuda"):
            return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
        if device.startswith("mps"):
            return "float16"
        # Without matrix units for it, bf16 on a CPU is several times slower than float32 and less exact.
        fast = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
        return "bfloat16" if fast else "float32"
    if word not in allowed:
        raise unknown("dtype", word, ["auto", *allowed])
    return word


def load_tokenizer(card: ModelCard, trust_remote_code: bool = False) -> Any:
    """The tokenizer alone. Raises UsageError when it cannot be read."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            card.path,
            revision=card.revision if card.path == card.spec.source else None,
            local_files_only=card.offline,
            trust_remote_code=trust_remote_code,
        )
    except (OSError, ValueError) as error:
        raise _unreachable(card.spec, error) from None


def load(
    card: ModelCard,
    device: str = "auto",
    dtype: str = "auto",
    attention: str = "sdpa",
    trust_remote_code: bool = False,
) -> LoadedModel:
    """Load weights (safetensors only) and prove that this model takes a rotary table and gives it back."""
    import torch
    from transformers import AutoModelForCausalLM

    from ropebench.apply import prove

    device = choose_device(device)
    dtype = choose_dtype(dtype, device)
    tokenizer = load_tokenizer(card, trust_remote_code)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            card.path,
            revision=card.revision if card.path == card.spec.source else None,
            local_files_only=card.offline,
            trust_remote_code=trust_remote_code,
            use_safetensors=True,
            dtype=getattr(torch, dtype),
            attn_implementation=attention,
        )
    except OSError as error:
        raise _unreachable(card.spec, error) from None
    model = model.to(device).eval()
    prove(model, card.geometry)
    return LoadedModel(card, model, tokenizer, device, dtype, attention)

"""What `--model_args` say: which model under which table, and how long its window is. No weights are loaded here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ropebench.aliases import find
from ropebench.device import check_attention, choose_device, choose_dtype
from ropebench.errors import UsageError, unknown
from ropebench.geometry import Frequencies, RopeGeometry
from ropebench.method import Method
from ropebench.model import ModelCard, card
from ropebench.plan import factor_of, start_of
from ropebench.prompt import BOS_RULES
from ropebench.record import Json, digest
from ropebench.registry import Registry
from ropebench.sweep import BASES, Sweep, length_of


@dataclass(frozen=True)
class ModelArguments:
    """The arguments of `--model ropebench`, by the names of `ropebench run`; `max_length` is lm-eval's word for the
    window, and sets the factor where neither `factor` nor `target` does. Anything else is an error."""

    pretrained: str = ""
    method: str | None = None  # default: the unmodified model
    factor: float | None = None
    target: int | None = None
    max_length: int | None = None  # default: trained window × factor
    base: str = "unscaled"
    bos: str = "auto"
    add_bos_token: bool | None = None  # lm-eval's spelling of bos=always and bos=never
    trained_length: int | None = None
    revision: str | None = None
    models: str | None = None
    plugin: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    attention: str = "sdpa"
    offline: bool = False
    trust_remote_code: bool = False
    batch_size: int | str = 1  # answers at once: a number, or auto; no answer depends on it
    max_batch_size: int | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ModelArguments:
        """Raises UsageError for a name that is none of these, a value of the wrong kind, or no model."""
        known = {f.name for f in fields(cls)}
        for name in given:
            if name not in known:
                raise unknown("argument in --model_args of model ropebench:", name, known)
        values = {name: value for name, value in given.items() if value is not None}
        for name in ("target", "max_length", "trained_length"):
            if name in values:
                values[name] = length_of(values[name])
        for name in ("offline", "trust_remote_code", "add_bos_token"):
            if not isinstance(values.get(name, False), bool):
                raise UsageError(f"--model_args {name}={values[name]}: must be true or false")
        factor = values.get("factor", 1.0)
        if isinstance(factor, bool) or not isinstance(factor, (int, float)):
            raise UsageError(f"--model_args factor={factor}: must be a number of at least 1")
        for name in ("pretrained", "method", "base", "bos", "revision", "models", "plugin", "device", "dtype"):
            if name in values:
                values[name] = str(values[name])
        made = cls(**values)
        if not made.pretrained:
            raise UsageError(
                "--model_args: no model; write pretrained=NAME (see ropebench list models), a folder, or a hub id"
            )
        for what, word, allowed in (("BOS rule", made.bos, BOS_RULES), ("base", made.base, BASES)):
            if word not in allowed:
                raise unknown(what, word, allowed)
        return made

    @property
    def bos_rule(self) -> str:
        return self.bos if self.add_bos_token is None else "always" if self.add_bos_token else "never"


def _device(word: str) -> str:
    """cuda:0 is what lm-eval says where nobody said anything; on a machine without CUDA that means what is there, as
    with lm-eval's own models."""
    import torch

    return choose_device("auto" if word == "cuda:0" and not torch.cuda.is_available() else word)


@dataclass(frozen=True)
class Setting:
    """A model and the table it runs under, resolved."""

    card: ModelCard
    geometry: RopeGeometry
    method: Method
    method_code: str | None
    factor: float | None
    max_length: int
    arguments: ModelArguments
    device: str
    dtype: str

    @classmethod
    def of(cls, asked: ModelArguments) -> Setting:
        """Raises UsageError for anything that cannot be run as asked; no weights are loaded."""
        registry = Registry.load([asked.plugin] if asked.plugin else [])
        sweep = Sweep(factor=asked.factor, target=asked.target, batch_size=asked.batch_size)  # checks them
        named = registry.build("method", asked.method) if asked.method else None
        device = _device(asked.device)
        dtype = choose_dtype(asked.dtype, device)
        check_attention(asked.attention)
        spec = find(asked.pretrained, asked.models, asked.revision)
        model = card(spec, asked.trained_length, asked.offline, asked.trust_remote_code)
        method, entry = named or registry.build("method", "native" if model.geometry.shipped else "none")
        start = start_of(model, asked.base) if method.scales else model.geometry
        trained = start.trained_length
        target = asked.target or asked.max_length
        if method.scales and asked.factor is None and target is None:
            raise UsageError(
                f"--model_args method={method.name}: by how much? write factor=4, or max_length={4 * trained} (this "
                f"model was trained on {trained} tokens)"
            )
        factor, _ = factor_of(sweep, method, trained, target or trained, target or trained)
        window = start.extended_length if method.name == "native" else trained
        if method.scales:  # also where the table follows each text's own length, and takes no factor
            window = int(trained * (factor or asked.factor or max(1.0, (target or trained) / trained)))
        window = asked.max_length or window
        made = cls(model, start, method, entry.code, factor, window, asked, device, dtype)
        if len(made.table(made.max_length).inv_freq) != start.pairs:
            raise UsageError(f"method {asked.method}: its table is not of the model's {start.pairs} pairs")
        return made

    def table(self, length: int) -> Frequencies:
        """The table for a sequence of `length` tokens."""
        return self.method.frequencies(self.geometry, self.factor or 1.0, length)

    @property
    def varies(self) -> bool:
        """Whether the table depends on the length of the sequence."""
        return self.method.varies(self.geometry)

    @property
    def identity(self) -> Json:
        """Everything an answer depends on besides the question."""
        table = self.table(self.max_length)
        return {
            "model": self.card.id,
            "model_revision": self.card.revision,
            "model_dtype": self.dtype,
            "attention": self.arguments.attention,
            "method": self.method.name,
            "method_version": self.method.version,
            "method_params": self.method.params,
            "method_code": self.method_code,
            "factor": self.factor,
            "base": self.arguments.base,
            "trained_length": self.geometry.trained_length,
            "frequencies": digest([f"{value:.6e}" for value in [*table.inv_freq, table.attention_factor]]),
            "max_length": self.max_length,
            "bos": self.arguments.bos_rule,
        }

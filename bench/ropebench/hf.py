"""`import ropebench.hf`: every method as a `rope_type` of transformers.

    import ropebench.hf
    AutoModelForCausalLM.from_pretrained(folder, rope_parameters={
        "rope_type": "mrrope_pro", "factor": 16, "rope_theta": 5e5, "original_max_position_embeddings": 8192})

gives the table and attention factor that `apply` sets, to the last bit; a method's parameters stand beside these keys.
Passing rope_parameters replaces the checkpoint's whole block, so what is missing is an error and never a default: a
base of 10000, or a fully rotated head where the checkpoint rotates a part, would go unnoticed. (A config class that is
built by hand fills in its own defaults before anybody can look.)

Names. Each method is `ropebench_NAME`, and NAME too where transformers has none of its own: `yarn`, `llama3` and
`longrope` stay theirs (`ropebench_yarn` is ours; the paper's operator is `yarn_paper`). Methods whose table depends on
the length of the sequence are refused: transformers would keep a long sequence's table for the shorter one after it.

A config saved with such a type needs ropebench to be loaded: without this import transformers stops with a KeyError
that names the type. `ropebench run` takes such a folder: its table is the baseline `native`.
Phi-3's config class takes no types but its own, so a Phi-3 can be loaded this way, not saved.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, RotaryEmbeddingConfigMixin

from ropebench import methods
from ropebench.errors import UsageError
from ropebench.geometry import RopeGeometry, geometry_of
from ropebench.method import Method
from ropebench.native import BLOCK, as_word
from ropebench.task import with_params

REQUIRED = ("rope_theta", "factor", "original_max_position_embeddings")
_IN_MODELS = {"default", "axial", "ntk_alpha"}  # types that transformers defines in its model files


@dataclass(frozen=True)
class RopeType:
    """A method under the name `name`, called as transformers calls its rope functions."""

    name: str
    method: type[Method]

    def __call__(
        self, config: Any, device: Any = None, seq_len: int | None = None, layer_type: str | None = None, **_: Any
    ) -> tuple[torch.Tensor, float]:
        """The table, float32 of shape (rotary_dim/2,), and the attention factor. Raises UsageError for a model with
        several tables, a key that is missing, and whatever the method refuses."""
        if layer_type is not None:
            raise UsageError(f"rope_type {self.name!r}: this model has a rotary table per layer type; not supported")
        block = config.rope_parameters
        method = self.read(block, config)
        length = block["original_max_position_embeddings"]
        seen = geometry_of(config, length)
        # The block is what was asked for, not a scaling that was shipped and that methods could start from.
        table = method.frequencies(RopeGeometry(seen.rotary_dim, seen.theta, length), float(block["factor"]), length)
        return torch.tensor(table.inv_freq, dtype=torch.float32, device=device), float(table.attention_factor)

    def read(self, block: Mapping[str, Any], config: Any) -> Method:
        """The method that a block of rope_parameters asks for. Raises UsageError for one that cannot be used."""
        what = f"rope_type {self.name!r}"
        if not self.method.scales:
            raise UsageError(f"{what} is no scaling: leave rope_parameters out, or write rope_type 'default'")
        if self.method.length_dependent:
            raise UsageError(
                f"{what}: its table depends on the length of the sequence, and transformers would keep a long one's "
                f"for the shorter one after it; measure it with ropebench run --method {self.method.name}"
            )
        needed = [*REQUIRED, *(["partial_rotary_factor"] if _rotates_a_part(type(config)) else [])]
        missing = [key for key in needed if block.get(key) is None]
        if missing:
            raise UsageError(
                f"{what}: rope_parameters lacks {', '.join(missing)}; it replaces the checkpoint's whole block, so "
                f"give all of {', '.join(needed)}; what the checkpoint was trained with stands in its config.json"
            )
        for key in needed:
            kinds = (int,) if key == "original_max_position_embeddings" else (int, float)
            if isinstance(block[key], bool) or not isinstance(block[key], kinds):
                raise UsageError(f"{what}: {key} = {block[key]!r} must be a {'whole ' * (len(kinds) == 1)}number")
        given = {key: as_word(value) for key, value in block.items() if key not in BLOCK and value is not None}
        method: Method = with_params("method", self.method, given)
        return method


def _rotates_a_part(config_class: type[Any]) -> bool:
    """Whether these models read how much of a head is rotated from rope_parameters: their default has the key."""
    try:
        return "partial_rotary_factor" in (config_class().rope_parameters or {})
    except Exception:  # a class of a stranger's, without defaults
        return False


def register(method: type[Method]) -> tuple[str, ...]:
    """Make a method, of a plug-in say, a rope_type; returns its names. A second time changes nothing.

    Raises UsageError with both origins where somebody else has taken a name.
    """
    names = (f"ropebench_{method.name}", method.name)
    owners = {name: ROPE_INIT_FUNCTIONS.get(name) for name in names}
    theirs = {n for n, owner in owners.items() if n in _IN_MODELS or _origin(owner).startswith("transformers.")}
    for name in set(names) - theirs:
        if owners[name] is not None and _origin(owners[name]) != _origin(method):
            raise UsageError(
                f"rope_type {name!r} is taken by {_origin(owners[name])}; {_origin(method)} needs another name"
            )
    registered = tuple(name for name in names if name not in theirs)
    for name in registered:
        rope_type = RopeType(name, method)
        ROPE_INIT_FUNCTIONS[name] = rope_type
        # Where transformers looks for a check of the block; with none it logs that this type has no validation.
        setattr(RotaryEmbeddingConfigMixin, f"_validate_{name}_rope_parameters", _check(rope_type))
    return registered


def _origin(owner: Any) -> str:
    """Module and name of what is behind a rope_type."""
    owner = getattr(owner, "method", owner)
    return f"{getattr(owner, '__module__', '')}.{getattr(owner, '__qualname__', '')}"


def _check(rope_type: RopeType) -> Any:
    def check(config: Any, rope_parameters: Mapping[str, Any], ignore_keys: Any = None) -> None:
        rope_type.read(rope_parameters, config)

    return check


for _found in vars(methods).values():
    if inspect.isclass(_found) and issubclass(_found, Method) and _found.__module__ == methods.__name__:
        register(_found)

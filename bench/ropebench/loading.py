"""How weights are loaded and run, besides number format and attention: placed over devices, quantised, compiled."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ropebench.errors import UsageError, unknown

DEVICE_MAPS = ("auto",)
QUANTIZATIONS = ("bnb4", "bnb8")


@dataclass(frozen=True)
class Loading:
    """`compiled`: by torch.compile, layer by layer. `device_map`: auto spreads the layers over all devices.
    `quantize`: bnb4 (NF4, computed in the dtype) or bnb8 (LLM.int8), both by bitsandbytes."""

    compiled: bool = False
    device_map: str | None = None
    quantize: str | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for a word that is not known, or whose package is not installed."""
        for flag, word, allowed, packages in (
            ("device map", self.device_map, DEVICE_MAPS, ("accelerate",)),
            ("quantisation", self.quantize, QUANTIZATIONS, ("bitsandbytes", "accelerate")),
        ):
            if word is None:
                continue
            if word not in allowed:
                raise unknown(flag, word, allowed)
            missing = [name for name in packages if find_spec(name) is None]
            if missing:
                raise UsageError(f"{flag} {word!r} needs {' and '.join(missing)}: pip install {' '.join(missing)}")

    def keywords(self, dtype: Any) -> dict[str, Any]:
        """What `from_pretrained` is given besides."""
        words: dict[str, Any] = {}
        if self.device_map is not None:
            words["device_map"] = self.device_map
        if self.quantize is not None:
            from transformers import BitsAndBytesConfig

            four = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": dtype}
            words["quantization_config"] = BitsAndBytesConfig(
                **(four if self.quantize == "bnb4" else {"load_in_8bit": True})
            )
        return words

    def placed(self, model: Any, device: str) -> Any:
        """The loaded model on its device, ready to run. A quantised or spread one is where it belongs already."""
        if self.device_map is None and self.quantize is None:
            model = model.to(device)
        model = model.eval()
        if self.compiled:
            _compile_layers(model)
        return model


PLAIN = Loading()


def _compile_layers(model: Any) -> None:
    """Compile each layer by itself: they share their code, so that the first one's compilation serves all, and rotary
    table and LM head stay outside, where they are switched and cut into chunks."""
    import torch

    from ropebench.kv import RoomyLayer

    lists = [module for module in model.base_model.modules() if isinstance(module, torch.nn.ModuleList)]
    layers = max(lists, key=len, default=())
    # With a cache a layer's number is a constant in its code: one version per layer, and dynamo gives up at 8.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 8 * len(layers))
    # Keys, values and their buffers share memory, which inductor cannot tell apart: the cache is written outside.
    RoomyLayer.update = torch.compiler.disable(RoomyLayer.update)  # type: ignore[method-assign]
    for layer in layers:
        layer.compile(dynamic=True)

"""Low-rank adapters as the PEFT library saves them, several for one model, of which one is in force at a time.

PEFT itself is not used: what an adapter's description may name there goes beyond weights.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import load_file
from torch import Tensor, nn

from embodied_rm.errors import CheckpointError

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
LOW_RANK = re.compile(r"(?P<module>.+)\.lora_(?P<side>[AB])(\.\w+)?\.weight")
PLAIN = {
    "use_dora": False,
    "bias": "none",
    "fan_in_fan_out": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "lora_bias": False,
}
"""What an adapter's description must say, or not say, to be nothing but two matrices a layer."""


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """What one adapter changes."""

    low: Mapping[str, tuple[Tensor, Tensor]]
    """Linear layer -> A [rank, in] and B [out, rank], the latter scaled: W + B A is meant."""
    whole: Mapping[str, Tensor]
    """Parameters that were trained as they are."""


def read_adapter(folder: Path) -> Adapter:
    """The adapter in a folder. Raises `CheckpointError` naming the file and its fault."""
    config, tensors = _config(folder / CONFIG), _tensors(folder / WEIGHTS)
    sides: dict[str, dict[str, Tensor]] = {}
    whole = {}
    for name, tensor in tensors.items():
        if (low := LOW_RANK.fullmatch(name)) is not None:
            sides.setdefault(low["module"], {})[low["side"]] = tensor
        else:
            whole[re.sub(r"\.modules_to_save(\.default)?\.", ".", name)] = tensor
    torn = [module for module, pair in sides.items() if len(pair) != 2]
    if torn:
        raise CheckpointError(f"{folder / WEIGHTS}: {torn[0]} has one of two matrices")
    if sides and not any(pair["B"].any() for pair in sides.values()):
        raise CheckpointError(f"{folder / WEIGHTS}: changes nothing, every lora_B is zero: it was never trained")
    rank, alpha = config["r"], config["lora_alpha"]
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return Adapter(low={module: (pair["A"], pair["B"] * scale) for module, pair in sides.items()}, whole=whole)


def _config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text())
        rank, alpha = config["r"], config["lora_alpha"]
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise CheckpointError(f"{path}: not the description of an adapter ({fault!r})") from None
    if not (isinstance(rank, int) and rank > 0 and isinstance(alpha, int | float)):
        raise CheckpointError(f"{path}: r and lora_alpha must be numbers, r > 0, got {rank!r} and {alpha!r}")
    odd = {key: config[key] for key, plain in PLAIN.items() if config.get(key) not in (plain, None)}
    if config.get("peft_type") != "LORA" or odd:
        raise CheckpointError(f"{path}: only plain LoRA is read, this is {config.get('peft_type')} with {odd}")
    return config


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        tensors = load_file(path)
    except (OSError, safetensors.SafetensorError) as fault:
        raise CheckpointError(f"{path}: not readable weights ({fault})") from None
    strange = [name for name in tensors if not name.startswith(PREFIX)]
    if strange:
        raise CheckpointError(f"{path}: {strange[0]} is no adapted weight, whose name begins with {PREFIX}")
    return {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()}


class Adapted:
    """A model with adapters by name. Outside `using`, it is the model as it was."""

    def __init__(self, model: nn.Module, adapters: Mapping[str, Adapter]) -> None:
        """Raises `CheckpointError` for an adapter of another model."""
        self._active = ""
        self._low = {name: self._placed(model, name, adapter) for name, adapter in adapters.items()}
        self._whole = {name: _whole(model, name, adapter) for name, adapter in adapters.items()}
        for module in {module for low in self._low.values() for module in low}:
            module.register_forward_hook(self._adapt)

    @contextmanager
    def using(self, name: str) -> Iterator[None]:
        """One adapter in force; an empty name: none."""
        own = {parameter: parameter.data for parameter in self._whole.get(name, {})}
        self._active = name
        for parameter, trained in self._whole.get(name, {}).items():
            parameter.data = trained
        try:
            yield
        finally:
            self._active = ""
            for parameter, before in own.items():
                parameter.data = before

    def _adapt(self, module: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> Tensor:
        pair = self._low[self._active].get(module) if self._active else None
        if pair is None:
            return out
        return out + nn.functional.linear(nn.functional.linear(given[0], pair[0]), pair[1])

    @staticmethod
    def _placed(model: nn.Module, name: str, adapter: Adapter) -> dict[nn.Module, tuple[Tensor, Tensor]]:
        modules = dict(model.named_modules())
        placed: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        for path, (a, b) in adapter.low.items():
            module = modules.get(path)
            if not isinstance(module, nn.Linear) or tuple(module.weight.shape) != (b.shape[0], a.shape[1]):
                raise CheckpointError(f"the adapter {name} is not for this model: it changes {path}")
            placed[module] = (a.to(module.weight), b.to(module.weight))
        return placed


def _whole(model: nn.Module, name: str, adapter: Adapter) -> dict[nn.Parameter, Tensor]:
    parameters, trained = dict(model.named_parameters()), {}
    for path, tensor in adapter.whole.items():
        parameter = parameters.get(path)
        if parameter is None or parameter.shape != tensor.shape:
            raise CheckpointError(f"the adapter {name} is not for this model: it changes {path}")
        trained[parameter] = tensor.to(parameter)
    return trained

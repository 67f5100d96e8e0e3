"""LoRA adapters in the format of PEFT: several adapters of one model, of which at most one is active.

PEFT itself is not used, because its adapter configurations can name more than weights.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from embodied_rm.errors import CheckpointError
from embodied_rm.models.load_pretrained import ADAPTER_FILE, checkpoint_errors, read_weights, with_nearest
from embodied_rm.text_file import read_text

WEIGHTS_FILE = "adapter_model.safetensors"
WEIGHT_PREFIX = "base_model.model."
LORA_WEIGHT_PATTERN = re.compile(r"(?P<module>.+)\.lora_(?P<side>[AB])(\.\w+)?\.weight")
PLAIN_LORA_CONFIG: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("use_dora", "use_qalora", "fan_in_fan_out", "lora_bias"), (False,)),
    **dict.fromkeys(
        ("alora_invocation_tokens", "layer_replication", "target_parameters", "trainable_token_indices"), ([],)
    ),
    "bias": ("none",),
    "init_lora_weights": (True, False, "gaussian", "orthogonal", "eva"),  # others also change the weights of the model
    "rank_pattern": ({},),
    "alpha_pattern": ({},),
}
"""Values that these keys of a configuration may have, if present, for an adapter of two matrices per layer."""


@dataclass(frozen=True, kw_only=True)
class LoraAdapter:
    """Weights of one adapter."""

    low_rank: Mapping[str, tuple[Tensor, Tensor]]
    """Linear layer -> A [rank, in] and B [out, rank]. B is scaled, so the adapted weight is W + B A."""
    full_weights: Mapping[str, Tensor]  # parameter -> its replacement


def read_adapter(folder: Path) -> LoraAdapter:
    """Read the adapter in a folder; `CheckpointError` if it cannot be read."""
    return make_adapter(
        _read_tensors(folder / WEIGHTS_FILE), _read_config(folder / ADAPTER_FILE), folder / WEIGHTS_FILE
    )


def make_adapter(tensors: Mapping[str, Tensor], config: Mapping[str, Any], source: Path) -> LoraAdapter:
    """Return the adapter of weights, named as in the model, with its rank and scale; `source` is for error messages."""
    pairs: dict[str, dict[str, Tensor]] = {}
    full_weights = {}
    for name, tensor in tensors.items():
        if (match := LORA_WEIGHT_PATTERN.fullmatch(name)) is not None:
            pairs.setdefault(match["module"], {})[match["side"]] = tensor
        else:
            full_weights[re.sub(r"\.modules_to_save(\.default)?\.", ".", name)] = tensor
    incomplete = [module for module, pair in pairs.items() if len(pair) != 2]
    if incomplete:
        raise CheckpointError(f"{source}: {incomplete[0]} has only one of two matrices")
    if pairs and not any(pair["B"].any() for pair in pairs.values()):
        raise CheckpointError(f"{source}: every lora_B is zero, so it was never trained")
    rank, alpha = config["r"], config["lora_alpha"]
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    low_rank = {module: (pair["A"], pair["B"] * scale) for module, pair in pairs.items()}
    return LoraAdapter(low_rank=low_rank, full_weights=full_weights)


def _read_config(path: Path) -> dict[str, Any]:
    with checkpoint_errors(f"{path}: not the configuration of an adapter"):
        config = json.loads(read_text(path))
    check_config(config, path)
    return config


def check_config(config: Mapping[str, Any], path: Path) -> None:
    """Raise `CheckpointError` unless a configuration is that of an adapter of two matrices per layer."""
    with checkpoint_errors(f"{path}: not the configuration of an adapter"):
        rank, alpha = config["r"], config["lora_alpha"]
    if not (isinstance(rank, int) and rank > 0 and isinstance(alpha, int | float)):
        raise CheckpointError(f"{path}: r and lora_alpha must be numbers, r > 0, got {rank!r} and {alpha!r}")
    options = {key: config[key] for key, plain in PLAIN_LORA_CONFIG.items() if config.get(key) not in (*plain, None)}
    if (peft_type := config.get("peft_type")) != "LORA" or options:
        raise CheckpointError(f"{path}: only plain LoRA is supported, this is {peft_type} with {options}")


def _read_tensors(path: Path) -> dict[str, Tensor]:
    tensors = read_weights([path])
    unexpected = [name for name in tensors if not name.startswith(WEIGHT_PREFIX)]
    if unexpected:
        raise CheckpointError(f"{path}: {unexpected[0]} is not an adapter weight; those begin with {WEIGHT_PREFIX}")
    return {name.removeprefix(WEIGHT_PREFIX): tensor for name, tensor in tensors.items()}


class AdapterSwitcher:
    """Named adapters of a model. Outside `use_adapter`, the model is unchanged."""

    def __init__(self, model: nn.Module, adapters: Mapping[str, LoraAdapter]) -> None:
        """Register the adapters with the model; `CheckpointError` if one is for another model."""
        self._active = ""
        self._low_rank = {name: self._match_modules(model, name, adapter) for name, adapter in adapters.items()}
        self._full_weights = {name: _match_parameters(model, name, adapter) for name, adapter in adapters.items()}
        for module in {module for layers in self._low_rank.values() for module in layers}:
            module.register_forward_hook(self._add_low_rank)

    @contextmanager
    def use_adapter(self, name: str) -> Iterator[None]:
        """Activate one adapter in the context. An empty name activates none."""
        original_data = {parameter: parameter.data for parameter in self._full_weights.get(name, {})}
        self._active = name
        for parameter, new_data in self._full_weights.get(name, {}).items():
            parameter.data = new_data
        try:
            yield
        finally:
            self._active = ""
            for parameter, data in original_data.items():
                parameter.data = data

    def _add_low_rank(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        pair = self._low_rank[self._active].get(module) if self._active else None
        if pair is None:
            return output
        return output + nn.functional.linear(nn.functional.linear(inputs[0], pair[0]), pair[1])

    @staticmethod
    def _match_modules(model: nn.Module, name: str, adapter: LoraAdapter) -> dict[nn.Module, tuple[Tensor, Tensor]]:
        modules = dict(model.named_modules())
        matched: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        for path, (a, b) in adapter.low_rank.items():
            module = modules.get(path)
            if not isinstance(module, nn.Linear) or tuple(module.weight.shape) != (b.shape[0], a.shape[1]):
                raise CheckpointError(_misfit_message(name, path, modules))
            matched[module] = (a.to(module.weight), b.to(module.weight))
        return matched


def _match_parameters(model: nn.Module, name: str, adapter: LoraAdapter) -> dict[nn.Parameter, Tensor]:
    parameters, matched = dict(model.named_parameters()), {}
    for path, tensor in adapter.full_weights.items():
        parameter = parameters.get(path)
        if parameter is None or parameter.shape != tensor.shape:
            raise CheckpointError(_misfit_message(name, path, parameters))
        matched[parameter] = tensor.to(parameter)
    return matched


def _misfit_message(adapter: str, path: str, available: Mapping[str, object]) -> str:
    reason = f"{path} does not fit" if path in available else f"it has no {with_nearest(path, available)}"
    return f"the adapter {adapter} is not for this model: {reason}"

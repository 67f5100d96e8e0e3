"""The files of Robometer, in the layout of its authors and in that of LeRobot: settings, backbone and heads."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import transformers
import yaml
from torch import Tensor, nn

from embodied_rm.errors import CheckpointError
from embodied_rm.models.load_pretrained import (
    LORA_MARK,
    check_missing,
    checkpoint_errors,
    limit_weights,
    load_pretrained,
    load_weights,
    read_weights,
    weight_names,
)
from embodied_rm.text_file import read_text

HEAD_NAMES = ("progress_head", "success_head")
MODEL_TYPE = "qwen3_vl"
LEROBOT_MODEL_KEY = "vlm_config"
"""Key of the backbone's settings in LeRobot's config.json."""
LEROBOT_KEY_MAPPING = {r"^model\.model\.": ""}
"""Names of the backbone's weights in LeRobot's files -> ours; the heads have their own."""
MODEL_PREFIX = "model."  # of the names of the backbone's weights
PEFT_PATTERN = re.compile(r"base_model\.model\.|(?<=\.)base_layer\.")
"""Parts of names that PEFT adds to those of the weights that it wraps."""
REQUIRED_SETTINGS = {"use_per_frame_progress_token": True, "use_multi_image": True}
"""Settings of the authors' config.yaml and of LeRobot's config.json: how a video is shown, and where it is read."""
SETTINGS_FILES = ("config.yaml", "config.json")
PROBLEM = "not a Robometer as released"


def check_readout(folder: Path) -> None:
    """Raise `CheckpointError` if a model was trained to be read elsewhere than at a token after each image."""
    for name in SETTINGS_FILES:
        settings = read_settings(folder / name)
        for key, required in REQUIRED_SETTINGS.items():
            if settings.get(key, required) != required:
                raise CheckpointError(f"{folder / name}: {key} is {settings[key]!r}, only {required!r} is supported")


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings in a JSON or YAML file, without their nesting; none if there is no such file."""
    if not path.is_file():
        return {}
    with checkpoint_errors(f"{path}: not readable"):
        try:
            return dict(flatten(yaml.load(read_text(path), SettingsLoader), set()))  # JSON is YAML
        except yaml.YAMLError as error:
            raise ValueError(error) from None


class SettingsLoader(yaml.SafeLoader):
    """A loader without merge keys: one can double a mapping per line."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Leave a merge key where it is; it has no constructor."""


def flatten(settings: Any, visited: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of nested mappings, once per mapping: aliases can give one 2^40 places."""
    if not isinstance(settings, Mapping) or id(settings) in visited:
        return
    visited.add(id(settings))
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flatten(value, visited)
        else:
            yield str(key), value


def load_backbone(folder: Path, attn_implementation: str) -> nn.Module:
    """Load the Qwen3-VL without its language head; `CheckpointError` if it cannot be loaded."""
    with checkpoint_errors(f"{folder}: {PROBLEM}"):
        config = json.loads(read_text(folder / "config.json"))
        backbone = config.get(LEROBOT_MODEL_KEY, config)
        model_type = backbone["model_type"]
    if model_type != MODEL_TYPE:
        raise CheckpointError(f"{folder / 'config.json'}: Robometer is a {MODEL_TYPE}, not {model_type!r}")
    names = weight_names(folder.glob("*.safetensors"))
    with checkpoint_errors(f"{folder}: {PROBLEM}"):
        backbone_config = transformers.Qwen3VLConfig.from_dict(backbone)
    if any(LORA_MARK in name for name in names):
        return load_wrapped_backbone(folder, backbone_config, attn_implementation)
    options: dict[str, Any] = {"attn_implementation": attn_implementation}
    if LEROBOT_MODEL_KEY in config:
        options |= {"key_mapping": LEROBOT_KEY_MAPPING, "config": backbone_config}
    model, missing = load_pretrained(transformers.Qwen3VLModel, folder, PROBLEM, **options)
    check_missing(f"{folder}: {PROBLEM}", missing, len(model.state_dict()), names)
    return model


def load_wrapped_backbone(folder: Path, config: Any, attn_implementation: str) -> nn.Module:
    """Load the Qwen3-VL of a configuration from weights with the names of PEFT, without the adapter.

    transformers itself would add the adapter, and only where PEFT is installed.
    """
    config._attn_implementation = attn_implementation
    paths = sorted(folder.glob("*.safetensors"))
    with checkpoint_errors(f"{folder}: {PROBLEM}"), limit_weights(paths, folder):
        model: nn.Module = transformers.Qwen3VLModel(config)
    stored = read_weights(paths, (MODEL_PREFIX,))
    weights = {plain_name(name): tensor for name, tensor in stored.items() if LORA_MARK not in name}
    load_weights(model, weights, f"{folder}: {PROBLEM}")
    return model


def plain_name(name: str) -> str:
    """Return the name in the backbone of a weight of the whole model."""
    return PEFT_PATTERN.sub("", name).removeprefix(MODEL_PREFIX)


def load_heads(folder: Path) -> nn.ModuleDict:
    """Load the heads of a folder; `CheckpointError` if a file cannot be read or a head is missing."""
    stored = read_weights(sorted(folder.glob("*.safetensors")), tuple(f"{name}." for name in HEAD_NAMES))
    tensors = {name: tensor.float() for name, tensor in stored.items()}
    check_heads(f"{folder}: {PROBLEM}", tensors, weight_names(folder.glob("*.safetensors")))
    heads = nn.ModuleDict({name: make_head(*head_shape(tensors, name)) for name in HEAD_NAMES})
    load_weights(heads, tensors, f"{folder}: {PROBLEM}")
    return heads


def check_heads(source: str, tensors: Mapping[str, Tensor], stored: Collection[str]) -> None:
    """Raise `CheckpointError` that names expected and stored weights if a matrix of the heads is missing."""
    expected = {f"{name}.{layer}.weight" for name in HEAD_NAMES for layer in (0, 4)}
    check_missing(source, expected - tensors.keys(), len(expected), stored)


def head_shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, int]:
    """Return the number of inputs and outputs of a head."""
    return tensors[f"{name}.0.weight"].shape[1], tensors[f"{name}.4.weight"].shape[0]


def make_head(width: int, outputs: int) -> nn.Sequential:
    """Create a head in the released layout, with weights at the positions 0, 1 and 4."""
    hidden = width // 2
    output_layer = nn.Linear(hidden, outputs)
    return nn.Sequential(nn.Linear(width, hidden), nn.LayerNorm(hidden), nn.GELU(), nn.Dropout(0.1), output_layer)

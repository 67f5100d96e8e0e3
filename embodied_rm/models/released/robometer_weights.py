"""The files of Robometer, in the layout of its authors and in that of LeRobot: settings, backbone and heads."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import transformers
import yaml
from torch import Tensor, nn

from embodied_rm.errors import CheckpointError
from embodied_rm.models.load_pretrained import checkpoint_errors, load_pretrained, read_weights

HEAD_NAMES = ("progress_head", "success_head")
MODEL_TYPE = "qwen3_vl"
LEROBOT_MODEL_KEY = "vlm_config"
"""Key of the backbone's settings in LeRobot's config.json."""
LEROBOT_KEY_MAPPING = {r"^model\.model\.": ""}
"""Names of the backbone's weights in LeRobot's files -> ours; the heads have their own."""
REQUIRED_SETTINGS = {"use_per_frame_progress_token": True, "use_multi_image": True}
"""Settings of the authors' config.yaml and of LeRobot's config.json: how a video is shown, and where it is read."""
SETTINGS_FILES = ("config.yaml", "config.json")
PROBLEM = "not a Robometer as released"


def check_readout(folder: Path) -> None:
    """Raise `CheckpointError` if a model was trained to be read elsewhere than at a token after each image."""
    for name in SETTINGS_FILES:
        path = folder / name
        if not path.is_file():
            continue
        with checkpoint_errors(f"{path}: not readable"):
            try:
                settings = dict(flatten(yaml.safe_load(path.read_text())))  # JSON is YAML
            except yaml.YAMLError as error:
                raise ValueError(error) from None
        for key, required in REQUIRED_SETTINGS.items():
            if settings.get(key, required) != required:
                raise CheckpointError(f"{path}: {key} is {settings[key]!r}, only {required!r} is supported")


def flatten(settings: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of nested mappings."""
    for key, value in settings.items() if isinstance(settings, Mapping) else ():
        if isinstance(value, Mapping):
            yield from flatten(value)
        else:
            yield str(key), value


def load_backbone(folder: Path, attn_implementation: str) -> nn.Module:
    """Load the Qwen3-VL without its language head; `CheckpointError` if it cannot be loaded."""
    with checkpoint_errors(f"{folder}: {PROBLEM}"):
        config = json.loads((folder / "config.json").read_text())
        backbone = config.get(LEROBOT_MODEL_KEY, config)
        model_type = backbone["model_type"]
    if model_type != MODEL_TYPE:
        raise CheckpointError(f"{folder / 'config.json'}: Robometer is a {MODEL_TYPE}, not {model_type!r}")
    options: dict[str, Any] = {"attn_implementation": attn_implementation}
    if LEROBOT_MODEL_KEY in config:
        options["key_mapping"] = LEROBOT_KEY_MAPPING
        with checkpoint_errors(f"{folder}: {PROBLEM}"):
            options["config"] = transformers.Qwen3VLConfig.from_dict(backbone)
    model, missing = load_pretrained(transformers.Qwen3VLModel, folder, PROBLEM, **options)
    check_names(folder, missing, model)
    return model


def check_names(folder: Path, missing: list[str], model: nn.Module) -> None:
    """Raise `CheckpointError` that names an expected and a stored weight if a weight is missing."""
    if missing:
        stored = read_weights(sorted(folder.glob("*.safetensors"))).keys()
        raise CheckpointError(
            f"{folder}: {len(missing)} of {len(model.state_dict())} weights of the backbone are missing, such as "
            f"{missing[0]}; its files have {len(stored)}, such as {', '.join(sorted(stored)[:3]) or 'none'}"
        )


def load_heads(folder: Path) -> nn.ModuleDict:
    """Load the heads of a folder; `CheckpointError` if a file cannot be read or a head is missing."""
    stored = read_weights(sorted(folder.glob("*.safetensors")), tuple(f"{name}." for name in HEAD_NAMES))
    tensors = {name: tensor.float() for name, tensor in stored.items()}
    missing = [name for name in HEAD_NAMES if f"{name}.4.weight" not in tensors or f"{name}.0.weight" not in tensors]
    if missing:
        raise CheckpointError(f"{folder}: no {missing[0]} in its weights, so it is {PROBLEM}")
    shapes = {name: head_shape(tensors, name) for name in HEAD_NAMES}
    heads = nn.ModuleDict({name: make_head(*shape) for name, shape in shapes.items()})
    with checkpoint_errors(f"{folder}: its heads are not as released"):
        heads.load_state_dict(tensors)
    return heads


def head_shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, int]:
    """Return the number of inputs and outputs of a head."""
    return tensors[f"{name}.0.weight"].shape[1], tensors[f"{name}.4.weight"].shape[0]


def make_head(width: int, outputs: int) -> nn.Sequential:
    """Create a head in the released layout, with weights at the positions 0, 1 and 4."""
    hidden = width // 2
    output_layer = nn.Linear(hidden, outputs)
    return nn.Sequential(nn.Linear(width, hidden), nn.LayerNorm(hidden), nn.GELU(), nn.Dropout(0.1), output_layer)

"""LoRA fine-tunes of Robometer, as its authors' training writes them: an adapter, trained heads, or the whole model."""

from pathlib import Path
from typing import Any

from embodied_rm.errors import CheckpointError
from embodied_rm.models.load_pretrained import ADAPTER_FILE, LORA_MARK, read_weights
from embodied_rm.models.released.lora_adapters import (
    AdapterSwitcher,
    LoraAdapter,
    check_config,
    make_adapter,
    read_adapter,
)
from embodied_rm.models.released.robometer_weights import MODEL_PREFIX, plain_name, read_settings

ADAPTER_NAME = "fine_tune"
SETTINGS_FILE = "config.yaml"  # in the folder of the weights, or in that of all checkpoints of a training


def is_adapter_only(folder: Path) -> bool:
    """Return whether a folder has an adapter without the model that it was trained from."""
    return (folder / ADAPTER_FILE).is_file() and not (folder / "config.json").is_file()


def switch_adapter(model: Any, folder: Path) -> AdapterSwitcher:
    """Return the adapter `ADAPTER_NAME` of a folder on the module that it was trained on; none if it has none."""
    adapter = read_fine_tune(folder)
    if adapter is None:
        return AdapterSwitcher(model, {})
    layer = next(iter(adapter.low_rank), "")
    modules = (model, model.language_model, model.visual)
    module = next((module for module in modules if layer in dict(module.named_modules())), model)
    return AdapterSwitcher(module, {ADAPTER_NAME: adapter})


def read_fine_tune(folder: Path) -> LoraAdapter | None:
    """Read the adapter's own files, or the adapter in the weights of the whole model; None if there is none."""
    if (folder / ADAPTER_FILE).is_file():
        return read_adapter(folder)
    stored = read_weights(sorted(folder.glob("*.safetensors")), (MODEL_PREFIX,))
    tensors = {plain_name(name): tensor for name, tensor in stored.items() if LORA_MARK in name}
    if not tensors:
        return None
    paths = [path for path in (folder / SETTINGS_FILE, folder.parent / SETTINGS_FILE) if path.is_file()]
    if not paths:
        raise CheckpointError(
            f"{folder}: a LoRA fine-tune without its scale, which is in {ADAPTER_FILE} or {SETTINGS_FILE}"
        )
    config = {"peft_type": "LORA", **read_settings(paths[0])}
    check_config(config, paths[0])
    return make_adapter(tensors, config, folder)

"""Checks of a folder with a released model, before a library reads it by name."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embodied_rm.checkpoint_io import check_regular_files, read_bytes
from embodied_rm.errors import CheckpointError
from embodied_rm.models.load_pretrained import checkpoint_errors

CONFIG_FILE = "config.json"
MAX_PARTS = 20_000
"""Largest number of layers, experts or labels: `transformers` lists them before it builds a network."""
PART_WORDS = ("layer", "depth", "label", "expert", "stage")  # in the names of fields that count parts
OTHER_WORDS = ("size", "vocab", "dim")
"""In the names of fields that count something else: `vocab_size_per_layer_input` of Gemma is 262,144."""
LABEL_MAPS = ("label2id", "id2label")  # their names are labels


def check_model_folder(folder: Path) -> None:
    """Raise `CheckpointError` if a folder holds a pipe or a device, or describes a network of too many parts."""
    check_regular_files(folder)
    for path in sorted(folder.rglob(CONFIG_FILE)):
        stored = read_bytes(path)
        with checkpoint_errors(f"{path}: not the description of a model"):
            content = json.loads(stored)
        check_number_of_parts(content, path)


def check_number_of_parts(fields: Any, source: Path | str) -> None:
    """Raise `CheckpointError` if a field of a description counts more than `MAX_PARTS` parts of a network."""
    queue = [fields]
    for value in queue:
        if isinstance(value, list):
            queue += value
        elif isinstance(value, Mapping):
            queue += [entry for name, entry in value.items() if name not in LABEL_MAPS]
            for name, count in value.items():
                if isinstance(count, int | float) and counts_parts(str(name)) and count > MAX_PARTS:
                    raise CheckpointError(f"{source}: {name} must be at most {MAX_PARTS}, got {count:.4g}")


def counts_parts(name: str) -> bool:
    """Return whether a field counts parts, by its name."""
    return any(word in name for word in PART_WORDS) and not any(word in name for word in OTHER_WORDS)

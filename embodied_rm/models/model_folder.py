"""Checks of a folder with a released model, before a library reads it by name."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embodied_rm.checkpoint_io import check_regular_files, read_bytes
from embodied_rm.errors import CheckpointError
from embodied_rm.models.load_pretrained import checkpoint_errors

CONFIG_FILE = "config.json"
MAX_PARTS = 10_000
"""Largest number of layers, labels and other parts: `transformers` lists them before it builds a network."""
PART_WORDS = ("layer", "depth", "label", "expert", "stage")  # in the names of fields that count parts


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
            queue += value.values()
            for name, count in value.items():
                is_count = isinstance(count, int | float) and any(word in str(name) for word in PART_WORDS)
                if is_count and count > MAX_PARTS:
                    raise CheckpointError(f"{source}: {name} must be at most {MAX_PARTS}, got {count:.4g}")

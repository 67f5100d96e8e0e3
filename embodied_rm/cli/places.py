"""Where commands find what other commands left: a run folder or the thing inside it, both may be named."""

from __future__ import annotations

from pathlib import Path

from embodied_rm.checkpoint_io import MANIFEST
from embodied_rm.errors import UserError

POLICY, REWARD_MODEL, DATASET = "policy", "checkpoint", "dataset"
"""Names inside a run folder."""


def checkpoint_in(folder: Path, name: str) -> Path:
    """The checkpoint `folder` itself, or the one called `name` in the run folder `folder`."""
    for candidate in (folder, folder / name):
        if (candidate / MANIFEST).is_file():
            return candidate
    raise UserError(f"no {name} found in {folder}: neither {MANIFEST} nor {name}/{MANIFEST} is there")


def dataset_in(folder: Path) -> Path:
    """The dataset `folder` itself, or the one in the run folder `folder`."""
    if not folder.is_dir():
        raise UserError(f"the dataset folder {folder} does not exist")
    return folder / DATASET if (folder / DATASET / "meta").is_dir() else folder

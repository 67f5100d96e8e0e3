"""Resolve the path of a dataset: a folder, a file, a run folder of another command, or a dataset of the hub."""

from pathlib import Path

from embodied_rm.data.hub import download_dataset, is_hub_path
from embodied_rm.errors import UserError

DATASET_DIR = "dataset"  # folder of the dataset inside a run folder


def resolve_dataset(folder: Path) -> Path:
    """Return the dataset `folder` itself (a folder or an HDF5 file), or the dataset in the run folder `folder`.

    A dataset of the Hugging Face hub (`hub:owner/name`) is downloaded.
    """
    if is_hub_path(folder):
        return download_dataset(folder)
    if not folder.exists():
        raise UserError(f"the dataset folder {folder} does not exist{hub_hint(folder)}")
    return folder / DATASET_DIR if (folder / DATASET_DIR / "meta").is_dir() else folder


def hub_hint(folder: Path, prefix: str = "") -> str:
    """Return how a path would be a dataset of the hub, after `prefix`, for the message that it does not exist."""
    is_name = len(folder.parts) == 2 and not str(folder).startswith((".", "/"))
    return f"; a dataset of the Hugging Face Hub is {prefix}hub:{folder}" if is_name else ""

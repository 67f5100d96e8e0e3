"""Resolve the path of a dataset: a folder, a file, a run folder of another command, or a dataset of the hub."""

import shutil
from pathlib import Path

from embodied_rm.data.hub import download_dataset, is_hub_path
from embodied_rm.errors import DataError, UserError
from embodied_rm.run_folder import RunFolder

DATASET_DIR = "dataset"  # folder of the dataset inside a run folder


def begin_dataset(run: RunFolder) -> Path:
    """Return the path of the dataset that a run writes, after removing what a killed session of it left.

    Raises `DataError` for a dataset that was there before the run, which then leaves no trace in its folder.
    """
    target = run.path / DATASET_DIR
    if target.exists() and not run.is_continued:
        run.discard()  # otherwise resume=true would take this dataset for one of the run
        raise DataError(f"{target}: already exists; datasets are never overwritten, choose another out=")
    for leftover in (target, *run.path.glob(f".{DATASET_DIR}.partial-*")):
        if leftover.exists():
            shutil.rmtree(leftover)
    return target


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

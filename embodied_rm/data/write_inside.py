"""Replace or remove files of a dataset, and only inside its folder."""

from __future__ import annotations

from pathlib import Path

from embodied_rm.atomic_file import write_atomic
from embodied_rm.data.issues import is_inside
from embodied_rm.errors import DataError


def write_inside(root: Path, path: Path, content: str | bytes) -> None:
    """Replace a file of the dataset `root`. A link within the dataset is kept and its target replaced.

    A path that leads out of the dataset, through its own link or that of a parent folder, raises `DataError`.
    """
    write_atomic(_resolve_inside(root, path), content)


def remove_inside(root: Path, path: Path) -> None:
    """Remove a file of the dataset `root` if it exists."""
    _resolve_inside(root, path).unlink(missing_ok=True)


def _resolve_inside(root: Path, path: Path) -> Path:
    if not is_inside(root, path):
        raise DataError(f"{path}: leads out of the dataset's folder {root}, so nothing is written there")
    return path.resolve()

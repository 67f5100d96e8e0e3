"""HDF5 files, read by a child process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from embodied_rm.data.subprocess_worker import SubprocessWorker
from embodied_rm.data.video.mp4 import check_file
from embodied_rm.errors import UserError
from embodied_rm.types import Array, Frames

MAX_EPISODE_FRAMES = 1_000_000
"""Frames of an episode; a file may claim any number of rows that nobody ever wrote."""


@dataclass(frozen=True, kw_only=True)
class Hdf5Tree:
    """What an HDF5 file holds."""

    attributes: Mapping[str, Mapping[str, Any]]
    """Group -> its attributes; "" is the root."""
    shapes: Mapping[str, tuple[int, ...]]
    """Dataset, by its full name -> shape."""
    dtypes: Mapping[str, str]
    """Dataset -> NumPy's name of what it holds, or "text"."""

    def datasets_in(self, group: str) -> tuple[str, ...]:
        """The datasets of a group, at any depth, by their names in it."""
        return tuple(name.removeprefix(f"{group}/") for name in self.shapes if name.startswith(f"{group}/"))

    def is_image_dataset(self, name: str) -> bool:
        """Whether a dataset looks like uint8 [T, H, W, 3]."""
        shape = self.shapes[name]
        return (
            self.dtypes[name] == "uint8"
            and len(shape) == 4
            and shape[3] == 3
            and min(shape) > 0
            and shape[0] <= MAX_EPISODE_FRAMES
        )


class Hdf5Reader(SubprocessWorker):
    """Reads HDF5 files in a child process. Raises `DataError` naming the file and its fault."""

    script = Path(__file__).parents[1] / "workers" / "read_hdf5.py"
    description = "HDF5 reader"

    def __init__(self) -> None:
        if find_spec("h5py") is None:
            raise UserError("HDF5 files are read by h5py, an optional package: pip install 'embodied-rm[hdf5]'")
        super().__init__()

    def read_tree(self, path: Path) -> Hdf5Tree:
        """Everything that is there, by name."""
        check_file(path, "HDF5")
        _, reply = self.request(path, "tree")
        datasets = reply["datasets"]
        return Hdf5Tree(
            attributes=reply["attributes"],
            shapes={name: tuple(item["shape"]) for name, item in datasets.items()},
            dtypes={name: item["dtype"] for name, item in datasets.items()},
        )

    def read_array(self, path: Path, dataset: str) -> Array:
        """A dataset of numbers [T, ...] as float32 [T, D]."""
        values, _ = self.request(path, "numbers", expect_array=True, dataset=dataset)
        assert values is not None
        return values

    def read_images(
        self, path: Path, dataset: str, frame_indices: npt.ArrayLike, size: tuple[int, int] | None = None
    ) -> Frames:
        """Some rows of a dataset of images, uint8 [T, H, W, 3], resized to (height, width)."""
        rows = np.asarray(frame_indices).astype(int).tolist()
        frames, _ = self.request(path, "images", expect_array=True, dataset=dataset, rows=rows, size=size)
        assert frames is not None
        return frames

    def read_string(self, path: Path, dataset: str) -> str:
        """The first of a dataset's strings."""
        _, reply = self.request(path, "text", dataset=dataset)
        return reply

"""HDF5 files, read by a child process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy.typing as npt

from embodied_rm.data.child import Child
from embodied_rm.data.video.mp4 import check_file
from embodied_rm.errors import UserError
from embodied_rm.types import Array, Frames

LONGEST = 1_000_000
"""Frames of an episode; a file may claim any number of rows that nobody ever wrote."""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """What an HDF5 file holds."""

    attributes: Mapping[str, Mapping[str, Any]]
    """Group -> its attributes; "" is the root."""
    shapes: Mapping[str, tuple[int, ...]]
    """Dataset, by its full name -> shape."""
    kinds: Mapping[str, str]
    """Dataset -> NumPy's name of what it holds, or "text"."""

    def within(self, group: str) -> tuple[str, ...]:
        """The datasets of a group, at any depth, by their names in it."""
        return tuple(name.removeprefix(f"{group}/") for name in self.shapes if name.startswith(f"{group}/"))

    def pictures(self, name: str) -> bool:
        """Whether a dataset looks like uint8 [T, H, W, 3]."""
        shape = self.shapes[name]
        return (
            self.kinds[name] == "uint8" and len(shape) == 4 and shape[3] == 3 and min(shape) > 0 and shape[0] <= LONGEST
        )


class Hdf5(Child):
    """Reads HDF5 files in a child process. Raises `DataError` naming the file and its fault."""

    worker = Path(__file__).parents[1] / "workers" / "hdf5.py"
    what = "HDF5 reader"

    def __init__(self) -> None:
        if find_spec("h5py") is None:
            raise UserError("HDF5 files are read by h5py, an optional package: pip install 'embodied-rm[hdf5]'")
        super().__init__()

    def tree(self, path: Path) -> Tree:
        """Everything that is there, by name."""
        check_file(path, "HDF5")
        _, told = self.ask(path, "tree")
        datasets = told["datasets"]
        return Tree(
            attributes=told["attributes"],
            shapes={name: tuple(item["shape"]) for name, item in datasets.items()},
            kinds={name: item["dtype"] for name, item in datasets.items()},
        )

    def numbers(self, path: Path, dataset: str) -> Array:
        """A dataset of numbers [T, ...] as float32 [T, D]."""
        values, _ = self.ask(path, "numbers", numbers=True, dataset=dataset)
        assert values is not None
        return values

    def pictures(self, path: Path, dataset: str, rows: npt.ArrayLike, size: tuple[int, int] | None = None) -> Frames:
        """Some rows of a dataset of pictures, uint8 [T, H, W, 3], resized to (height, width)."""
        frames, _ = self.ask(path, "pictures", numbers=True, dataset=dataset, rows=list(map(int, rows)), size=size)  # type: ignore[arg-type]
        assert frames is not None
        return frames

    def text(self, path: Path, dataset: str) -> str:
        """The first of a dataset's strings."""
        _, told = self.ask(path, "text", dataset=dataset)
        return told

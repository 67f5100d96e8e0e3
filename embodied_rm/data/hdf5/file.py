"""HDF5 files, read in a child process."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from embodied_rm.data.dataset_files import check_file, parse_json
from embodied_rm.data.source import MAX_EPISODE_FRAMES
from embodied_rm.data.subprocess_worker import SubprocessWorker
from embodied_rm.errors import DataError, UserError
from embodied_rm.types import Array, Frames


@dataclass(frozen=True, kw_only=True)
class Hdf5Tree:
    """Names, shapes and attributes in an HDF5 file."""

    attributes: Mapping[str, Mapping[str, Any]]
    """Group -> its attributes that are numbers or texts; "" is the root. None: a long text. Long JSON lacks entries."""
    shapes: Mapping[str, tuple[int, ...]]  # full name of a dataset -> its shape
    dtypes: Mapping[str, str]  # full name of a dataset -> its NumPy dtype, or "text"
    unwritten: frozenset[str]  # full names of datasets whose values the file states and does not hold

    def datasets_in(self, group: str) -> tuple[str, ...]:
        """Return the datasets of a group at any depth, by their names relative to the group."""
        return tuple(self._names_by_group[group])

    @cached_property
    def _names_by_group(self) -> Mapping[str, list[str]]:
        """Group -> names of its datasets relative to it: a search per demonstration takes long in a large file."""
        names_by_group = defaultdict[str, list[str]](list)
        for name in self.shapes:
            for position in (index for index, char in enumerate(name) if char == "/"):
                names_by_group[name[:position]].append(name[position + 1 :])
        return names_by_group

    def read_json(self, group: str, attribute: str) -> dict[str, Any] | None:
        """Return a JSON attribute of a group; {} if it is not stored, None if it is not an object."""
        try:
            content = parse_json(self.attributes.get(group, {}).get(attribute, "{}"))
        except (ValueError, TypeError):
            return None
        return content if isinstance(content, dict) else None

    def is_image_dataset(self, name: str) -> bool:
        """Whether a dataset is uint8 [T, H, W, 3]."""
        shape = self.shapes[name]
        is_rgb = self.dtypes[name] == "uint8" and len(shape) == 4 and shape[3] == 3
        return is_rgb and min(shape) > 0 and shape[0] <= MAX_EPISODE_FRAMES

    def check_written(self, names: Iterable[str], source: str) -> None:
        """Raise `DataError` for a dataset with rows that nobody wrote, as a recorder leaves that ended early."""
        for name in names:
            if name in self.unwritten:
                raise DataError(f"{source}: {name} has {self.shapes[name][0]} rows, and not all of them were written")


class Hdf5Reader(SubprocessWorker):
    """Reads HDF5 files in a child process. All methods raise `DataError` naming the file and the issue."""

    script = Path(__file__).parents[1] / "workers" / "read_hdf5.py"
    description = "HDF5 reader"

    def __init__(self) -> None:
        if find_spec("h5py") is None:
            raise UserError("HDF5 files are read by h5py, an optional package: pip install 'embodied-rm[hdf5]'")
        super().__init__()

    def read_tree(self, path: Path) -> Hdf5Tree:
        """Read all names, shapes and attributes."""
        check_file(path, "HDF5")
        _, reply = self.request(path, "tree")
        shapes = {name: tuple(item["shape"]) for name, item in reply["datasets"].items()}
        dtypes = {name: item["dtype"] for name, item in reply["datasets"].items()}
        unwritten = frozenset(name for name, item in reply["datasets"].items() if not item["is_written"])
        return Hdf5Tree(attributes=reply["attributes"], shapes=shapes, dtypes=dtypes, unwritten=unwritten)

    def read_array(self, path: Path, dataset: str) -> Array:
        """Read a numeric dataset [T, ...] as float32 [T, D], or one number as [1, 1]."""
        values, _ = self.request(path, "array", expect_array=True, dataset=dataset)
        assert values is not None
        return values

    def read_images(
        self, path: Path, dataset: str, frame_indices: npt.ArrayLike, size: tuple[int, int] | None = None
    ) -> Frames:
        """Read some rows of an image dataset as uint8 [T, H, W, 3], resized to (height, width)."""
        rows = np.asarray(frame_indices).astype(int).tolist()
        frames, _ = self.request(path, "images", expect_array=True, dataset=dataset, rows=rows, size=size)
        assert frames is not None
        return frames

    def read_texts(self, path: Path, dataset: str) -> list[str]:
        """Read a dataset of texts, one per run of equal ones."""
        _, reply = self.request(path, "texts", dataset=dataset)
        return reply

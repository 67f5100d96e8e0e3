"""Success that HDF5 files state: an attribute of an episode (Isaac Lab), or a dataset whose last row decides."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from embodied_rm.data.hdf5.file import Hdf5Reader, Hdf5Tree
from embodied_rm.data.lerobot.success_columns import parse_success
from embodied_rm.errors import DataError

SUCCESS_ATTRIBUTES = ("success", "is_success")
SUCCESS_DATASETS = ("success", "is_success", "infos/success", "infos/is_success")
"""Names in the order in which they are looked for."""


def read_stated_success(reader: Hdf5Reader, path: Path, tree: Hdf5Tree, group: str) -> bool | None:
    """Return the success that the group of an episode states, None if it states none.

    Raises:
        DataError: A value is neither true nor false nor unknown.
    """
    for source, value in iterate_values(reader, path, tree, group):
        try:
            success = parse_success(value)
        except ValueError as error:
            raise DataError(f"{path}: {source} of {group} is {error}") from None
        if success is not None:
            return success
    return None


def iterate_values(reader: Hdf5Reader, path: Path, tree: Hdf5Tree, group: str) -> Iterator[tuple[str, Any]]:
    """Yield where the group of an episode may state a success, and the value; a dataset is read when it is its turn."""
    attributes = tree.attributes.get(group, {})
    yield from ((f"the attribute {name}", attributes[name]) for name in SUCCESS_ATTRIBUTES if name in attributes)
    for key in SUCCESS_DATASETS:
        rows, *columns = tree.shapes.get(f"{group}/{key}", (0,)) or (0,)
        if rows and columns in ([], [1]) and tree.dtypes[f"{group}/{key}"] != "text":
            yield f"the last row of {key}", float(reader.read_array(path, f"{group}/{key}")[-1, 0])

"""Success that HDF5 files state: an attribute of an episode (Isaac Lab), or a dataset whose last row decides."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from embodied_rm.data.hdf5.file import Hdf5Reader, Hdf5Tree
from embodied_rm.data.lerobot.success_columns import SUCCESS_COLUMNS, describe_unread_success, last_success
from embodied_rm.errors import DataError

SUCCESS_DATASETS = tuple(f"{folder}{name}" for folder in ("", "infos/") for name in SUCCESS_COLUMNS)
"""Names in the order in which they are looked for, after the attributes of these names."""


def read_stated_success(reader: Hdf5Reader, path: Path, tree: Hdf5Tree, group: str) -> bool | None:
    """Return the success that the group of an episode states, None if it states none.

    Raises:
        DataError: A value is neither true nor false nor unknown.
    """
    for source, values in iterate_values(reader, path, tree, group):
        try:
            success = last_success(values)
        except ValueError as error:
            raise DataError(f"{path}: {source} of {group} is {error}") from None
        if success is not None:
            return success
    return None


def iterate_values(reader: Hdf5Reader, path: Path, tree: Hdf5Tree, group: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield where the group of an episode may state a success, and the values; a dataset is read when it is its turn.

    Of a text, the runs of equal rows are one value.
    """
    attributes = tree.attributes.get(group, {})
    yield from ((f"the attribute {name}", [attributes[name]]) for name in SUCCESS_COLUMNS if name in attributes)
    for key in SUCCESS_DATASETS:
        name = f"{group}/{key}"
        if name in tree.shapes and is_read(tree, name) and 0 not in tree.shapes[name]:
            is_text = tree.dtypes[name] == "text"
            values = reader.read_texts(path, name) if is_text else reader.read_array(path, name)[:, 0].tolist()
            yield f"a row of {key}", values


def is_read(tree: Hdf5Tree, name: str) -> bool:
    """Whether a dataset has one value, or one per row."""
    return tree.shapes[name][1:] in ((), (1,))


def find_unread_success(tree: Hdf5Tree, group: str) -> Iterator[str]:
    """Yield a clause on what seems to state a success in the group of an episode and is not read."""
    for key in SUCCESS_DATASETS:
        name = f"{group}/{key}"
        if name in tree.shapes and not is_read(tree, name):
            yield f"{key} has rows of {list(tree.shapes[name][1:])}: not read, one value was expected"
    others = [key for key in tree.datasets_in(group) if not tree.is_image_dataset(f"{group}/{key}")]
    if clause := describe_unread_success({*tree.attributes.get(group, {}), *others} - {*SUCCESS_DATASETS}):
        yield clause

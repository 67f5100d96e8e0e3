"""Images in HDF5 files that are no views, as they are not uint8 [T, H, W, 3]: channels first, floats, gray or JPEG."""

from collections.abc import Iterable, Iterator

from embodied_rm.data.hdf5.file import Hdf5Tree

IMAGE_SUFFIXES = ("_image", "_rgb")
"""Suffixes of the names of cameras in robomimic and LIBERO."""
DEPTH = "depth"
"""Part of the names of depth maps, which are not read in any layout."""
CHANNEL_COUNTS = (1, 3, 4)
MIN_SIDE_PIXELS = 16  # height and width from which an array counts as an image: a pose is a matrix, too
ANY_LENGTH = "object"  # type of rows of any length, as encoded images are


def find_unread_images(tree: Hdf5Tree, group: str, keys: Iterable[str]) -> Iterator[str]:
    """Yield a clause per dataset of the group of an episode, among these, that seems to hold images and is no view."""
    for key in keys:
        name = f"{group}/{key}"
        if (
            not tree.is_image_dataset(name)
            and DEPTH not in key
            and seems_image(key, tree.shapes[name], tree.dtypes[name])
        ):
            rows = ", ".join(map(str, ("T", *tree.shapes[name][1:])))
            yield f"{key} holds {tree.dtypes[name]} [{rows}]: left out, uint8 [T, H, W, 3] was expected"


def seems_image(key: str, shape: tuple[int, ...], dtype: str) -> bool:
    """Return whether a dataset seems to hold images, by its name, its shape or its type."""
    if key.endswith(IMAGE_SUFFIXES) or dtype == ANY_LENGTH:
        return True
    if len(shape) == 3:
        return dtype == "uint8" and min(shape[1:]) >= MIN_SIDE_PIXELS
    is_last = len(shape) > 3 and shape[-1] in CHANNEL_COUNTS and min(shape[-3:-1]) >= MIN_SIDE_PIXELS
    is_first = len(shape) > 3 and shape[-3] in CHANNEL_COUNTS and min(shape[-2:]) >= MIN_SIDE_PIXELS
    return is_last or is_first

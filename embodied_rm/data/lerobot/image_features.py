"""Views that are stored as encoded images in the data files, and features that have no images at all."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embodied_rm.data.dataset_files import is_inside
from embodied_rm.data.issues import DataIssue
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.episode_index import EpisodeIndexRow
from embodied_rm.data.lerobot.parquet import read_footer
from embodied_rm.data.lerobot.video_check import check_size
from embodied_rm.data.source import ImageSize
from embodied_rm.data.subprocess_worker import SubprocessWorker
from embodied_rm.errors import DataError
from embodied_rm.types import Frames, IntArray


class ImageReader(SubprocessWorker):
    """Reads encoded images in the parquet files of a dataset in a child process, some rows at a time."""

    script = Path(__file__).parents[1] / "workers" / "read_images.py"
    description = "image decoder"

    def image_size(self, root: Path, path: Path, column: str, rows: Sequence[int]) -> ImageSize:
        """Decode the images of some rows of a file in the dataset `root`; return their size, which must be the same."""
        _, (height, width) = self.request(path, "size", root=str(root.absolute()), column=column, rows=list(rows))
        return height, width

    def is_depth(self, root: Path, path: Path, column: str) -> bool:
        """Return whether the first image of a file in the dataset `root` is a depth map; no pixel is decoded."""
        _, found = self.request(path, "is_depth", root=str(root.absolute()), column=column, rows=[0])
        return bool(found)

    def read(self, root: Path, path: Path, column: str, rows: IntArray, size: ImageSize | None) -> Frames:
        """Read the images of some rows of a file in the dataset `root` as uint8 [T, H, W, 3].

        They are resized to (height, width) unless None, which requires images of equal size.
        """
        fields = {"root": str(root.absolute()), "column": column, "rows": rows.tolist(), "size": size}
        frames, _ = self.request(path, "images", expect_array=True, **fields)
        assert frames is not None
        return frames


def find_views(root: Path, features: Mapping[str, Any], reader: ImageReader) -> tuple[dict[str, str], list[DataIssue]]:
    """Return view name -> feature with images, and an issue per feature without; `DataError` if there is none."""
    listed = fmt.view_features(features)
    if not listed:
        raise DataError(f"{root}: the dataset has no videos and no images; features: {', '.join(features)}")
    file, columns = find_data_file(root)
    reasons = {}
    for view, key in listed.items():
        dtype = features[key]["dtype"]
        if not (fmt.has_videos(root, key) if dtype == fmt.VIDEO else key in columns):
            reasons[view] = f"lists {key}, which has no {dtype}s: left out"
        elif dtype == fmt.IMAGE and file is not None and _holds_depth(root, file, key, reader):
            reasons[view] = f"lists {key}, whose images are depth maps: left out"
    if len(reasons) == len(listed):
        return listed, []  # what each view lacks is reported with the episodes
    issues = [DataIssue(file=root / fmt.INFO_PATH, message=message, episodes=()) for message in reasons.values()]
    return {view: key for view, key in listed.items() if view not in reasons}, issues


def find_data_file(root: Path) -> tuple[Path | None, list[str]]:
    """Return the first data file that can be read and has rows, and its columns."""
    for path in sorted((root / "data").glob("chunk-*/*.parquet")):
        try:
            footer = read_footer(path)
        except DataError:
            continue  # reported with the episodes of the file
        if footer.num_rows:
            return path, footer.schema.to_arrow_schema().names
    return None, []


def _holds_depth(root: Path, path: Path, key: str, reader: ImageReader) -> bool:
    """Whether a feature that is not marked as one of depth maps holds them, so that no episode can be read with it."""
    try:
        return is_inside(root, path) and reader.is_depth(root, path, key)
    except DataError:
        return False  # `check_images` reports a damaged image


def check_images(
    root: Path,
    path: Path,
    key: str,
    feature: Mapping[str, Any],
    rows: Sequence[tuple[EpisodeIndexRow, int]],
    reader: ImageReader,
) -> list[DataIssue]:
    """Decode the first and the last image of each episode in a data file.

    Args:
        root: Folder of the dataset.
        path: The data file.
        key: Feature of the images.
        feature: Its entry in `info.json`.
        rows: Episodes and their first rows in the file.
        reader: Decodes the images.
    """
    issues = []
    for row, first in rows:
        try:
            edges = sorted({first, first + row.meta.length - 1})
            check_size(path, reader.image_size(root, path, key, edges), fmt.stated_size(feature))
        except DataError as error:
            issues.append(DataIssue.from_error(error, (row.meta.name,), path))
    return issues

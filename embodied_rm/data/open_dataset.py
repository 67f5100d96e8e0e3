"""Open a dataset of any layout; the layout is detected from the files."""

import shlex
from pathlib import Path

from embodied_rm.data.annotation import AnnotationStore
from embodied_rm.data.base_dataset import BaseDataset
from embodied_rm.data.concat import ConcatDataset
from embodied_rm.data.feature_map import DEFAULT_FEATURE_MAP, FeatureMap
from embodied_rm.data.issues import summarize_issues
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.annotations import LeRobotAnnotationStore
from embodied_rm.data.lerobot.frame_columns import lists_blank_task
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.orientation import check_views
from embodied_rm.data.readers import READERS, check_no_instruction, find_plain_recordings, register_dataset_reader
from embodied_rm.data.recordings.recording import (
    INSTRUCTION_FILE,
    VIDEO_SUFFIXES,
    find_unread_videos,
    find_videos,
)
from embodied_rm.data.recordings.recording_dataset import RecordingDataset
from embodied_rm.data.recordings.table import CSV_TABLE, JSON_TABLE
from embodied_rm.data.recordings.write_folder import FolderAnnotationStore
from embodied_rm.data.recordings.write_table import TableAnnotationStore
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError
from embodied_rm.plugins import load_plugins


def open_dataset(
    path: Path | str, instruction: str | None = None, feature_map: FeatureMap = DEFAULT_FEATURE_MAP
) -> EpisodeSource:
    """Open the episodes under a path, with the first registered reader that knows their layout.

    Args:
        path: Folder or file.
        instruction: Replaces the stored instruction of plain recordings and HDF5 files; other layouts reject it.
        feature_map: Views and columns to read, and their names.

    Returns:
        The readable episodes; `issues` lists the excluded ones.

    Raises:
        DataError: The layout is unknown, or no episode can be read. The message names the file and the issue.
    """
    path = Path(path)
    load_plugins("embodied_rm.dataset_readers")
    for reader in READERS.values():
        source = reader.open(path, instruction, feature_map)
        if source is not None:
            check_views(feature_map.orientation, source.views, path)
            if isinstance(source, BaseDataset):
                source.orientations = {**source.orientations, **feature_map.orientation}
            return source
    if not path.is_dir():
        reason = "is neither a folder nor a file of a known format" if path.exists() else "no such folder"
        raise DataError(f"{path}: {reason}")
    if unread := find_unread_videos(path):
        raise DataError(f"{path}: holds no episodes: {summarize_issues(unread)}")
    expected = ", nor ".join(reader.layout for reader in READERS.values())
    raise DataError(f"{path}: holds no episodes: neither {expected}")


@register_dataset_reader("concat", layout=f"<dataset>/{fmt.INFO_PATH} (several LeRobot datasets)")
def open_concat(path: Path, instruction: str | None, feature_map: FeatureMap) -> EpisodeSource | None:
    """Open several LeRobot datasets in one folder."""
    datasets = {folder: instruction if lists_blank_task(folder) else None for folder in find_lerobot_folders(path)}
    if not datasets:
        return None
    if not any(datasets.values()):
        check_no_instruction(path, instruction)
    return ConcatDataset(
        {folder.name: open_dataset(folder, text, feature_map) for folder, text in datasets.items()}, path
    )


def find_lerobot_folders(path: Path) -> list[Path]:
    """Return the LeRobot datasets in a folder."""
    return sorted(info.parents[1] for info in path.glob(f"[!.]*/{fmt.INFO_PATH}"))


def lacks_instruction(path: Path) -> bool:
    """Return whether a path is a video file, a recording or a folder of recordings, without an instruction near it.

    `open_dataset` needs an instruction for such a path, and for episodes of a LeRobot dataset with a blank task.
    """
    if (path / fmt.INFO_PATH).exists():
        return lists_blank_task(path)
    if any((path / name).exists() for name in (JSON_TABLE, CSV_TABLE)):
        return False
    folder = path.parent if path.suffix.lower() in VIDEO_SUFFIXES else path
    is_recording = folder != path or bool(find_videos(path) or find_plain_recordings(path))
    if not is_recording:
        return any(map(lists_blank_task, find_lerobot_folders(path)))
    near = (folder, folder.absolute().parent, *(child for child in path.glob("*") if child.is_dir()))
    return not any((place / INSTRUCTION_FILE).exists() for place in near)


def open_annotations(path: Path | str, source: EpisodeSource) -> AnnotationStore:
    """Open the annotations of a source that `open_dataset` opened from `path`; `DataError` if it cannot store any."""
    path = Path(path)
    try:
        if isinstance(source, LeRobotDataset):
            return LeRobotAnnotationStore(path, [meta.index_in_dataset(row) for row, meta in enumerate(source.meta)])
        if isinstance(source, ConcatDataset):
            raise DataError(f"{path}: holds several datasets, name one of them")
        if not isinstance(source, RecordingDataset):
            raise DataError(f"{path}: HDF5 files are read-only")
    except DataError as error:
        command = f"embodied-rm convert {shlex.quote(f'data={path}')}"
        hint = f"so it cannot be annotated; `{command}` writes a dataset that can"
        raise DataError(f"{error}, {hint}") from None
    if any((path / table).exists() for table in (JSON_TABLE, CSV_TABLE)):
        return TableAnnotationStore(path, [meta.name for meta in source.meta])
    folders = [path if find_videos(path) else path / meta.name for meta in source.meta]
    return FolderAnnotationStore(path, folders, [meta.length for meta in source.meta])

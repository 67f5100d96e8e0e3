"""Open a dataset of any layout; the layout is detected from the files."""

from __future__ import annotations

from pathlib import Path

from embodied_rm.data.annotation import AnnotationStore
from embodied_rm.data.concat import ConcatDataset
from embodied_rm.data.feature_map import DEFAULT_FEATURE_MAP, FeatureMap
from embodied_rm.data.hdf5.minari import MINARI_FILE, find_minari_file, open_minari
from embodied_rm.data.hdf5.robomimic import open_robomimic
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.annotations import LeRobotAnnotationStore
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.recordings.folder import find_recording, find_recordings
from embodied_rm.data.recordings.recording_dataset import Mp4Dataset
from embodied_rm.data.recordings.table import CSV_TABLE, JSON_TABLE, read_table
from embodied_rm.data.recordings.write_folder import FolderAnnotationStore
from embodied_rm.data.recordings.write_table import TableAnnotationStore
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError

HDF5_SUFFIXES = (".hdf5", ".h5")


def open_dataset(
    path: Path | str, instruction: str | None = None, feature_map: FeatureMap = DEFAULT_FEATURE_MAP
) -> EpisodeSource:
    """Open the episodes under a path.

    Args:
        path: Folder or HDF5 file.
        instruction: Replaces the stored instruction of plain recordings and HDF5 files; other layouts reject it.
        feature_map: Views and columns to read, and their names.

    Returns:
        The readable episodes; `issues` lists the excluded ones.

    Raises:
        DataError: The layout is unknown, or no episode can be read. The message names the file and the issue.
    """
    path = Path(path)
    if path.suffix in HDF5_SUFFIXES and path.is_file():
        return open_robomimic([path], path, instruction, feature_map)
    if not path.is_dir():
        reason = "is neither a folder nor an HDF5 file" if path.exists() else "no such folder"
        raise DataError(f"{path}: {reason}")
    if (minari := find_minari_file(path)) is not None:
        return open_minari(minari, instruction, feature_map)
    tables = [table for table in (JSON_TABLE, CSV_TABLE) if (path / table).exists()]
    if (path / fmt.INFO_PATH).exists() or tables:
        if instruction is not None:
            raise DataError(f"{path}: the dataset has its own instructions; got {instruction!r} as well")
        return LeRobotDataset(path, feature_map) if not tables else _open_table(path, feature_map)
    if any(path.glob("*.mp4")):
        return Mp4Dataset([find_recording(path, instruction)], feature_map, path=path)
    folders = sorted({video.parent for video in path.glob("*/*.mp4")})
    if folders:
        recordings, issues = find_recordings(folders, instruction)
        return Mp4Dataset(recordings, feature_map, issues, path)
    files = sorted(file for file in path.iterdir() if file.suffix in HDF5_SUFFIXES)
    if files:
        return open_robomimic(files, path, instruction, feature_map)
    datasets = sorted(info.parents[1] for info in path.glob(f"[!.]*/{fmt.INFO_PATH}"))
    if datasets:
        return ConcatDataset({folder.name: open_dataset(folder, instruction, feature_map) for folder in datasets}, path)
    raise DataError(
        f"{path}: holds no episodes: neither {fmt.INFO_PATH} (a LeRobot dataset), nor {JSON_TABLE} or {CSV_TABLE} "
        f"(a table of recordings), nor <view>.mp4 (a recording), nor <episode>/<view>.mp4 (several recordings), nor "
        f"*.hdf5 (robomimic), nor {MINARI_FILE} (Minari), nor <dataset>/{fmt.INFO_PATH} (several LeRobot datasets)"
    )


def _open_table(path: Path, feature_map: FeatureMap) -> Mp4Dataset:
    recordings, issues = read_table(path)
    return Mp4Dataset(recordings, feature_map, issues, path)


def open_annotations(path: Path | str, source: EpisodeSource) -> AnnotationStore:
    """Open the annotations of a source that `open_dataset` opened from `path`.

    Raises:
        DataError: The layout cannot store annotations, or is read-only.
    """
    path = Path(path)
    try:
        if isinstance(source, LeRobotDataset):
            return LeRobotAnnotationStore(
                path,
                [index if meta.episode_index is None else meta.episode_index for index, meta in enumerate(source.meta)],
            )
        if isinstance(source, ConcatDataset):
            raise DataError(f"{path}: holds several datasets, name one of them")
        if not isinstance(source, Mp4Dataset):
            raise DataError(f"{path}: HDF5 files are read-only")
    except DataError as error:
        raise DataError(
            f"{error}, so it cannot be annotated; `embodied-rm convert data={path}` writes a dataset that can"
        ) from None
    if any((path / table).exists() for table in (JSON_TABLE, CSV_TABLE)):
        return TableAnnotationStore(path, [meta.name for meta in source.meta])
    single_recording = any(path.glob("*.mp4"))
    folders = [path if single_recording else path / meta.name for meta in source.meta]
    return FolderAnnotationStore(path, folders, [meta.length for meta in source.meta])

"""Dataset readers by layout: the extension point for datasets, and the built-in readers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.hdf5.minari import MINARI_FILE, find_minari_file, open_minari
from embodied_rm.data.hdf5.robomimic import open_robomimic
from embodied_rm.data.issues import DataIssue, list_names
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.frame_columns import lists_blank_task
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.recordings.recording import (
    OTHER_VIDEO_SUFFIXES,
    VIDEO_SUFFIXES,
    find_recording,
    find_recording_folders,
    find_recordings,
    find_unread_videos,
    find_videos,
    video_recording,
)
from embodied_rm.data.recordings.recording_dataset import RecordingDataset
from embodied_rm.data.recordings.table import CSV_TABLE, JSON_TABLE, read_table
from embodied_rm.data.source import EpisodeSource
from embodied_rm.data.video.containers import check_video
from embodied_rm.errors import DataError

HDF5_SUFFIXES = (".hdf5", ".h5")
OpenFn = Callable[[Path, str | None, FeatureMap], EpisodeSource | None]
"""(path, instruction, feature map) -> the episodes; None where the path has another layout."""


@dataclass(frozen=True, kw_only=True)
class DatasetReader:
    """Opens one layout."""

    open: OpenFn
    layout: str  # what the reader looks for, for the message when no reader knows a folder


READERS: dict[str, DatasetReader] = {}  # name -> reader, in the order in which they are tried


def register_dataset_reader(name: str, *, layout: str) -> Callable[[OpenFn], OpenFn]:
    """Return a decorator that registers a reader, so that `data=` and `open_dataset` know its layout.

    Args:
        name: Name of the reader.
        layout: What the reader looks for, such as "episodes.zarr (our robot)".

    Raises:
        ValueError: A reader of that name exists.
    """

    def register(open_fn: OpenFn) -> OpenFn:
        if name in READERS:
            raise ValueError(f"the dataset reader {name!r} is registered already")
        READERS[name] = DatasetReader(open=open_fn, layout=layout)
        return open_fn

    return register


@register_dataset_reader("minari", layout=f"{MINARI_FILE} (Minari)")
def _open_minari(path: Path, instruction: str | None, feature_map: FeatureMap) -> EpisodeSource | None:
    file = find_minari_file(path) if path.is_dir() else None
    return None if file is None else open_minari(file, instruction, feature_map)


@register_dataset_reader("table", layout=f"{JSON_TABLE} or {CSV_TABLE} (a table of recordings)")
def _open_table(path: Path, instruction: str | None, feature_map: FeatureMap) -> EpisodeSource | None:
    if not any((path / table).exists() for table in (JSON_TABLE, CSV_TABLE)):
        return None
    check_no_instruction(path, instruction)
    recordings, issues = read_table(path)
    return RecordingDataset(recordings, feature_map, issues, path)


@register_dataset_reader("lerobot", layout=f"{fmt.INFO_PATH} (a LeRobot dataset)")
def _open_lerobot(path: Path, instruction: str | None, feature_map: FeatureMap) -> EpisodeSource | None:
    if not (path / fmt.INFO_PATH).exists():
        return None
    if not lists_blank_task(path):
        check_no_instruction(path, instruction)
    return LeRobotDataset(path, feature_map, instruction)


@register_dataset_reader("video", layout="a video file")
def _open_video(path: Path, instruction: str | None, feature_map: FeatureMap) -> EpisodeSource | None:
    if path.suffix.lower() not in (*VIDEO_SUFFIXES, *OTHER_VIDEO_SUFFIXES) or not path.is_file():
        return None
    check_video(path)  # before an instruction is asked for
    return RecordingDataset([video_recording(path, instruction)], feature_map, path=path)


@register_dataset_reader("recording", layout="<view>.mp4 (a recording)")
def _open_recording(path: Path, instruction: str | None, feature_map: FeatureMap) -> EpisodeSource | None:
    if not find_videos(path):
        return None
    issues = [*find_unread_videos(path), *find_hidden_demonstrations(path)]
    if folders := find_recording_folders(path):
        message = f"is read as one recording, so those in its folders are not: {list_names([f.name for f in folders])}"
        issues.append(DataIssue(file=path, message=message, episodes=()))
    return RecordingDataset([find_recording(path, instruction)], feature_map, issues, path)


@register_dataset_reader("recordings", layout="<episode>/<view>.mp4 (several recordings)")
def _open_recordings(path: Path, instruction: str | None, feature_map: FeatureMap) -> EpisodeSource | None:
    folders = find_plain_recordings(path)
    if not folders:
        return None
    recordings, issues = find_recordings(folders, instruction)
    issues += [*find_unread_videos(path), *find_hidden_demonstrations(path)]
    return RecordingDataset(recordings, feature_map, issues, path)


@register_dataset_reader("robomimic", layout="*.hdf5 (robomimic)")
def _open_robomimic(path: Path, instruction: str | None, feature_map: FeatureMap) -> EpisodeSource | None:
    files = find_hdf5_files(path)
    return open_robomimic(files, path, instruction, feature_map) if files else None


def find_hdf5_files(path: Path) -> list[Path]:
    """Return the HDF5 files in a folder, without the dot files that some systems write beside each file; or a file."""
    files = [path] if path.is_file() else sorted(path.glob("[!.]*"))
    return [file for file in files if file.suffix.lower() in HDF5_SUFFIXES]


def find_hidden_demonstrations(path: Path) -> list[DataIssue]:
    """Return an issue for the HDF5 files in a folder that is read for its videos: one may show their demonstrations."""
    if not (files := find_hdf5_files(path)):
        return []
    names = list_names([file.name for file in files])
    message = f"is read for its videos, so its HDF5 files are not: {names}; the path of one reads it"
    return [DataIssue(file=path, message=message, episodes=())]


def find_plain_recordings(path: Path) -> list[Path]:
    """Return the folders in a folder that hold videos; a LeRobot dataset may hold some of its own beside its files."""
    return [folder for folder in find_recording_folders(path) if not (folder / fmt.INFO_PATH).exists()]


def check_no_instruction(path: Path, instruction: str | None) -> None:
    """Raise `DataError` for an instruction beside those of a dataset."""
    if instruction is not None:
        raise DataError(f"{path}: the dataset has its own instructions; got {instruction!r} as well")

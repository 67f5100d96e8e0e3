"""The files and annotations of one recorded trial, and trials in folders: a video per view, JSON files next to them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from embodied_rm.data.dataset_files import read_json
from embodied_rm.data.frame_numbers import parse_frame
from embodied_rm.data.issues import DataIssue
from embodied_rm.data.lerobot.success_columns import SUCCESS_COLUMNS, describe_unread_success, parse_success
from embodied_rm.data.source import check_subtasks
from embodied_rm.data.video.containers import conversion_command
from embodied_rm.errors import DataError, UserError
from embodied_rm.types import Subtask

ANNOTATION_FILE = "annotated_keyframes.json"  # the subtasks, see `read_subtasks`
SUCCESS_FILE = "success.json"  # the outcome: {"success": true} or false, or another name; unknown without the file
VIDEO_SUFFIXES = (".mp4", ".mov", ".m4v", ".3gp", ".webm", ".mkv", ".avi", ".gif")
"""In lower case: of videos that are read, see `video.containers`."""
OTHER_VIDEO_SUFFIXES = (".wmv", ".asf", ".flv", ".f4v", ".mpg", ".mpeg", ".ts", ".mts", ".m2ts", ".ogv", ".vob", ".mxf")
"""In lower case: of videos that must be converted first."""
VIDEO_VIEW = "video"  # view name of a single video file
INSTRUCTION_FILE = "task_instruction.json"
"""List of phrasings of the instruction, in the recording's folder or its parent; the first one is used."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One recorded trial."""

    name: str
    videos: Mapping[str, Path]  # view name -> video
    instruction: str
    subtasks: Path | tuple[Subtask, ...] = ()
    """Annotated subtasks, or their file (see `read_subtasks`); empty without annotation."""
    success: bool | None = None
    episode_index: int | None = None  # see `EpisodeMeta.episode_index`
    metadata: Mapping[str, str] | None = None  # see `EpisodeMeta.metadata`


def read_subtasks(path: Path, length: int) -> tuple[Subtask, ...]:
    """Read subtasks from a list of {"annotation" (or "anotation"), "start_frame_id", "end_frame_id" (excluded)}."""
    subtasks: list[Subtask] = []
    for i, entry in enumerate(read_json(path, "JSON", list)):
        name_key = "annotation" if isinstance(entry, dict) and "annotation" in entry else "anotation"
        try:
            subtasks.append(parse_subtask(entry, (name_key, "start_frame_id", "end_frame_id"), "it"))
        except DataError as error:
            raise DataError(f"{path}: entry {i}: {error}") from None
    check_subtasks(subtasks, length, path)
    return tuple(subtasks)


def parse_subtask(entry: Any, keys: tuple[str, str, str], subject: str) -> Subtask:
    """Parse an entry with a name, a first frame and an end under these keys; tables of text state numbers as texts.

    A `DataError` holds only a clause with the issue; `subject` is that of its sentence.
    """
    try:
        name, start, end = (entry[key] for key in keys)
        frames = [int(value) if isinstance(value, str) else parse_frame(value) for value in (start, end)]
        return Subtask(name=str(name), start=frames[0], end=frames[1])
    except UserError as error:
        raise DataError(str(error)) from None
    except (KeyError, TypeError) as error:
        raise DataError(f"{subject} lacks or misstates {error}") from None
    except ValueError as error:
        raise DataError(f"{subject} lacks or misstates a frame number ({error})") from None


def find_videos(folder: Path) -> list[Path]:
    """Return the video files of a folder that are read, sorted."""
    return [path for path in _list_folder(folder) if path.suffix.lower() in VIDEO_SUFFIXES]


def find_other_videos(folder: Path) -> list[Path]:
    """Return the video files of a folder that must be converted first, sorted."""
    return [path for path in _list_folder(folder) if path.suffix.lower() in OTHER_VIDEO_SUFFIXES and path.is_file()]


def find_recording_folders(folder: Path) -> list[Path]:
    """Return the folders in a folder that hold videos, sorted."""
    return [child for child in _list_folder(folder) if find_videos(child)]


def find_unread_videos(folder: Path) -> list[DataIssue]:
    """Return an issue per video that must be converted first: in a recording, or of a folder of recordings.

    A folder of recordings may hold trials with such videos only, which are left out.
    """
    issues = []
    for place in (folder, *_list_folder(folder)):
        is_left_out = place != folder and not find_videos(place)
        for path in find_other_videos(place):
            message = f"videos of this format are not read; `{conversion_command(path)}` converts it"
            episodes = (place.name,) if is_left_out else ()
            issues.append(DataIssue(file=path, message=message, episodes=episodes))
    return issues


def _list_folder(folder: Path) -> list[Path]:
    """Return the sorted content of a folder without hidden files, as other systems leave beside a copy.

    What is no folder, or may not be read, holds nothing.
    """
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except (NotADirectoryError, FileNotFoundError, PermissionError):
        return []


def find_recording(folder: Path | str, instruction: str | None = None) -> Recording:
    """Return the recording in a folder: a video per view, with subtasks, success and instruction if present."""
    folder = Path(folder)
    files = find_videos(folder)
    videos = {path.stem: path for path in files}
    if twice := [path.name for path in files if videos[path.stem] != path]:
        raise DataError(f"{folder}: the view {Path(twice[0]).stem} has two videos: remove {twice[0]} or the other one")
    if not videos:
        raise DataError(f"{folder}: no videos there (one per view was expected)")
    annotation_path = folder / ANNOTATION_FILE
    return Recording(
        name=folder.absolute().name,
        videos=videos,
        instruction=_read_instruction(folder) if instruction is None else instruction,
        subtasks=annotation_path if annotation_path.exists() else (),
        success=read_success(folder),
    )


def video_recording(path: Path, instruction: str | None = None) -> Recording:
    """Return the recording that is one video file; the view is named `VIDEO_VIEW`, whatever the file is called."""
    instruction = _read_instruction(path.parent) if instruction is None else instruction
    return Recording(name=path.stem, videos={VIDEO_VIEW: path}, instruction=instruction)


def read_success(folder: Path) -> bool | None:
    """Read the outcome of the recording in a folder, under the first name in its file; None: unknown."""
    path = folder / SUCCESS_FILE
    content = read_json(path, "JSON", dict) if path.exists() else {}
    name = next((name for name in SUCCESS_COLUMNS if name in content), None)
    if name is None and (clause := describe_unread_success(content)):
        raise DataError(f"{path}: {clause}")
    try:
        return None if name is None else parse_success(content[name])
    except ValueError:
        raise DataError(f"{path}: {name} is {content[name]!r}; true or false was expected") from None


def find_recordings(folders: list[Path], instruction: str | None = None) -> tuple[list[Recording], list[DataIssue]]:
    """Return the recordings in folders, and the issues of the others."""
    recordings: list[Recording] = []
    issues: list[DataIssue] = []
    for index, folder in enumerate(folders):
        try:
            recordings.append(replace(find_recording(folder, instruction), episode_index=index))
        except DataError as error:
            issues.append(DataIssue.from_error(error, (folder.name,), folder))
    return recordings, issues


def _read_instruction(folder: Path) -> str:
    """Return the first phrasing in the instruction file of the folder or its parent."""
    for path in (folder / INSTRUCTION_FILE, folder.absolute().parent / INSTRUCTION_FILE):
        if path.exists():
            phrasings = read_json(path, "JSON", list)
            if not phrasings or not isinstance(phrasings[0], str) or not phrasings[0].strip():
                raise DataError(f"{path}: a list of sentences was expected")
            return phrasings[0]
    hint = f"give one, or put {INSTRUCTION_FILE} (a list of sentences) there or above"
    raise DataError(f"{folder}: no instruction: {hint}")

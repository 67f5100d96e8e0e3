"""Opens whatever holds episodes: a LeRobot folder, a folder of recordings, or one recording."""

from __future__ import annotations

from pathlib import Path

from embodied_rm.data.folder import Recording, Recordings
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.read import LeRobotDataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError


def open_data(path: Path | str, instruction: str | None = None) -> EpisodeSource:
    """Episodes under `path`, whichever of the three layouts it has.

    `instruction` replaces the one stored beside plain recordings; a LeRobot dataset has its own.
    Raises `DataError` naming the file and its fault, or what was looked for.
    """
    path = Path(path)
    if not path.is_dir():
        raise DataError(f"{path}: {'is a file, a folder was expected' if path.exists() else 'no such folder'}")
    if (path / fmt.INFO_PATH).exists():
        if instruction is not None:
            raise DataError(f"{path}: a LeRobot dataset has its own instructions; got {instruction!r} as well")
        return LeRobotDataset(path)
    if any(path.glob("*.mp4")):
        return Recordings([Recording.in_folder(path, instruction)])
    folders = sorted({video.parent for video in path.glob("*/*.mp4")})
    if folders:
        return Recordings([Recording.in_folder(folder, instruction) for folder in folders])
    raise DataError(
        f"{path}: holds no episodes: neither {fmt.INFO_PATH} (a LeRobot dataset), nor <view>.mp4 (a recording), "
        f"nor <episode>/<view>.mp4 (several recordings)"
    )

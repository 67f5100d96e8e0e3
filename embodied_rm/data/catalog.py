"""Opens whatever holds episodes, by what lies in the folder."""

from __future__ import annotations

from pathlib import Path

from embodied_rm.data.annotation import AnnotationStore
from embodied_rm.data.hdf5.minari import FILE, minari_file, open_minari
from embodied_rm.data.hdf5.robomimic import open_robomimic
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.annotate import LeRobotAnnotations
from embodied_rm.data.lerobot.read import LeRobotDataset
from embodied_rm.data.names import AS_STORED, Names
from embodied_rm.data.recordings.folder import in_folder, in_folders
from embodied_rm.data.recordings.read import Recordings
from embodied_rm.data.recordings.table import CSV_TABLE, JSON_TABLE, listed
from embodied_rm.data.recordings.write_folder import FolderAnnotations
from embodied_rm.data.recordings.write_table import TableAnnotations
from embodied_rm.data.several import Several
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError

HDF5 = (".hdf5", ".h5")


def open_data(path: Path | str, instruction: str | None = None, names: Names = AS_STORED) -> EpisodeSource:
    """Episodes under `path`, whichever of the layouts it has.

    `instruction` replaces the one stored beside plain recordings; other layouts have their own. `names`: which views
    and columns are read, and what they are called. Episodes with a fault are left out and told in `faults`. Raises
    `DataError` naming the file and its fault, or what was looked for.
    """
    path = Path(path)
    if path.suffix in HDF5 and path.is_file():
        return open_robomimic([path], path, instruction, names)
    if not path.is_dir():
        reason = "is no folder and no HDF5 file" if path.exists() else "no such folder"
        raise DataError(f"{path}: {reason}")
    if (minari := minari_file(path)) is not None:
        return open_minari(minari, instruction, names)
    tables = [table for table in (JSON_TABLE, CSV_TABLE) if (path / table).exists()]
    if (path / fmt.INFO_PATH).exists() or tables:
        if instruction is not None:
            raise DataError(f"{path}: the dataset has its own instructions; got {instruction!r} as well")
        return LeRobotDataset(path, names) if not tables else _listed(path, names)
    if any(path.glob("*.mp4")):
        return Recordings([in_folder(path, instruction)], names, where=path)
    folders = sorted({video.parent for video in path.glob("*/*.mp4")})
    if folders:
        found, faults = in_folders(folders, instruction)
        return Recordings(found, names, faults, path)
    files = sorted(file for file in path.iterdir() if file.suffix in HDF5)
    if files:
        return open_robomimic(files, path, instruction, names)
    datasets = sorted(info.parents[1] for info in path.glob(f"[!.]*/{fmt.INFO_PATH}"))
    if datasets:
        return Several({folder.name: open_data(folder, instruction, names) for folder in datasets}, path)
    raise DataError(
        f"{path}: holds no episodes: neither {fmt.INFO_PATH} (a LeRobot dataset), nor {JSON_TABLE} or {CSV_TABLE} "
        f"(a table of recordings), nor <view>.mp4 (a recording), nor <episode>/<view>.mp4 (several recordings), nor "
        f"*.hdf5 (robomimic), nor {FILE} (Minari), nor <dataset>/{fmt.INFO_PATH} (several LeRobot datasets)"
    )


def _listed(path: Path, names: Names) -> Recordings:
    found, faults = listed(path)
    return Recordings(found, names, faults, path)


def annotations_of(path: Path | str, source: EpisodeSource) -> AnnotationStore:
    """Where the annotations of a source are kept that `open_data` opened from `path`.

    Raises `DataError` for a layout that has no place for them, or none that can be written.
    """
    path = Path(path)
    try:
        if isinstance(source, LeRobotDataset):
            return LeRobotAnnotations(
                path, [row if m.number is None else m.number for row, m in enumerate(source.meta)]
            )
        if isinstance(source, Several):
            raise DataError(f"{path}: holds several datasets, name one of them")
        if not isinstance(source, Recordings):
            raise DataError(f"{path}: HDF5 files are not written")
    except DataError as error:
        raise DataError(
            f"{error}, so it cannot be annotated; `embodied-rm convert data={path}` writes a dataset that can"
        ) from None
    if any((path / table).exists() for table in (JSON_TABLE, CSV_TABLE)):
        return TableAnnotations(path, [meta.name for meta in source.meta])
    alone = any(path.glob("*.mp4"))
    folders = [path if alone else path / meta.name for meta in source.meta]
    return FolderAnnotations(path, folders, [meta.length for meta in source.meta])

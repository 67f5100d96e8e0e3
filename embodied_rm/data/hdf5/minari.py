"""Minari's layout: `main_data.hdf5` with `episode_<k>/observations`, `actions`, `infos`, and `metadata.json` beside it.

Source: Minari documentation, "Dataset standards". An episode has one observation more than actions. Pictures are
whatever observations or infos hold as uint8 [T, H, W, 3]; the sentence is the observation `mission` where there is one;
success the last `infos/success` or `infos/is_success`.
"""

from __future__ import annotations

from pathlib import Path

from embodied_rm.data.faults import Fault
from embodied_rm.data.hdf5.dataset import Entry, Hdf5Dataset, numbered
from embodied_rm.data.hdf5.file import Hdf5, Tree
from embodied_rm.data.names import Names, columns_of
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError

FILE = "main_data.hdf5"
PREFIX = "episode_"
STATE, ACTION, MISSION = "observations", "actions", "observations/mission"
SUCCESS = ("infos/success", "infos/is_success")


def minari_file(folder: Path) -> Path | None:
    """The file of the Minari dataset in a folder, or in its `data`; None: there is none."""
    return next((path for path in (folder / "data" / FILE, folder / FILE) if path.exists()), None)


def open_minari(path: Path, instruction: str | None, names: Names) -> Hdf5Dataset:
    """The episodes of a dataset. Raises `DataError` when none can be used, or nobody says what was asked for."""
    reader = Hdf5()
    tree = reader.tree(path)
    episodes = {name.split("/")[0] for name in tree.shapes if name.startswith(PREFIX) and "/" in name}
    entries: list[Entry] = []
    faults: list[Fault] = []
    for number, episode in enumerate(sorted(episodes, key=lambda name: (len(name), name))):
        try:
            entries.append(numbered(_entry(reader, path, tree, episode, instruction, names), number))
        except DataError as error:
            faults.append(Fault.told_by(error, (episode,), path))
    return Hdf5Dataset(path, reader, entries, faults)


def _entry(reader: Hdf5, path: Path, tree: Tree, episode: str, instruction: str | None, names: Names) -> Entry:
    inner, where = tree.within(episode), f"{path}: {episode}"
    shown = [key for key in inner if key.startswith(("observations", "infos/")) and tree.pictures(f"{episode}/{key}")]
    stored = {key.removeprefix("observations/").removeprefix("infos/"): key for key in shown}
    views = {ours: f"{episode}/{stored[view]}" for ours, view in names.of_views(stored, where).items()}
    if not views:
        raise DataError(f"{where} shows no pictures (observations or infos, uint8 [T, H, W, 3])")
    length, height, width, _ = tree.shapes[next(iter(views.values()))]
    numeric = [key for key in inner if key not in shown and tree.kinds[f"{episode}/{key}"] != "text"]
    state = columns_of(names.state, STATE, numeric, where)
    action = columns_of(names.action, ACTION, numeric, where)
    steps = tree.attributes.get(episode, {}).get("total_steps", length - 1)
    if not isinstance(steps, int):
        raise DataError(f"{where}: total_steps is {steps!r}")
    due = dict.fromkeys((*views.values(), *(f"{episode}/{key}" for key in state)), steps + 1)
    due |= dict.fromkeys((f"{episode}/{key}" for key in action), steps)
    for key, count in due.items():
        if tree.shapes[key][:1] != (count,):
            raise DataError(f"{where}: {key} has {list(tree.shapes[key])[:1]} rows, {count} are due")
    if not isinstance(names.fps, int | float) or not names.fps > 0:
        raise DataError(f"{path}: Minari stores no frames a second; give names.fps")
    return Entry(
        meta=EpisodeMeta(
            name=episode,
            length=length,
            instruction=_sentence(reader, path, tree, episode, instruction),
            success=_success(reader, path, tree, episode),
        ),
        file=path,
        views=views,
        state=tuple(f"{episode}/{key}" for key in state),
        action=tuple(f"{episode}/{key}" for key in action),
        fps=float(names.fps),
        height=height,
        width=width,
    )


def _sentence(reader: Hdf5, path: Path, tree: Tree, episode: str, instruction: str | None) -> str:
    if instruction is not None:
        return instruction
    if tree.kinds.get(f"{episode}/{MISSION}") == "text":
        return reader.text(path, f"{episode}/{MISSION}")
    raise DataError(f"{path}: does not say what was asked for in {episode}; give an instruction")


def _success(reader: Hdf5, path: Path, tree: Tree, episode: str) -> bool | None:
    for key in SUCCESS:
        if len(tree.shapes.get(f"{episode}/{key}", ())) == 1:
            return bool(reader.numbers(path, f"{episode}/{key}")[-1, 0] > 0)
    return None

"""robomimic's layout, and robosuite's, MimicGen's and LIBERO's: `data/<demo>` with `obs/<camera>_image`, `actions`.

Source: robomimic documentation, "Dataset structure". Which sentence a demonstration follows is stored by LIBERO alone
(`problem_info`); success is where a reward of 0 or 1 is stored at every step: whether the last one is 1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from embodied_rm.data.faults import Fault
from embodied_rm.data.hdf5.dataset import Entry, Hdf5Dataset, numbered
from embodied_rm.data.hdf5.file import Hdf5, Tree
from embodied_rm.data.names import Names, columns_of
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError

ROOT = "data"
STATE = ("obs/robot0_eef_pos", "obs/robot0_eef_quat", "obs/robot0_gripper_qpos")
"""What the state is where nothing else was asked for, if it is there."""
ACTION = "actions"
ENDINGS = ("_image", "_rgb")


def open_robomimic(files: Sequence[Path], where: Path, instruction: str | None, names: Names) -> Hdf5Dataset:
    """The demonstrations of one or several files. Raises `DataError` when none can be used, or nobody says what was
    asked for."""
    reader = Hdf5()
    entries: list[Entry] = []
    faults: list[Fault] = []
    number = 0
    for path in files:
        try:
            tree = reader.tree(path)
            demos = _demos(tree, path)
            sentence, fps = _sentence(tree, path, instruction), _rate(tree, path, names)
        except DataError as error:
            faults.append(Fault.told_by(error, (path.stem,), path))
            continue
        for demo in demos:
            name = demo if len(files) == 1 else f"{path.stem}/{demo}"
            try:
                entries.append(numbered(_entry(reader, path, tree, demo, name, sentence, fps, names), number))
            except DataError as error:
                faults.append(Fault.told_by(error, (name,), path))
            number += 1
    return Hdf5Dataset(where, reader, entries, faults)


def _demos(tree: Tree, path: Path) -> list[str]:
    """Names of the demonstrations, in their order."""
    names = {name.split("/")[1] for name in tree.shapes if name.startswith(f"{ROOT}/") and name.count("/") >= 2}
    if not names:
        raise DataError(f"{path}: holds no demonstrations ({ROOT}/<demo>/...)")
    return sorted(names, key=lambda name: (len(name), name))  # demo_2 before demo_10


def _sentence(tree: Tree, path: Path, instruction: str | None) -> str:
    stored = _json(tree, "problem_info").get("language_instruction")
    if isinstance(stored, list):
        stored = " ".join(map(str, stored))
    found = instruction or stored
    if not isinstance(found, str) or not found:
        raise DataError(f"{path}: does not say what was asked for; give an instruction")
    return found.strip('"')


def _rate(tree: Tree, path: Path, names: Names) -> float:
    kwargs = _json(tree, "env_args").get("env_kwargs")
    stored = kwargs.get("control_freq") if isinstance(kwargs, dict) else None
    rate = names.fps or stored
    if not isinstance(rate, int | float) or not rate > 0:
        raise DataError(f"{path}: does not say how many frames a second it has; give names.fps")
    return float(rate)


def _json(tree: Tree, attribute: str) -> dict[str, Any]:
    """An attribute of the demonstrations' group that is a JSON object; an empty one where there is none."""
    try:
        content = json.loads(tree.attributes.get(ROOT, {}).get(attribute, "{}"))
    except (ValueError, TypeError):
        return {}
    return content if isinstance(content, dict) else {}


def _entry(
    reader: Hdf5, path: Path, tree: Tree, demo: str, name: str, sentence: str, fps: float, names: Names
) -> Entry:
    group = f"{ROOT}/{demo}"
    inner = tree.within(group)
    stored = {_view(key): key for key in inner if key.startswith("obs/") and tree.pictures(f"{group}/{key}")}
    views = {ours: f"{group}/{stored[view]}" for ours, view in names.of_views(stored, f"{path}: {demo}").items()}
    if not views:
        raise DataError(f"{path}: {demo} shows no pictures (obs/<camera>_image, uint8 [T, H, W, 3])")
    length, height, width, _ = tree.shapes[next(iter(views.values()))]
    usual = STATE if set(STATE) <= set(inner) else ()
    state = columns_of(names.state or usual, "", inner, f"{path}: {demo}")
    action = columns_of(names.action, ACTION, inner, f"{path}: {demo}")
    counted = {key: tree.shapes[key][0] for key in views.values()}
    counted |= {f"{group}/{key}": (tree.shapes[f"{group}/{key}"] or (0,))[0] for key in (*state, *action)}
    stated = tree.attributes.get(group, {}).get("num_samples", length)
    for key, count in {**counted, "num_samples": stated}.items():
        if count != length:
            raise DataError(f"{path}: {key} of {demo} has {count} rows, its pictures have {length}")
    return Entry(
        meta=EpisodeMeta(name=name, length=length, instruction=sentence, success=_success(reader, path, tree, group)),
        file=path,
        views=views,
        state=tuple(f"{group}/{key}" for key in state),
        action=tuple(f"{group}/{key}" for key in action),
        fps=fps,
        height=height,
        width=width,
    )


def _view(key: str) -> str:
    """The camera's name, of `obs/agentview_image`."""
    name = key.removeprefix("obs/")
    return next((name.removesuffix(end) for end in ENDINGS if name.endswith(end)), name)


def _success(reader: Hdf5, path: Path, tree: Tree, group: str) -> bool | None:
    """Whether the last reward is 1, of rewards that are 0 or 1 each; None: no such rewards are stored."""
    if f"{group}/rewards" not in tree.shapes:
        return None
    rewards = reader.numbers(path, f"{group}/rewards").reshape(-1)
    sparse = len(rewards) and np.isin(rewards, (0.0, 1.0)).all()
    return bool(rewards[-1] == 1.0) if sparse else None

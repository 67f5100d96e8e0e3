"""Layout of robomimic, robosuite, MimicGen and LIBERO: `data/<demo>` with `obs/<camera>_image` and `actions`.

Source: robomimic documentation, "Dataset structure". LIBERO stores one instruction per file (`problem_info`), RoboCasa
one per demonstration (`ep_meta`). Success is known where every step has a reward of 0 or 1: it is the last reward.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from embodied_rm.data.feature_map import FeatureMap, resolve_columns
from embodied_rm.data.hdf5.dataset import Hdf5Dataset, Hdf5EpisodeEntry
from embodied_rm.data.hdf5.file import Hdf5Reader, Hdf5Tree
from embodied_rm.data.issues import DataIssue
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError

DATA_GROUP = "data"
STATE_KEYS = ("obs/robot0_eef_pos", "obs/robot0_eef_quat", "obs/robot0_gripper_qpos")
"""Default state columns, used if all are stored."""
ACTION_KEY = "actions"
LIBERO_SUFFIX, LIBERO_ORIENTATION = "_rgb", "flip"
IMAGE_SUFFIXES = ("_image", LIBERO_SUFFIX)
INSTRUCTION_KEYS = ("lang", "language_instruction", "language", "instruction", "task_description")
"""Keys of an instruction in `ep_meta` of a demonstration, or among its attributes."""


def open_robomimic(
    files: Sequence[Path], dataset_path: Path, instruction: str | None, feature_map: FeatureMap
) -> Hdf5Dataset:
    """Open the demonstrations in one or several files."""
    reader = Hdf5Reader()
    entries: dict[int, Hdf5EpisodeEntry] = {}
    issues: list[DataIssue] = []
    libero_files: set[Path] = set()
    index = 0
    for path in files:
        try:
            tree = reader.read_tree(path)
            demos = _demo_names(tree, path)
            libero_files |= {path} if _is_libero(tree) else set()
            file_instruction, fps = instruction or _file_instruction(tree), _read_fps(tree, path, feature_map)
            if not (file_instruction or any(_demo_instruction(tree, demo) for demo in demos)):
                raise DataError(f"{path}: contains no instruction; set instruction=")
        except DataError as error:
            issues.append(DataIssue.from_error(error, (path.stem,), path))
            continue
        for demo in demos:
            name = demo if len(files) == 1 else f"{path.stem}/{demo}"
            try:
                demo_instruction = instruction or _demo_instruction(tree, demo) or file_instruction
                if not demo_instruction:
                    raise DataError(f"{path}: {demo} contains no instruction; set instruction=")
                entries[index] = _build_episode(reader, path, tree, demo, name, demo_instruction, fps, feature_map)
            except DataError as error:
                issues.append(DataIssue.from_error(error, (name,), path))
            index += 1
    if entries and all(entry.meta.success is False for entry in entries.values()):
        # Recorders of human demonstrations write rewards and never set them.
        entries = {index: replace(entry, meta=replace(entry.meta, success=None)) for index, entry in entries.items()}
        message = "every reward is 0, so the success of its episodes is unknown"
        issues.append(DataIssue(file=dataset_path, message=message, episodes=()))
    is_libero = bool(libero_files) and all(entry.path in libero_files for entry in entries.values())
    if is_libero:
        message = "LIBERO stores its images from below: they are flipped, unless features.orientation says otherwise"
        issues.append(DataIssue(file=dataset_path, message=message, episodes=()))
    dataset = Hdf5Dataset(dataset_path, reader, entries, issues)
    dataset.orientations = dict.fromkeys(dataset.views, LIBERO_ORIENTATION) if is_libero else {}
    return dataset


def _is_libero(tree: Hdf5Tree) -> bool:
    """Return whether a file is LIBERO's: a problem, and images named `obs/<camera>_rgb`."""
    images = [name for name in tree.shapes if tree.is_image_dataset(name)]
    named = bool(images) and all(name.endswith(LIBERO_SUFFIX) for name in images)
    return named and "problem_info" in tree.attributes.get(DATA_GROUP, {})


def _demo_names(tree: Hdf5Tree, path: Path) -> list[str]:
    """Return the names of the demonstrations in numeric order."""
    names = {name.split("/")[1] for name in tree.shapes if name.startswith(f"{DATA_GROUP}/") and name.count("/") >= 2}
    if not names:
        raise DataError(f"{path}: holds no demonstrations ({DATA_GROUP}/<demo>/...)")
    return sorted(names, key=lambda name: (len(name), name))  # demo_2 before demo_10


def _file_instruction(tree: Hdf5Tree) -> str | None:
    """Return the instruction of all demonstrations of a file, or None."""
    stored = _read_json_attribute(tree, DATA_GROUP, "problem_info").get("language_instruction")
    if isinstance(stored, list):
        stored = " ".join(map(str, stored))
    return stored.strip('"') if isinstance(stored, str) else None


def _demo_instruction(tree: Hdf5Tree, demo: str) -> str | None:
    """Return the instruction of one demonstration, or None."""
    group = f"{DATA_GROUP}/{demo}"
    attributes = {**tree.attributes.get(group, {}), **_read_json_attribute(tree, group, "ep_meta")}
    texts = (attributes.get(key) for key in INSTRUCTION_KEYS)
    return next((text for text in texts if isinstance(text, str) and text), None)


def _read_fps(tree: Hdf5Tree, path: Path, feature_map: FeatureMap) -> float:
    kwargs = _read_json_attribute(tree, DATA_GROUP, "env_args").get("env_kwargs")
    stored = kwargs.get("control_freq") if isinstance(kwargs, dict) else None
    fps = feature_map.fps or stored
    if not isinstance(fps, int | float) or not fps > 0:
        raise DataError(f"{path}: stores no frame rate; set features.fps=")
    return float(fps)


def _read_json_attribute(tree: Hdf5Tree, group: str, attribute: str) -> dict[str, Any]:
    """Return a JSON attribute of a group; {} if it is missing or not an object."""
    try:
        content = json.loads(tree.attributes.get(group, {}).get(attribute, "{}"))
    except (ValueError, TypeError):
        return {}
    return content if isinstance(content, dict) else {}


def _build_episode(
    reader: Hdf5Reader,
    path: Path,
    tree: Hdf5Tree,
    demo: str,
    name: str,
    instruction: str,
    fps: float,
    feature_map: FeatureMap,
) -> Hdf5EpisodeEntry:
    group, source = f"{DATA_GROUP}/{demo}", f"{path}: {demo}"
    keys = tree.datasets_in(group)
    image_keys = [key for key in keys if key.startswith("obs/") and tree.is_image_dataset(f"{group}/{key}")]
    stored = {_camera_name(key): key for key in image_keys}
    views = {view: f"{group}/{stored[name]}" for view, name in feature_map.resolve_views(stored, source).items()}
    if not views:
        raise DataError(f"{source} contains no images (obs/<camera>_image, uint8 [T, H, W, 3])")
    length, height, width, _ = tree.shapes[next(iter(views.values()))]
    default_state = STATE_KEYS if set(STATE_KEYS) <= set(keys) else ()
    state, action = (
        tuple(f"{group}/{key}" for key in resolve_columns(requested, default, keys, source))
        for requested, default in ((feature_map.state or default_state, ""), (feature_map.action, ACTION_KEY))
    )
    row_counts = {key: (tree.shapes[key] or (0,))[0] for key in (*views.values(), *state, *action)}
    num_samples = tree.attributes.get(group, {}).get("num_samples", length)
    for key, count in {**row_counts, "num_samples": num_samples}.items():
        if count != length:
            raise DataError(f"{path}: {key} of {demo} has {count} rows, its images have {length}")
    success, image_size = _read_success(reader, path, tree, group), (height, width)
    meta = EpisodeMeta(name=name, length=length, instruction=instruction, success=success)
    return Hdf5EpisodeEntry(
        meta=meta, path=path, views=views, state=state, action=action, fps=fps, image_size=image_size
    )


def _camera_name(key: str) -> str:
    """Return the camera name, e.g. of `obs/agentview_image`."""
    name = key.removeprefix("obs/")
    return next((name.removesuffix(suffix) for suffix in IMAGE_SUFFIXES if name.endswith(suffix)), name)


def _read_success(reader: Hdf5Reader, path: Path, tree: Hdf5Tree, group: str) -> bool | None:
    """Return whether the last reward is 1; None unless rewards of 0 or 1 are stored."""
    if f"{group}/rewards" not in tree.shapes:
        return None
    rewards = reader.read_array(path, f"{group}/rewards").reshape(-1)
    is_sparse = len(rewards) and np.isin(rewards, (0.0, 1.0)).all()
    return bool(rewards[-1] == 1.0) if is_sparse else None

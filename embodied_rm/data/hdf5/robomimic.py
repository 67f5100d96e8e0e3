"""Layout of robomimic, robosuite, MimicGen and LIBERO: `data/<demo>` with `obs/<camera>_image` and `actions`.

Source: robomimic documentation, "Dataset structure".
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from embodied_rm.data.feature_map import FeatureMap, resolve_columns
from embodied_rm.data.hdf5.dataset import Hdf5Dataset, Hdf5EpisodeEntry
from embodied_rm.data.hdf5.file import Hdf5Reader, Hdf5Tree
from embodied_rm.data.hdf5.instructions import Instructions, read_instructions
from embodied_rm.data.hdf5.reward_outcomes import RewardSummary, describe_zero_files, find_successes, summarize_rewards
from embodied_rm.data.hdf5.stated_success import find_unread_success, read_stated_success
from embodied_rm.data.hdf5.unread_images import IMAGE_SUFFIXES, find_unread_images
from embodied_rm.data.issues import DataIssue, list_names
from embodied_rm.data.names import is_frame_rate
from embodied_rm.data.orientation import STORED
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError

DATA_GROUP = "data"
STATE_KEYS = ("obs/robot0_eef_pos", "obs/robot0_eef_quat", "obs/robot0_gripper_qpos")
"""Default state columns, used if all are stored."""
ACTION_KEY = "actions"
LIBERO_SUFFIX = "_rgb"
LIBERO_IMAGES = {"obs/agentview_rgb", "obs/eye_in_hand_rgb"}
LIBERO_ATTRIBUTES = {"problem_info", "bddl_file_name", "bddl_file_content", "bddl_file"}
CONVENTION_ATTRIBUTE = "macros_image_convention"
"""Attribute in which LIBERO stores the convention of robosuite's images: "opengl", from below, or "opencv"."""
BELOW_CONVENTION = "opengl"
FROM_BELOW = "flip"  # orientation of images whose first row is the lowest one


@dataclass(frozen=True, kw_only=True)
class RobomimicFile:
    """A file, and what its demonstrations share."""

    path: Path
    tree: Hdf5Tree
    demos: tuple[str, ...]  # in numeric order
    instructions: Instructions
    fps: float
    orientation: str  # of all images, one of `orientation.ORIENTATIONS`
    states_from_below: bool  # whether it says that its images are stored from below


def open_robomimic(
    files: Sequence[Path], dataset_path: Path, instruction: str | None, feature_map: FeatureMap
) -> Hdf5Dataset:
    """Open the demonstrations in one or several files."""
    reader = Hdf5Reader()
    readable_files: list[RobomimicFile] = []
    entries: dict[int, Hdf5EpisodeEntry] = {}
    rewards: dict[int, RewardSummary] = {}
    issues: list[DataIssue] = []
    index = 0
    for path in files:
        try:
            file = _open_file(reader, path, instruction, feature_map)
        except DataError as error:
            issues.append(DataIssue.from_error(error, (path.stem,), path))
            continue
        readable_files.append(file)
        issues += [DataIssue(file=path, message=note, episodes=()) for note in file.instructions.notes()]
        for demo in file.demos:
            name = demo if len(files) == 1 else f"{path.stem}/{demo}"
            try:
                success = read_stated_success(reader, path, file.tree, f"{DATA_GROUP}/{demo}")
                entry = _build_episode(file, demo, name, feature_map)
                summary = _read_rewards(reader, file, demo, is_stated=success is not None)
                entry = replace(entry, meta=replace(entry.meta, success=success))
            except DataError as error:
                issues.append(DataIssue.from_error(error, (name,), path))
            else:
                entries[index] = entry
                rewards |= {} if summary is None else {index: summary}
            index += 1
    for demo_index, success in find_successes(rewards).items():
        entry = entries[demo_index]
        if entry.meta.success is None:
            entries[demo_index] = replace(entry, meta=replace(entry.meta, success=success))
    views = {view for entry in entries.values() for view in entry.views}
    notes = describe_zero_files(rewards.values()) | _orientation_note(readable_files, views, feature_map)
    issues += [_file_note(dataset_path, files, *note) for note in notes.items() if note[1]]
    return Hdf5Dataset(dataset_path, reader, entries, issues)


def _file_note(dataset_path: Path, files: Sequence[Path], message: str, affected: Sequence[Path]) -> DataIssue:
    """Return a note on some files of a dataset, which names them unless these are all of them."""
    subject = "" if len(affected) == len(files) else f"{list_names([path.name for path in affected])}: "
    return DataIssue(file=dataset_path, message=subject + message, episodes=())


def _open_file(reader: Hdf5Reader, path: Path, instruction: str | None, feature_map: FeatureMap) -> RobomimicFile:
    tree = reader.read_tree(path)
    demos = _demo_names(tree, path)
    if instruction is None:
        instructions = read_instructions(reader, path, tree, DATA_GROUP, demos)
    else:
        instructions = Instructions(of_file=instruction)
    if not any(map(instructions.find, demos)):
        raise DataError(f"{path}: contains no instruction; set instruction=")
    return RobomimicFile(
        path=path,
        tree=tree,
        demos=demos,
        instructions=instructions,
        fps=_read_fps(tree, path, feature_map),
        orientation=_find_orientation(tree, demos),
        states_from_below=tree.attributes.get(DATA_GROUP, {}).get(CONVENTION_ATTRIBUTE) == BELOW_CONVENTION,
    )


def _find_orientation(tree: Hdf5Tree, demos: Sequence[str]) -> str:
    """Return how the images of a file are turned: those of LIBERO are stored from below, unless it says otherwise."""
    images = [name for name in tree.shapes if tree.is_image_dataset(name)]
    attributes, env_args = tree.attributes.get(DATA_GROUP, {}), tree.read_json(DATA_GROUP, "env_args") or {}
    is_marked = not LIBERO_ATTRIBUTES.isdisjoint((*attributes, *env_args))
    has_its_views = {f"{DATA_GROUP}/{demos[0]}/{view}" for view in LIBERO_IMAGES} <= set(images)
    is_libero = any(name.endswith(LIBERO_SUFFIX) for name in images) and (is_marked or has_its_views)
    is_from_below = attributes.get(CONVENTION_ATTRIBUTE, BELOW_CONVENTION) == BELOW_CONVENTION
    return FROM_BELOW if is_libero and is_from_below else STORED


def _orientation_note(
    files: Sequence[RobomimicFile], views: Collection[str], feature_map: FeatureMap
) -> dict[str, list[Path]]:
    """Return the files with images from below, by a sentence on it; {} if the user has turned every view."""
    if set(views) <= set(feature_map.orientation):
        return {}
    flipped = "LIBERO stores its images from below: they are flipped, unless features.orientation says otherwise"
    kept = (
        f"{CONVENTION_ATTRIBUTE} is {BELOW_CONVENTION}, but its views are not those of LIBERO: they are read as "
        "stored, unless features.orientation says otherwise"
    )
    return {
        flipped: [file.path for file in files if file.orientation == FROM_BELOW],
        kept: [file.path for file in files if file.states_from_below and file.orientation == STORED],
    }


def _demo_names(tree: Hdf5Tree, path: Path) -> tuple[str, ...]:
    """Return the names of the demonstrations in numeric order."""
    names = {name.split("/")[1] for name in tree.shapes if name.startswith(f"{DATA_GROUP}/") and name.count("/") >= 2}
    if not names:
        raise DataError(f"{path}: holds no demonstrations ({DATA_GROUP}/<demo>/...)")
    return tuple(sorted(names, key=lambda name: (len(name), name)))  # demo_2 before demo_10


def _read_fps(tree: Hdf5Tree, path: Path, feature_map: FeatureMap) -> float:
    kwargs = (tree.read_json(DATA_GROUP, "env_args") or {}).get("env_kwargs")
    stored = kwargs.get("control_freq") if isinstance(kwargs, dict) else None
    fps = feature_map.fps or stored
    if not is_frame_rate(fps):
        found = "stores no frame rate" if stored is None else f"states the frame rate {str(stored)[:40]}"
        raise DataError(f"{path}: {found}; set features.fps=")
    return float(fps)


def _build_episode(file: RobomimicFile, demo: str, name: str, feature_map: FeatureMap) -> Hdf5EpisodeEntry:
    """Return the entry of a demonstration, without its outcome."""
    tree, path, group, source = file.tree, file.path, f"{DATA_GROUP}/{demo}", f"{file.path}: {demo}"
    instruction, issue = file.instructions.find(demo), file.instructions.own(demo).issue
    if not instruction:
        reason = f" ({issue})" if issue else ""
        raise DataError(f"{source} contains no instruction{reason}; set instruction=")
    keys = tree.datasets_in(group)
    observations = [key for key in keys if key.startswith("obs/")]
    image_keys = [key for key in observations if tree.is_image_dataset(f"{group}/{key}")]
    stored = {_camera_name(key): key for key in image_keys}
    views = {view: f"{group}/{stored[name]}" for view, name in feature_map.resolve_views(stored, source).items()}
    if not views:
        raise DataError(f"{source} contains no images (obs/<camera>_image, uint8 [T, H, W, 3])")
    tree.check_written(views.values(), source)
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
    return Hdf5EpisodeEntry(
        meta=EpisodeMeta(name=name, length=length, instruction=instruction),
        path=path,
        views=views,
        state=state,
        action=action,
        fps=file.fps,
        image_size=(height, width),
        orientation=file.orientation,
        notes=(
            *find_unread_success(tree, group),
            *file.instructions.notes_of(demo),
            *(() if feature_map.views else find_unread_images(tree, group, observations)),
        ),
    )


def _camera_name(key: str) -> str:
    """Return the camera name, e.g. of `obs/agentview_image`."""
    name = key.removeprefix("obs/")
    return next((name.removesuffix(suffix) for suffix in IMAGE_SUFFIXES if name.endswith(suffix)), name)


def _read_rewards(reader: Hdf5Reader, file: RobomimicFile, demo: str, *, is_stated: bool) -> RewardSummary | None:
    """Return the summary of the rewards of a demonstration; None if there are none.

    `is_stated`: whether the demonstration states its success.
    """
    name = f"{DATA_GROUP}/{demo}/rewards"
    if file.tree.shapes.get(name, (0,))[:1] == (0,):
        return None
    env_args = file.tree.read_json(DATA_GROUP, "env_args")
    environment = json.dumps(env_args, sort_keys=True) if env_args else f"{file.path}"
    rewards = reader.read_array(file.path, name).reshape(-1)
    return summarize_rewards(rewards, file.path, environment, is_stated=is_stated)

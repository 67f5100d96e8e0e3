"""Minari's layout: `main_data.hdf5` with `episode_<k>/observations`, `actions` and `infos`, next to `metadata.json`.

Source: Minari documentation, "Dataset standards". An episode has one more observation than actions. Views are all
observations and infos of uint8 [T, H, W, 3]. The instruction is the observation `mission`, if stored.
"""

from pathlib import Path

from embodied_rm.data.feature_map import FeatureMap, resolve_columns
from embodied_rm.data.hdf5.dataset import Hdf5Dataset, Hdf5EpisodeEntry
from embodied_rm.data.hdf5.file import Hdf5Reader, Hdf5Tree
from embodied_rm.data.hdf5.instructions import OwnInstruction, read_instruction
from embodied_rm.data.hdf5.stated_success import find_unread_success, read_stated_success
from embodied_rm.data.hdf5.unread_images import find_unread_images
from embodied_rm.data.issues import DataIssue
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError

MINARI_FILE = "main_data.hdf5"
EPISODE_PREFIX = "episode_"
STATE_KEY, ACTION_KEY, MISSION_KEY = "observations", "actions", "observations/mission"


def find_minari_file(folder: Path) -> Path | None:
    """Return the file of the Minari dataset in a folder or its `data` subfolder, or None."""
    return next((path for path in (folder / "data" / MINARI_FILE, folder / MINARI_FILE) if path.exists()), None)


def open_minari(path: Path, instruction: str | None, feature_map: FeatureMap) -> Hdf5Dataset:
    """Open the episodes of a Minari dataset."""
    reader = Hdf5Reader()
    tree = reader.read_tree(path)
    episodes = {name.split("/")[0] for name in tree.shapes if name.startswith(EPISODE_PREFIX) and "/" in name}
    entries: dict[int, Hdf5EpisodeEntry] = {}
    issues: list[DataIssue] = []
    for index, episode in enumerate(sorted(episodes, key=lambda name: (len(name), name))):
        try:
            entries[index] = _build_episode(reader, path, tree, episode, instruction, feature_map)
        except DataError as error:
            issues.append(DataIssue.from_error(error, (episode,), path))
    return Hdf5Dataset(path, reader, entries, issues)


def _build_episode(
    reader: Hdf5Reader, path: Path, tree: Hdf5Tree, episode: str, instruction: str | None, feature_map: FeatureMap
) -> Hdf5EpisodeEntry:
    keys, source = tree.datasets_in(episode), f"{path}: {episode}"
    candidates = [key for key in keys if key.startswith(("observations", "infos/"))]
    image_keys = [key for key in candidates if tree.is_image_dataset(f"{episode}/{key}")]
    stored = {key.removeprefix("observations/").removeprefix("infos/"): key for key in image_keys}
    views = {name: f"{episode}/{stored[view]}" for name, view in feature_map.resolve_views(stored, source).items()}
    if not views:
        raise DataError(f"{source} contains no images (observations or infos, uint8 [T, H, W, 3])")
    tree.check_written(views.values(), source)
    length, height, width, _ = tree.shapes[next(iter(views.values()))]
    numeric_keys = [key for key in keys if key not in image_keys and tree.dtypes[f"{episode}/{key}"] != "text"]
    state, action = (
        tuple(f"{episode}/{key}" for key in resolve_columns(requested, default, numeric_keys, source))
        for requested, default in ((feature_map.state, STATE_KEY), (feature_map.action, ACTION_KEY))
    )
    num_steps = tree.attributes.get(episode, {}).get("total_steps", length - 1)
    if not isinstance(num_steps, int):
        raise DataError(f"{source}: total_steps is {num_steps!r}")
    expected_rows = dict.fromkeys((*views.values(), *state), num_steps + 1) | dict.fromkeys(action, num_steps)
    for key, count in expected_rows.items():
        if tree.shapes[key][:1] != (count,):
            raise DataError(f"{source}: {key} has {list(tree.shapes[key])[:1]} rows, expected {count}")
    if not isinstance(feature_map.fps, int | float) or not feature_map.fps > 0:
        raise DataError(f"{path}: Minari stores no frame rate; set features.fps=")
    text, note = _read_instruction(reader, path, tree, episode, instruction)
    success = read_stated_success(reader, path, tree, episode)
    fps, image_size = float(feature_map.fps), (height, width)
    meta = EpisodeMeta(name=episode, length=length, instruction=text, success=success)
    return Hdf5EpisodeEntry(
        meta=meta,
        path=path,
        views=views,
        state=state,
        action=action,
        fps=fps,
        image_size=image_size,
        notes=(
            *find_unread_success(tree, episode),
            *([note] if note else ()),
            *(() if feature_map.views else find_unread_images(tree, episode, candidates)),
        ),
    )


def _read_instruction(
    reader: Hdf5Reader, path: Path, tree: Hdf5Tree, episode: str, instruction: str | None
) -> OwnInstruction:
    if instruction is not None:
        return OwnInstruction(text=instruction)
    own = OwnInstruction()
    if tree.dtypes.get(f"{episode}/{MISSION_KEY}") == "text":
        own = read_instruction(reader, path, tree, episode, MISSION_KEY)
    if not own.text:
        reason = f" ({own.issue})" if own.issue else ""
        raise DataError(f"{path}: contains no instruction for {episode}{reason}; set instruction=")
    return own

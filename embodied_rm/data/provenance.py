"""Provenance of the training data, stored in the checkpoint so that a model is never evaluated on it.

An episode is identified by its initial scene if the recording stores it (`embodied-rm collect` does), else by its
images. Name, instruction and folder may differ.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from embodied_rm.data.fingerprint import fingerprint
from embodied_rm.data.hub import is_hub_path, parse_hub_dataset
from embodied_rm.data.renderers import RENDERER_KEY, RENDERERS_FACT
from embodied_rm.types import Episode

HASH_DIGITS = 12
"""Hexadecimal digits of a hash: among ten thousand scenes, a collision has a probability below one in a million."""
PROVENANCE_KEYS = ("splits", "tasks", "scenes", "video_hashes", "datasets", RENDERERS_FACT)
"""Lists of strings in the checkpoint's facts: splits with seeds ("seen 0"), tasks, hashes of scenes, hashes of the
images of episodes without a scene, `owner/name` of datasets on the hub, and fingerprints of renderers.
"""


def provenance(episodes: Iterable[Episode]) -> dict[str, list[str]]:
    """Return the sorted provenance lists of training episodes, see `PROVENANCE_KEYS`."""
    values_by_key: dict[str, set[str]] = {name: set() for name in PROVENANCE_KEYS}
    for episode in episodes:
        if {"split", "seed"} <= episode.metadata.keys():
            values_by_key["splits"].add(f"{episode.metadata['split']} {episode.metadata['seed']}")
        if RENDERER_KEY in episode.metadata:
            values_by_key[RENDERERS_FACT].add(episode.metadata[RENDERER_KEY])
        if "task" in episode.metadata:
            values_by_key["tasks"].add(episode.metadata["task"])
        if "scene" in episode.metadata:
            values_by_key["scenes"].add(hash_scene(episode.metadata["scene"]))
        else:
            values_by_key["video_hashes"].add(fingerprint(episode)[:HASH_DIGITS])
    return {name: sorted(values) for name, values in values_by_key.items()}


def dataset_provenance(path: Path) -> dict[str, list[str]]:
    """Return the part of the provenance that the name of a dataset states: nothing, unless it is on the hub."""
    return {"datasets": [parse_hub_dataset(path).repo_id]} if is_hub_path(path) else {}


def hash_scene(scene: str) -> str:
    """Return the hash of a scene."""
    return hashlib.sha256(scene.encode()).hexdigest()[:HASH_DIGITS]


def merge_provenance(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the union of two provenances, for a model trained on both."""
    return {name: sorted({*first.get(name, ()), *second.get(name, ())}) for name in PROVENANCE_KEYS}

"""What a model was trained on: noted in its checkpoint, so that it is not judged by the same.

An episode is known by the scene it began in, where the recording says so (`embodied-rm collect` does), else by its
images; its name, its instruction and its folder may be others than before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from embodied_rm.data.fingerprint import fingerprint
from embodied_rm.types import Episode

HASH_DIGITS = 12
"""Hexadecimal digits by which a scene or a video is known: of ten thousand, two are alike once in millions."""
PROVENANCE_KEYS = ("recorded", "tasks", "scenes", "videos")
"""What facts of a checkpoint say of the episodes that it was trained on, each a sorted list of text: the splits with
their seeds ("seen 0"), tasks, scenes, and the images of those that name no scene."""


def provenance(episodes: Iterable[Episode]) -> dict[str, list[str]]:
    """These lists, of episodes as they are trained on."""
    values_by_key: dict[str, set[str]] = {name: set() for name in PROVENANCE_KEYS}
    for episode in episodes:
        if {"split", "seed"} <= episode.metadata.keys():
            values_by_key["recorded"].add(f"{episode.metadata['split']} {episode.metadata['seed']}")
        if "task" in episode.metadata:
            values_by_key["tasks"].add(episode.metadata["task"])
        if "scene" in episode.metadata:
            values_by_key["scenes"].add(hash_scene(episode.metadata["scene"]))
        else:
            values_by_key["videos"].add(fingerprint(episode)[:HASH_DIGITS])
    return {name: sorted(values) for name, values in values_by_key.items()}


def hash_scene(scene: str) -> str:
    """What is noted of a scene."""
    return hashlib.sha256(scene.encode()).hexdigest()[:HASH_DIGITS]


def merge_provenance(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, list[str]]:
    """What two facts say, as of one model that was trained on both."""
    return {name: sorted({*first.get(name, ()), *second.get(name, ())}) for name in PROVENANCE_KEYS}

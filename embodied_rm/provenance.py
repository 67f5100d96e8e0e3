"""What a model was trained on: noted in its checkpoint, so that it is not judged by the same.

An episode is known by the scene it began in, where the recording says so (`embodied-rm collect` does), else by its
pictures; its name, its instruction and its folder may be others than before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from embodied_rm.labels.identity import fingerprint
from embodied_rm.types import Episode

DIGITS = 12
"""Hexadecimal digits by which a scene or a film is known: of ten thousand, two are alike once in millions."""
LISTS = ("recorded", "tasks", "scenes", "films")
"""What facts of a checkpoint say of the episodes that it was trained on, each a sorted list of text: the splits with
their seeds ("seen 0"), tasks, scenes, and the pictures of those that name no scene."""


def provenance(episodes: Iterable[Episode]) -> dict[str, list[str]]:
    """These lists, of episodes as they are trained on."""
    found: dict[str, set[str]] = {name: set() for name in LISTS}
    for episode in episodes:
        if {"split", "seed"} <= episode.meta.keys():
            found["recorded"].add(f"{episode.meta['split']} {episode.meta['seed']}")
        if "task" in episode.meta:
            found["tasks"].add(episode.meta["task"])
        if "scene" in episode.meta:
            found["scenes"].add(short(episode.meta["scene"]))
        else:
            found["films"].add(fingerprint(episode)[:DIGITS])
    return {name: sorted(values) for name, values in found.items()}


def short(scene: str) -> str:
    """What is noted of a scene."""
    return hashlib.sha256(scene.encode()).hexdigest()[:DIGITS]


def together(facts: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, list[str]]:
    """What two facts say, as of one model that was trained on both."""
    return {name: sorted({*facts.get(name, ()), *more.get(name, ())}) for name in LISTS}

"""Identity of an episode: a hash of its images, independent of its name."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from embodied_rm.errors import DataError
from embodied_rm.types import Episode


@dataclass(frozen=True, kw_only=True)
class IndexedEpisode(Episode):
    """An episode whose hashes and degenerate views are stored, so that its images need not stay in memory."""

    fingerprint: str  # see `fingerprint`
    last_frame_hash: str  # see `hash_last_frame`
    degenerate_views: Mapping[str, str]  # see `find_degenerate_views`


def fingerprint(episode: Episode) -> str:
    """Return the SHA-256 of the images of an episode, independent of its name and instruction."""
    return episode.fingerprint if isinstance(episode, IndexedEpisode) else hash_views(episode.views)


def hash_last_frame(episode: Episode) -> str:
    """Return the SHA-256 of the last frame of an episode."""
    if isinstance(episode, IndexedEpisode):
        return episode.last_frame_hash
    return hash_views({name: frames[-1] for name, frames in episode.views.items()})


def check_no_overlap(training: Mapping[str, str], held_out: Mapping[str, str], kind: str = "episode") -> None:
    """Raise `DataError` if a held-out set and the training set have a key in common.

    `training` and `held_out` map a key (fingerprint or `scene` of an episode) to the episode's name; `kind` is a noun
    for the key.
    """
    for key in sorted(training.keys() & held_out.keys()):
        name, reason = held_out[key], f"its scores would say nothing about unseen {kind}s"
        raise DataError(f"{name}: held out, but the same {kind} is trained on (as {training[key]}); {reason}")


def hash_views(views: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return the SHA-256 of images and view names."""
    digest = hashlib.sha256()
    for name in sorted(views):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(views[name]).data)
    return digest.hexdigest()

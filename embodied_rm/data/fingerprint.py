"""By what an episode is known: what it shows, whatever it is called."""

from __future__ import annotations

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
    """An episode whose images were seen once; now they may not be in memory."""

    fingerprint: str
    """See `fingerprint`."""
    last_frame_hash: str
    """See `end_of`."""


def fingerprint(episode: Episode) -> str:
    """SHA-256 of what the episode shows, the same whatever it is called and whatever is asked for."""
    return episode.fingerprint if isinstance(episode, IndexedEpisode) else hash_views(episode.views)


def hash_last_frame(episode: Episode) -> str:
    """SHA-256 of what its last moment shows."""
    if isinstance(episode, IndexedEpisode):
        return episode.last_frame_hash
    return hash_views({name: frames[-1] for name, frames in episode.views.items()})


def check_no_overlap(training: Mapping[str, str], held_out: Mapping[str, str], kind: str = "episode") -> None:
    """Both map fingerprints (of episodes, or of the `scene` that they say they began in) to episode names.

    Raises `DataError` when one is on both sides of the split.
    """
    for key in sorted(training.keys() & held_out.keys()):
        raise DataError(
            f"{held_out[key]}: held out, but the same {kind} is trained on (as {training[key]}); "
            f"its scores would say nothing about unseen {kind}s"
        )


def hash_views(views: Mapping[str, npt.NDArray[Any]]) -> str:
    """SHA-256 of images and the names of their views."""
    digest = hashlib.sha256()
    for name in sorted(views):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(views[name]).data)
    return digest.hexdigest()

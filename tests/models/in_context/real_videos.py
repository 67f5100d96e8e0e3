"""Recordings of real robots for the tests of demonstrations in context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from real_data import REAL_DATA

from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.models.in_context.frozen_encoder import CachingEncoder, open_frozen_encoder
from embodied_rm.types import Episode, Frames

STRIDE = 3


@cache
def encoder() -> CachingEncoder:
    return CachingEncoder(open_frozen_encoder())


def with_frames(episode: Episode, make: Callable[[Frames], Frames]) -> Episode:
    """Return the episode with other frames, made of those of each view."""
    return replace(episode, views={name: make(frames) for name, frames in episode.views.items()})


@cache
def bridge(name: str) -> Episode:
    source = open_dataset(REAL_DATA / "bridge_rollouts")
    row = [meta.name for meta in source.meta].index(name)
    return source.episode(row, size=(224, 224), stride=STRIDE)

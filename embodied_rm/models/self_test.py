"""What a model says of pictures that are always the same: written down when it is made, asked again before it serves.

A model that says something else than it did runs in another way than it was made: another library, a broken kernel, a
processor that cannot be trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.base import Memory, RewardModel, Sight
from embodied_rm.types import Array, Views

ROWS, FRAMES, SIDE = 2, 3, 64
INSTRUCTION = "lift the red cube"
CLOSE = 1e-4
"""How far two machines may differ."""
STORED = "self_test"
"""In a manifest: what was said."""


class Examined(NamedTuple):
    """What came out of it."""

    said: Array
    """float32 [`FRAMES`, `ROWS`]: the progress."""
    memory: Memory
    """Of those episodes, at their end."""


def examined(model: RewardModel, sight: Sight) -> Examined:
    """Ask the model about pictures that follow from nothing but their number."""
    names = sight.views or ("front",)
    shape = (ROWS, len(names), *(sight.image_size or (SIDE, SIDE)), 3)
    rng = np.random.Generator(np.random.PCG64(0))
    films = [rng.integers(0, 256, shape, np.uint8) for _ in range(FRAMES + 1)]
    memory = model.begin(Views(names=names, frames=films[0]), [INSTRUCTION] * ROWS)
    said = []
    for frames in films[1:]:
        progress, memory = model.advance(memory, Views(names=names, frames=frames))
        said.append(progress.value)
    return Examined(np.array(said, np.float32), memory)


def written(model: RewardModel, sight: Sight) -> list[list[float]] | None:
    """What it says, for its manifest; None of one that says nothing without a goal or a reference."""
    try:
        return examined(model, sight).said.tolist()
    except UserError:
        return None


def expected_of(manifest: Mapping[str, Any]) -> Array | None:
    """What was written down; None: nothing was. Raises `CheckpointError` for what is no such thing."""
    stored = manifest.get(STORED)
    if stored is None:
        return None
    try:
        said = np.array(stored, np.float32)
    except (TypeError, ValueError):
        said = np.zeros(0, np.float32)
    if said.shape != (FRAMES, ROWS):
        raise CheckpointError(f"its {STORED} is no judgement of {FRAMES} frames of {ROWS} episodes")
    return said


def passed(said: Array, expected: Array | None) -> bool:
    """Whether it judges as it did, or where nobody knows how it did, says numbers."""
    sound = bool(np.isfinite(said).all())
    return sound and (expected is None or bool(np.allclose(said, expected, atol=CLOSE, rtol=0)))

"""What a model says of images that are always the same: written down when it is made, asked again before it serves.

A model that says something else than it did runs in another way than it was made: another library, a broken kernel, a
processor that cannot be trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.reward_model import InputSpec, RewardModel, RewardState
from embodied_rm.types import Array, Views

NUM_EPISODES, NUM_FRAMES, IMAGE_SIDE_PX = 2, 3, 64
INSTRUCTION = "lift the red cube"
ABS_TOLERANCE = 1e-4
"""How far two machines may differ."""
MANIFEST_KEY = "self_test"
"""In a manifest: what was said."""


class SelfTestResult(NamedTuple):
    """What came out of it."""

    progress: Array
    """float32 [`FRAMES`, `ROWS`]: the progress."""
    state: RewardState
    """Of those episodes, at their end."""


def run_self_test(model: RewardModel, input_spec: InputSpec) -> SelfTestResult:
    """Ask the model about images that follow from nothing but their number."""
    names = input_spec.views or ("front",)
    shape = (NUM_EPISODES, len(names), *(input_spec.image_size or (IMAGE_SIDE_PX, IMAGE_SIDE_PX)), 3)
    rng = np.random.Generator(np.random.PCG64(0))
    frame_sets = [rng.integers(0, 256, shape, np.uint8) for _ in range(NUM_FRAMES + 1)]
    state = model.reset(Views(names=names, frames=frame_sets[0]), [INSTRUCTION] * NUM_EPISODES)
    values = []
    for frames in frame_sets[1:]:
        output, state = model.step(state, Views(names=names, frames=frames))
        values.append(output.progress)
    return SelfTestResult(np.array(values, np.float32), state)


def self_test_values(model: RewardModel, input_spec: InputSpec) -> list[list[float]] | None:
    """What it says, for its manifest; None of one that says nothing without a goal or a reference."""
    try:
        return run_self_test(model, input_spec).progress.tolist()
    except UserError:
        return None


def read_expected(manifest: Mapping[str, Any]) -> Array | None:
    """What was written down; None: nothing was. Raises `CheckpointError` for what is no such thing."""
    stored = manifest.get(MANIFEST_KEY)
    if stored is None:
        return None
    try:
        values = np.array(stored, np.float32)
    except (TypeError, ValueError):
        values = np.zeros(0, np.float32)
    if values.shape != (NUM_FRAMES, NUM_EPISODES):
        raise CheckpointError(f"its {MANIFEST_KEY} is no prediction of {NUM_FRAMES} frames of {NUM_EPISODES} episodes")
    return values


def matches_expected(values: Array, expected: Array | None) -> bool:
    """Whether it judges as it did, or where nobody knows how it did, says numbers."""
    finite = bool(np.isfinite(values).all())
    return finite and (expected is None or bool(np.allclose(values, expected, atol=ABS_TOLERANCE, rtol=0)))

"""A self-test of reward models: predictions on fixed images, stored with the checkpoint and compared before serving.

Other predictions than the stored ones mean another environment: another library version, a broken kernel or a faulty
processor.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.reward_model import InputSpec, RewardModel, RewardState
from embodied_rm.types import Array, Views

NUM_EPISODES, NUM_FRAMES, IMAGE_SIDE_PX = 2, 3, 64
INSTRUCTION = "lift the red cube"
ABS_TOLERANCE = 1e-4  # largest permitted difference between two machines, in progress
MANIFEST_KEY = "self_test"  # manifest key of the stored predictions


class SelfTestResult(NamedTuple):
    """Result of a self-test."""

    progress: Array  # float32 [`NUM_FRAMES`, `NUM_EPISODES`]: the predicted progress
    state: RewardState  # state of the episodes at their end


def run_self_test(model: RewardModel, input_spec: InputSpec) -> SelfTestResult:
    """Score images from a fixed random seed, with the views and the size of `input_spec`."""
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
    """Predicted progress for the manifest; None for a model that needs a goal or a reference.

    `CheckpointError` if it is not finite, as of a model whose training diverged.
    """
    try:
        progress = run_self_test(model, input_spec).progress
    except UserError:
        return None
    if not np.isfinite(progress).all():
        raise CheckpointError("refusing to save a model whose progress is not finite")
    return progress.tolist()


def read_expected(manifest: Mapping[str, Any]) -> Array | None:
    """Read the stored predictions, float32 [`NUM_FRAMES`, `NUM_EPISODES`], from a manifest; None if it has none.

    `CheckpointError` if the entry has another type or shape.
    """
    stored = manifest.get(MANIFEST_KEY)
    if stored is None:
        return None
    try:
        values = np.array(stored, np.float32)
    except (TypeError, ValueError):
        values = np.zeros(0, np.float32)
    if values.shape != (NUM_FRAMES, NUM_EPISODES):
        raise CheckpointError(f"its {MANIFEST_KEY} must hold {NUM_FRAMES} frames of {NUM_EPISODES} episodes")
    return values


def matches_expected(values: Array, expected: Array | None) -> bool:
    """Whether predictions agree with the stored ones. Without stored ones: whether all are finite."""
    finite = bool(np.isfinite(values).all())
    return finite and (expected is None or bool(np.allclose(values, expected, atol=ABS_TOLERANCE, rtol=0)))

"""A self-test of reward models: predictions on fixed images, stored with the checkpoint and compared before serving.

Other predictions than the stored ones mean another environment: another library version, a broken kernel or a faulty
processor.
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.reward_model import InputSpec, RewardModel, RewardState
from embodied_rm.types import Array, RewardOutput, Views

NUM_EPISODES, NUM_FRAMES, IMAGE_SIDE_PX = 2, 3, 64
INSTRUCTION = "lift the red cube"
ABS_TOLERANCE, RELATIVE_TOLERANCE = 1e-4, 1e-3  # largest permitted differences between two machines
ODDS_TOLERANCE = 1e-2  # largest permitted relative difference of a success probability p, or of 1 - p: p may be tiny
FLOAT_EPSILON = float(np.finfo(np.float32).eps)
MANIFEST_KEY = "self_test"  # manifest key of the stored predictions
OUTPUT_NAMES = tuple(field.name for field in fields(RewardOutput))
Outputs = dict[str, Array]
"""Name of an output -> float64 [`NUM_FRAMES`, `NUM_EPISODES`], nan where the model does not predict it."""


class SelfTestResult(NamedTuple):
    """Result of a self-test."""

    outputs: Outputs  # every output of the model
    state: RewardState  # state of the episodes at their end


def run_self_test(model: RewardModel, input_spec: InputSpec) -> SelfTestResult:
    """Score images from a fixed random seed, with the views and the size of `input_spec`."""
    names = input_spec.views or ("front",)
    shape = (NUM_EPISODES, len(names), *(input_spec.image_size or (IMAGE_SIDE_PX, IMAGE_SIDE_PX)), 3)
    rng = np.random.Generator(np.random.PCG64(0))
    frame_sets = [rng.integers(0, 256, shape, np.uint8) for _ in range(NUM_FRAMES + 1)]
    state = model.reset(Views(names=names, frames=frame_sets[0]), [INSTRUCTION] * NUM_EPISODES)
    predictions = list[RewardOutput]()
    for frames in frame_sets[1:]:
        output, state = model.step(state, Views(names=names, frames=frames))
        predictions.append(output)
    outputs = {name: np.array([getattr(output, name) for output in predictions], float) for name in OUTPUT_NAMES}
    return SelfTestResult(outputs, state)


def self_test_values(model: RewardModel, input_spec: InputSpec) -> dict[str, list[list[float | None]]] | None:
    """Predictions for the manifest, None for nan; None for a model that needs a goal or a reference.

    `CheckpointError` if its progress is not finite, as of a model whose training diverged.
    """
    try:
        outputs = run_self_test(model, input_spec).outputs
    except UserError:
        return None
    if not np.isfinite(outputs["progress"]).all():
        raise CheckpointError("refusing to save a model whose progress is not finite")
    return {
        name: [[None if math.isnan(value) else value for value in row] for row in values.tolist()]
        for name, values in outputs.items()
    }


def read_expected(manifest: Mapping[str, Any]) -> Outputs | None:
    """Read the stored predictions from a manifest; None if it has none. Earlier versions stored the progress alone.

    `CheckpointError` if the entry has another type or shape.
    """
    stored = manifest.get(MANIFEST_KEY)
    if stored is None:
        return None
    stored = {"progress": stored} if isinstance(stored, list) else stored
    try:
        expected = {str(name): np.array(values, float) for name, values in stored.items()}
    except (AttributeError, TypeError, ValueError, OverflowError):
        expected = {}
    shapes = {values.shape for values in expected.values()}
    if "progress" not in expected or not expected.keys() <= set(OUTPUT_NAMES) or shapes != {(NUM_FRAMES, NUM_EPISODES)}:
        raise CheckpointError(f"its {MANIFEST_KEY} must hold {NUM_FRAMES} frames of {NUM_EPISODES} episodes per output")
    return expected


def matches_expected(outputs: Outputs, expected: Outputs | None) -> bool:
    """Whether predictions agree with the stored ones. Without stored ones: whether they are finite."""
    finite = bool(np.isfinite(outputs["progress"]).all()) and not any(np.isinf(v).any() for v in outputs.values())
    return finite and all(_agrees(name, outputs[name], values) for name, values in (expected or {}).items())


def _agrees(name: str, values: Array, expected: Array) -> bool:
    if name == "success":
        tolerance = FLOAT_EPSILON + ODDS_TOLERANCE * np.minimum(expected, 1 - expected)
    else:
        tolerance = ABS_TOLERANCE + RELATIVE_TOLERANCE * np.abs(expected)
    both_nan = np.isnan(values) & np.isnan(expected)
    return bool((both_nan | (np.abs(values - expected) <= tolerance)).all())

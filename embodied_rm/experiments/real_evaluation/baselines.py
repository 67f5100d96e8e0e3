"""Baselines of a reward from a demonstration: without images, without an encoder, without a filter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch

from embodied_rm.models.in_context.appearance import make_appearance, squared_distances
from embodied_rm.models.in_context.demonstration_model import DemonstrationModel
from embodied_rm.types import Array, Frames

PIXEL_STRIDE = 8  # every 8th pixel along both sides is compared


class BaselineInput(NamedTuple):
    """A demonstration and a video, frames uint8 [T, V, H, W, 3] each, and the model of the demonstration."""

    demonstration: Frames
    video: Frames
    model: DemonstrationModel


def clock(given: BaselineInput) -> Array:
    """Progress by elapsed frames, 1 at the length of the demonstration."""
    elapsed = np.arange(len(given.video)) / max(len(given.demonstration) - 1, 1)
    return np.minimum(elapsed, 1).astype(np.float32)


def constant(given: BaselineInput) -> Array:
    """Always a half."""
    return np.full(len(given.video), 0.5, np.float32)


def frame_distance(given: BaselineInput) -> Array:
    """How near the pixels are to the last frame of the demonstration: a half at the distance of its first frame."""

    def thin(frames: Frames) -> Array:
        return frames[:, :, ::PIXEL_STRIDE, ::PIXEL_STRIDE].astype(np.float32).reshape(len(frames), -1)

    first, last = thin(given.demonstration[:1]), thin(given.demonstration[-1:])
    distance = np.linalg.norm(thin(given.video) - last, axis=1)
    scale = max(float(np.linalg.norm(first - last)), 1e-6)
    return (scale / (scale + distance)).astype(np.float32)


def nearest_keyframe(given: BaselineInput) -> Array:
    """Progress of the keyframe that looks most alike: the encoder's features without the filter."""
    model, (demonstration,) = given.model, given.model.demonstrations
    distances = torch.zeros(len(given.video), len(demonstration))
    for v, name in enumerate(model.views):
        coarse = make_appearance(model.encoder.encode(given.video[:, v])).coarse
        distances += squared_distances(coarse, demonstration.views[name].coarse)
    return demonstration.progress[distances.argmin(dim=1)].numpy()


BASELINES: Mapping[str, Callable[[BaselineInput], Array]] = {
    "clock": clock,
    "constant": constant,
    "frame distance": frame_distance,
    "nearest keyframe": nearest_keyframe,
}

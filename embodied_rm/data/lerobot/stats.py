"""Feature statistics in LeRobot's format: min, max, mean, std and count, per episode and aggregated."""

from collections.abc import Iterable
from functools import reduce

import numpy as np
import numpy.typing as npt

from embodied_rm.types import Frames

FeatureStats = dict[str, npt.NDArray[np.float64]]
""""min", "max", "mean", "std" (population) of the feature's shape, and "count" [1]."""

MAX_IMAGES_PER_EPISODE = 100
"""Number of evenly spaced images per episode used for statistics (LeRobot uses as many for a short episode)."""


def column_stats(column: npt.NDArray[np.generic]) -> FeatureStats:
    """Compute statistics of a column [T] or [T, D] over T; shapes [1] or [D]."""
    values = np.asarray(column, np.float64).reshape(len(column), -1)
    stats: FeatureStats = {name: getattr(values, name)(0) for name in ("min", "max", "mean", "std")}
    return {**stats, "count": np.array([len(values)], np.int64)}


def image_stats(frames: Frames) -> FeatureStats:
    """Compute statistics of uint8 [T, H, W, 3] over sampled frames and pixels, scaled to [0, 1]; shape [3, 1, 1]."""
    indices = np.unique(np.linspace(0, len(frames) - 1, MAX_IMAGES_PER_EPISODE).round().astype(np.int64))
    sample = frames[indices]
    channels = np.ascontiguousarray(sample.reshape(-1, 3).T)
    mean = channels.sum(1, dtype=np.uint64) / channels.shape[1]
    mean_square = np.square(channels, dtype=np.uint16).sum(1, dtype=np.uint64) / channels.shape[1]
    std = np.sqrt(np.maximum(mean_square - mean**2, 0.0))
    values = {"min": channels.min(1), "max": channels.max(1), "mean": mean, "std": std}
    stats: FeatureStats = {name: (value / 255.0).reshape(3, 1, 1) for name, value in values.items()}
    return {**stats, "count": np.array([len(sample)], np.int64)}


def aggregate_stats(parts: Iterable[FeatureStats]) -> FeatureStats:
    """Combine statistics of disjoint samples (Chan, Golub, LeVeque 1979: pairwise update of mean and variance)."""
    return reduce(_merge_stats, parts)


def _merge_stats(a: FeatureStats, b: FeatureStats) -> FeatureStats:
    weight = b["count"][0] / (a["count"][0] + b["count"][0])
    delta = b["mean"] - a["mean"]
    variance = (1 - weight) * a["std"] ** 2 + weight * b["std"] ** 2 + weight * (1 - weight) * delta**2
    return {
        "min": np.minimum(a["min"], b["min"]),
        "max": np.maximum(a["max"], b["max"]),
        "mean": a["mean"] + weight * delta,
        "std": np.sqrt(variance),
        "count": a["count"] + b["count"],
    }

"""One potential out of several perspectives: from the previous frame, the first frame, the goal, a reference (pure).

The first three are the same formula, a hop applied to the potential of its anchor: the previous frame's is carried,
the first frame's is 0, the goal's is 1. The last is where on a demonstration's way the frame is found
(`models.reference`). All arrays are float32 [N].
Source: Robo-Dopamine (arXiv 2512.23703), section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from embodied_rm.types import Array

FusionKind = Literal["mean", "inverse_variance", "consistent", "min", "incremental", "forward", "backward", "reference"]
"""Both fusions of the paper, the one by expected errors, the most careful one, and each perspective alone; backward
needs a goal, reference a demonstration."""
FUSION_KINDS: tuple[FusionKind, ...] = get_args(FusionKind)
FIRST_POTENTIAL = 0.0
GOAL_POTENTIAL = 1.0
CONSISTENCY_ALPHA = 2.0
"""How fast disagreement of the two anchors lowers their weight (alpha of the paper, which gives no value)."""
HOP_ERROR = 0.02
"""Error that a hop from the previous frame adds to what was carried. From 0.01 to 0.08 it made no difference of 0.0005
in error on the calibration episodes of two models."""

MEAN_EPSILON = 1e-2
"""Added to the mean by which disagreement is divided: near 0 a relative difference means nothing."""


class FusedPotential(NamedTuple):
    """What is made of the perspectives of N rows."""

    potential: Array
    expected_error: Array
    """The expected error of it, as it is carried on."""
    uncertainty: Array
    """See `spread`."""


def fuse_perspectives(
    kind: FusionKind,
    previous: Array,
    previous_error: Array,
    hops: Array,
    error: Array,
    reference_potential: Array | None,
) -> FusedPotential:
    """The next potential of N rows whose last one was `carried`, with that `doubt`.

    `hops` [A, N]: from the previous, the first and perhaps the goal frame; `error`: expected of what is seen from the
    first; `located`: the potential on a reference's way, where there is one.
    """
    anchors: dict[str, npt.ArrayLike] = {
        "incremental": previous,
        "forward": FIRST_POTENTIAL,
        "backward": GOAL_POTENTIAL,
    }
    perspectives = {name: apply_hop(anchors[name], hop) for name, hop in zip(anchors, hops, strict=False)}
    if reference_potential is not None:
        perspectives["reference"] = reference_potential
    inverse_variance = kind == "inverse_variance"
    weight = hop_weight(previous_error, hops[0], error) if inverse_variance else np.float32(0.5)
    potential = fuse(kind, previous, perspectives, weight)
    next_error = propagate_error(previous_error, hops[0], error, weight, HOP_ERROR if inverse_variance else 0.0)
    return FusedPotential(potential, next_error, total_uncertainty(next_error, perspectives))


def apply_hop(anchor: npt.ArrayLike, hop: npt.ArrayLike) -> Array:
    """The potential after a hop in [-1, 1] from an anchor in [0, 1]: the inverse of `labels.hops.hop`, in [0, 1].

    A hop forwards takes its share of what is left, a hop backwards its share of what was gained (equation 4).
    """
    anchor, hop = np.asarray(anchor, np.float32), np.asarray(hop, np.float32)
    return anchor + np.where(hop >= 0, 1 - anchor, anchor) * hop


def fuse(
    kind: FusionKind, previous: npt.ArrayLike, perspectives: Mapping[str, Array], weight: npt.ArrayLike = 0.5
) -> Array:
    """The potential in [0, 1] that this fusion makes of the perspectives there are.

    `previous`: the carried potential; `share`: what a step counts beside the anchors, see `step_share`. A single
    perspective must be among them.
    """
    if kind == "mean":
        fused = fuse_mean(perspectives)
    elif kind == "inverse_variance":
        fused = fuse_inverse_variance(perspectives, weight)
    elif kind == "consistent":
        fused = fuse_consistent(previous, perspectives)
    elif kind == "min":
        fused = np.min(list(perspectives.values()), axis=0)
    else:
        fused = perspectives[kind]
    return np.clip(fused, 0, 1)


def fuse_mean(perspectives: Mapping[str, Array]) -> Array:
    """The plain mean of the potentials of whatever perspectives there are."""
    return np.mean(list(perspectives.values()), axis=0, dtype=np.float32)


def fuse_consistent(
    previous: npt.ArrayLike, perspectives: Mapping[str, Array], alpha: float = CONSISTENCY_ALPHA
) -> Array:
    """Half a step towards the anchored potential and half an incremental step, smaller where the anchors disagree.

    w = exp(-sharpness * (|backward - forward| / mean)^2); previous + w / 2 * ((mean - previous) + (incremental -
    previous)). Without a goal there is no disagreement to see: w = 1, the plain mean.
    """
    previous = np.asarray(previous, np.float32)
    anchored = np.stack([value for name, value in perspectives.items() if name != "incremental"])
    anchor_mean = anchored.mean(axis=0)
    disagreement = np.ptp(anchored, axis=0) / (anchor_mean + MEAN_EPSILON)
    weight = np.exp(-alpha * disagreement**2)
    return previous + weight / 2 * ((anchor_mean - previous) + (perspectives["incremental"] - previous))


def fuse_inverse_variance(perspectives: Mapping[str, Array], weight: npt.ArrayLike) -> Array:
    """`share` [N] of the step from the previous frame, and the rest of the mean of what is seen from the anchors."""
    anchored = np.mean([value for name, value in perspectives.items() if name != "incremental"], axis=0)
    w = np.asarray(weight, np.float32)
    return np.asarray(w * perspectives["incremental"] + (1 - w) * anchored, np.float32)


def hop_weight(previous_error: Array, hop: Array, error: Array) -> Array:
    """float32 in [0, 1]: what the step from the previous frame counts beside the anchors, each by the inverse of its
    squared error, as in a Kalman filter: the carried one with that of the step, and `error`."""
    carried, anchor_error = propagated_error(previous_error, hop) + HOP_ERROR, np.asarray(error)
    return (anchor_error**2 / (anchor_error**2 + carried**2)).astype(np.float32)


def propagated_error(previous_error: Array, hop: Array) -> Array:
    """What is left of an error of the carried potential after a `hop`: through `apply_hop` it goes with slope
    1 - |hop|."""
    return (1 - np.abs(hop)) * previous_error


def propagate_error(
    previous_error: Array, hop: Array, error: Array, weight: npt.ArrayLike = 0.5, hop_error: float = 0.0
) -> Array:
    """The expected error of the potential after a `hop` from the previous frame, where it was `doubt`.

    That of two perspectives, whatever the fusion: of the anchored one `error` is expected; the other, of the carried
    potential and of a step that adds `step_error`, counts `share`.
    """
    hop_term = np.asarray(weight) * (propagated_error(previous_error, hop) + hop_error)
    return (hop_term + (1 - np.asarray(weight)) * error).astype(np.float32)


def total_uncertainty(expected_error: Array, perspectives: Mapping[str, Array]) -> Array:
    """The expected error and the disagreement (standard deviation) of the perspectives, root of the sum of squares."""
    return np.hypot(expected_error, np.std(list(perspectives.values()), axis=0, dtype=np.float32))

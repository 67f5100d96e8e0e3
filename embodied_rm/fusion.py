"""One potential out of several perspectives: from the previous frame, the first frame, the goal, a reference (pure).

The first three are the same formula, a hop applied to the potential of its anchor: the previous frame's is carried,
the first frame's is 0, the goal's is 1. The last is where on a demonstration's way the frame is found
(`models.reference`). All arrays are float32 [N].
Source: Robo-Dopamine (arXiv 2512.23703), section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from embodied_rm.types import Array

Fusion = Literal["mean", "consistent", "least", "incremental", "forward", "backward", "reference"]
"""Both fusions of the paper, the most careful one, and each perspective alone; backward needs a goal, reference a
demonstration."""
FUSIONS: tuple[Fusion, ...] = get_args(Fusion)
FIRST = 0.0
GOAL = 1.0
SHARPNESS = 2.0
"""How fast disagreement of the two anchors lowers their weight (alpha of the paper, which gives no value)."""


GUARD = 1e-2
"""Added to the mean by which disagreement is divided: near 0 a relative difference means nothing."""


def apply_hop(anchor: npt.ArrayLike, hop: npt.ArrayLike) -> Array:
    """The potential after a hop in [-1, 1] from an anchor in [0, 1]: the inverse of `labels.hops.hop`, in [0, 1].

    A hop forwards takes its share of what is left, a hop backwards its share of what was gained (equation 4).
    """
    anchor, hop = np.asarray(anchor, np.float32), np.asarray(hop, np.float32)
    return anchor + np.where(hop >= 0, 1 - anchor, anchor) * hop


def fuse(kind: Fusion, previous: npt.ArrayLike, perspectives: Mapping[str, Array]) -> Array:
    """The potential in [0, 1] that this fusion makes of the perspectives there are.

    `previous`: the carried potential. A single perspective must be among them.
    """
    if kind == "mean":
        fused = fuse_mean(perspectives)
    elif kind == "consistent":
        fused = fuse_consistent(previous, perspectives)
    elif kind == "least":
        fused = np.min(list(perspectives.values()), axis=0)
    else:
        fused = perspectives[kind]
    return np.clip(fused, 0, 1)


def fuse_mean(perspectives: Mapping[str, Array]) -> Array:
    """The plain mean of the potentials of whatever perspectives there are."""
    return np.mean(list(perspectives.values()), axis=0, dtype=np.float32)


def fuse_consistent(previous: npt.ArrayLike, perspectives: Mapping[str, Array], sharpness: float = SHARPNESS) -> Array:
    """Half a step towards the anchored potential and half an incremental step, smaller where the anchors disagree.

    w = exp(-sharpness * (|backward - forward| / mean)^2); previous + w / 2 * ((mean - previous) + (incremental -
    previous)). Without a goal there is no disagreement to see: w = 1, the plain mean.
    """
    previous = np.asarray(previous, np.float32)
    anchored = np.stack([value for name, value in perspectives.items() if name != "incremental"])
    centre = anchored.mean(axis=0)
    disagreement = np.ptp(anchored, axis=0) / (centre + GUARD)
    weight = np.exp(-sharpness * disagreement**2)
    return previous + weight / 2 * ((centre - previous) + (perspectives["incremental"] - previous))


def carry_doubt(doubt: Array, hop: Array, error: Array) -> Array:
    """The expected error of the potential after a `hop` from the previous frame, where it was `doubt`.

    The mean over two perspectives, whatever the fusion: of the anchored one `error` is expected; through `apply_hop`
    an error of the carried potential goes with slope 1 - |hop|.
    """
    return np.mean([(1 - np.abs(hop)) * doubt, error], axis=0, dtype=np.float32)


def spread(doubt: Array, perspectives: Mapping[str, Array]) -> Array:
    """The expected error and the disagreement (standard deviation) of the perspectives, root of the sum of squares."""
    return np.hypot(doubt, np.std(list(perspectives.values()), axis=0, dtype=np.float32))

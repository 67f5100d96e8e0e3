"""Failures are paid by how like the successes of the same batch they ended.

Source: SRPO: 1 for a success; 0.6 sigmoid(10 (0.5 - d)) for a failure, d its distance to the nearest success among
embeddings, from 0 to 1 over the failures of the batch; 0 where nothing succeeded. Their clusters of successes (DBSCAN,
eps 0.5) are left out: standardised vectors of D dimensions are about sqrt(2 D) apart, and none would be in a cluster.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from embodied_rm.rewards.steps import Floats, Steps, Terms

MOST, STEEPNESS, MIDDLE = 0.6, 10.0, 0.5


def pay(steps: Steps, terms: Terms) -> Floats:
    """scale times that, at the end of an episode. Arrays [T, N]; `steps.embedding` [T, N, D] is needed."""
    assert steps.embedding is not None
    failed = steps.ended & ~steps.achieved
    if steps.diverged is not None:  # such an end looks like nothing, and would set the scale for the others
        failed &= ~steps.diverged
    reward = np.where(steps.achieved, 1.0, 0.0)
    if steps.achieved.any() and failed.any():
        distance = nearest(steps.embedding[failed], steps.embedding[steps.achieved])
        reward[failed] = MOST / (1 + np.exp(-STEEPNESS * (MIDDLE - spread(distance))))
    return terms.scale * reward


def nearest(points: Floats, others: Floats) -> Floats:
    """[P]: Euclidean distance of points [P, D] to the nearest of others [O, D], each dimension in units of its standard
    deviation over all of them."""
    everything = np.concatenate([points, others])
    unit = np.maximum(everything.std(axis=0), 1e-6)
    return cdist(points / unit, others / unit).min(axis=1)


def spread(values: Floats) -> Floats:
    """The values from 0 to 1; all 0 where they are equal."""
    width = np.ptp(values)
    return (values - values.min()) / width if width > 0 else np.zeros_like(values)

"""Failures are paid by how like the successes of the same batch they ended.

Source: SRPO: 1 for a success; 0.6 sigmoid(10 (0.5 - d)) for a failure, d its distance to the nearest success among
embeddings, from 0 to 1 over the failures of the batch; 0 where nothing succeeded. Their clusters of successes (DBSCAN,
eps 0.5) are left out: standardised vectors of D dimensions are about sqrt(2 D) apart, and none would be in a cluster.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions

MAX_FAILURE_REWARD, SIGMOID_STEEPNESS, SIGMOID_MIDPOINT = 0.6, 10.0, 0.5


def compute_reward(transitions: Transitions, params: RewardParams) -> FloatArray:
    """scale times that, at the end of an episode. Arrays [T, N]; `steps.embedding` [T, N, D] is needed."""
    assert transitions.embedding is not None
    failed = transitions.done & ~transitions.is_success
    if transitions.diverged is not None:  # such an end looks like nothing, and would set the scale for the others
        failed &= ~transitions.diverged
    reward = np.where(transitions.is_success, 1.0, 0.0)
    if transitions.is_success.any() and failed.any():
        distance = nearest_distance(transitions.embedding[failed], transitions.embedding[transitions.is_success])
        reward[failed] = MAX_FAILURE_REWARD / (
            1 + np.exp(-SIGMOID_STEEPNESS * (SIGMOID_MIDPOINT - min_max_scale(distance)))
        )
    return params.scale * reward


def nearest_distance(points: FloatArray, others: FloatArray) -> FloatArray:
    """[P]: Euclidean distance of points [P, D] to the nearest of others [O, D], each dimension in units of its standard
    deviation over all of them."""
    all_points = np.concatenate([points, others])
    std = np.maximum(all_points.std(axis=0), 1e-6)
    return cdist(points / std, others / std).min(axis=1)


def min_max_scale(values: FloatArray) -> FloatArray:
    """The values from 0 to 1; all 0 where they are equal."""
    value_range = np.ptp(values)
    return (values - values.min()) / value_range if value_range > 0 else np.zeros_like(values)

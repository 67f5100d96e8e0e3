"""EPIC and STARC of two progress rewards, from the transitions that recordings show.

What is compared is the *unshaped* reward of a progress Phi, paid for the state that is reached: R(s, a, s') = Phi(s').
The reward that a policy is trained on, gamma Phi(s') - Phi(s), would say nothing: it is pure shaping, of which every
canonical shape leaves 0 whatever Phi is (Gleave et al., arXiv 2006.13900). The undiscounted gain is
no other choice: Phi(s') - Phi(s) = (gamma Phi(s') - Phi(s)) + (1 - gamma) Phi(s'), shaping and a positive scale.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from embodied_rm.metrics.reward_distance import Floats, normalized_l2_distance, pearson_distance, zero_if_negligible
from embodied_rm.types import IntArray


def epic_of_state_rewards(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """EPIC distance of two rewards paid for the state reached, Phi(s') [N] of N sampled transitions.

    The canonical shape of such a reward is Phi(s') - E[Phi(S')]: its EPIC distance is the Pearson distance, at every
    discount. In [0, 1]; `nan` when either is constant or N < 2. Samples weigh the same.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    assert a.shape == b.shape
    return math.nan if len(a) < 2 else pearson_distance(a, b, np.ones(len(a)))


def starc_of_transitions(
    first: npt.ArrayLike, second: npt.ArrayLike, start: npt.ArrayLike, end: npt.ArrayLike, gamma: float
) -> float:
    """STARC distance of two rewards [N] of N sampled transitions from cell `start` to cell `end`, ints >= 0 [N].

    The cells stand for the states of a finite MDP, a transition for an action, and whoever was recorded for the policy
    whose value levels: R - V(start) + gamma V(end), V by the transitions' frequencies. Rewards that differ by shaping
    with a potential of the cells have distance 0. Transitions into a cell that nothing leaves are left out: its value
    is unknown. In [0, 1], trivial rewards as in `starc_distance`; `nan` when no transition is left.
    """
    starts, ends = np.asarray(start, dtype=np.int64), np.asarray(end, dtype=np.int64)
    mask = _continuing_mask(starts, ends)
    if not mask.any():
        return math.nan
    cells, cell_ids = np.unique(np.concatenate([starts[mask], ends[mask]]), return_inverse=True)
    starts, ends = cell_ids[: mask.sum()], cell_ids[mask.sum() :]
    canonical_rewards = [
        _canonical_reward(np.asarray(r, dtype=np.float64)[mask], starts, ends, len(cells), gamma)
        for r in (first, second)
    ]
    return normalized_l2_distance(*canonical_rewards)


def _continuing_mask(start: IntArray, end: IntArray) -> npt.NDArray[np.bool_]:
    """Which transitions end where another of them starts; bool [N]."""
    mask = np.ones(len(start), dtype=bool)
    while True:
        next_mask = mask & np.isin(end, start[mask])
        if (next_mask == mask).all():
            return mask
        mask = next_mask


def _canonical_reward(reward: Floats, start: IntArray, end: IntArray, num_cells: int, gamma: float) -> Floats:
    """The reward less the value of where it starts, plus the discounted value of where it ends; [N]."""
    transition_counts, reward_sums, visits = (
        np.zeros((num_cells, num_cells)),
        np.zeros(num_cells),
        np.bincount(start, minlength=num_cells),
    )
    np.add.at(transition_counts, (start, end), 1.0)
    np.add.at(reward_sums, start, reward)
    value = np.linalg.solve(np.eye(num_cells) - gamma * transition_counts / visits[:, None], reward_sums / visits)
    return zero_if_negligible(reward, reward - value[start] + gamma * value[end], gamma)

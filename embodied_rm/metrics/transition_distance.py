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

from embodied_rm.metrics.reward_distance import Floats, left_of, levelled_distance, pearson_distance
from embodied_rm.types import IntArray


def epic_of_state_rewards(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """EPIC distance of two rewards paid for the state reached, Phi(s') [N] of N sampled transitions.

    The canonical shape of such a reward is Phi(s') - E[Phi(S')]: its EPIC distance is the Pearson distance, at every
    discount. In [0, 1]; `nan` when either is constant or N < 2. Samples weigh the same.
    """
    one, other = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    assert one.shape == other.shape
    return math.nan if len(one) < 2 else pearson_distance(one, other, np.ones(len(one)))


def starc_of_transitions(
    first: npt.ArrayLike, second: npt.ArrayLike, start: npt.ArrayLike, end: npt.ArrayLike, gamma: float
) -> float:
    """STARC distance of two rewards [N] of N sampled transitions from cell `start` to cell `end`, ints >= 0 [N].

    The cells stand for the states of a finite MDP, a transition for an action, and whoever was recorded for the policy
    whose value levels: R - V(start) + gamma V(end), V by the transitions' frequencies. Rewards that differ by shaping
    with a potential of the cells have distance 0. Transitions into a cell that nothing leaves are left out: its value
    is unknown. In [0, 1], trivial rewards as in `starc_distance`; `nan` when no transition is left.
    """
    begun, ended = np.asarray(start, dtype=np.int64), np.asarray(end, dtype=np.int64)
    kept = _leading_on(begun, ended)
    if not kept.any():
        return math.nan
    cells, numbers = np.unique(np.concatenate([begun[kept], ended[kept]]), return_inverse=True)
    begun, ended = numbers[: kept.sum()], numbers[kept.sum() :]
    levelled = [
        _levelled(np.asarray(r, dtype=np.float64)[kept], begun, ended, len(cells), gamma) for r in (first, second)
    ]
    return levelled_distance(*levelled)


def _leading_on(start: IntArray, end: IntArray) -> npt.NDArray[np.bool_]:
    """Which transitions end where another of them starts; bool [N]."""
    kept = np.ones(len(start), dtype=bool)
    while True:
        on = kept & np.isin(end, start[kept])
        if (on == kept).all():
            return kept
        kept = on


def _levelled(reward: Floats, start: IntArray, end: IntArray, cells: int, gamma: float) -> Floats:
    """The reward less the value of where it starts, plus the discounted value of where it ends; [N]."""
    chain, mean, visits = np.zeros((cells, cells)), np.zeros(cells), np.bincount(start, minlength=cells)
    np.add.at(chain, (start, end), 1.0)
    np.add.at(mean, start, reward)
    value = np.linalg.solve(np.eye(cells) - gamma * chain / visits[:, None], mean / visits)
    return left_of(reward, reward - value[start] + gamma * value[end], gamma)

"""EPIC and STARC: distances between reward functions of a finite MDP that forget what changes no policy.

Rewards are tables [S, A, S']: states, actions, next states. Both distances are 0 between rewards that differ by
potential shaping and positive scale, at most 1, and 1 between a reward and its negative.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

ROUNDING_TOLERANCE = 1e-9
"""A canonical reward smaller than this share of the reward is rounding: nothing is left of it."""


def epic_distance(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    gamma: float,
    states: npt.ArrayLike,
    actions: npt.ArrayLike,
    coverage: npt.ArrayLike | None = None,
) -> float:
    """EPIC distance of two reward tables [S, A, S'] (Gleave et al., ICLR 2021, arXiv 2006.13900).

    `states` [S] and `actions` [A]: distributions over which the canonical shape takes its means; `coverage`
    [S, A, S']: where the two are compared, `states` x `actions` x `states` when None. In [0, 1]; `nan` when nothing is
    left of either reward, a constant or mere shaping, or it is constant where it is compared.
    """
    state_probs, action_probs = np.asarray(states, dtype=np.float64), np.asarray(actions, dtype=np.float64)
    weights = (
        np.einsum("s,a,t->sat", state_probs, action_probs, state_probs)
        if coverage is None
        else np.asarray(coverage, dtype=np.float64)
    )
    a, b = (canonical_epic(np.asarray(r, dtype=np.float64), gamma, state_probs, action_probs) for r in (first, second))
    return pearson_distance(a.ravel(), b.ravel(), weights.ravel())


def canonical_epic(reward: Floats, gamma: float, states: Floats, actions: Floats) -> Floats:
    """R(s, a, s') + E[gamma R(s', A, S') - R(s, A, S') - gamma R(S, A, S')], with S, S' ~ `states`, A ~ `actions`."""
    mean = np.einsum("sat,a,t->s", reward, actions, states)
    return zero_if_negligible(
        reward, reward + gamma * mean[None, None, :] - mean[:, None, None] - gamma * states @ mean
    )


def starc_distance(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    gamma: float,
    transition: npt.ArrayLike,
    policy: npt.ArrayLike | None = None,
) -> float:
    """STARC distance of two reward tables [S, A, S'] (Skalse et al., ICLR 2024, arXiv 2309.15257).

    Value-adjusted levelling, the L2 norm, half the L2 distance. `transition` [S, A, S']: the MDP's; `policy` [S, A]:
    whose value levels, uniform when None; `gamma` < 1. In [0, 1]. A trivial reward, for which all policies are equally
    good, is 0 from another and 1/2 from any other reward.
    """
    transition_probs = np.asarray(transition, dtype=np.float64)
    policy_probs = (
        np.full(transition_probs.shape[:2], 1 / transition_probs.shape[1])
        if policy is None
        else np.asarray(policy, dtype=np.float64)
    )
    a, b = (
        canonical_val(np.asarray(r, dtype=np.float64), gamma, transition_probs, policy_probs) for r in (first, second)
    )
    return normalized_l2_distance(a.ravel(), b.ravel())


def canonical_val(reward: Floats, gamma: float, transition: Floats, policy: Floats) -> Floats:
    """E[R(s, a, S') - V(s) + gamma V(S')] with S' ~ `transition` and V the value of `policy`; [S, A].

    The advantage of that policy. It also forgets how a reward is spread over the next states.
    """
    expected = np.einsum("sat,sat->sa", transition, reward)
    chain = np.einsum("sa,sat->st", policy, transition)
    value = np.linalg.solve(np.eye(len(chain)) - gamma * chain, (policy * expected).sum(axis=1))
    return zero_if_negligible(reward, expected - value[:, None] + gamma * transition @ value, gamma)


def pearson_distance(first: Floats, second: Floats, weights: Floats) -> float:
    """sqrt((1 - rho) / 2) of two vectors [N] under weights [N] >= 0; in [0, 1], `nan` when either is constant there."""
    mask = weights > 0
    probs = weights[mask] / weights[mask].sum()
    a, b = (_normalize(zero_if_negligible(x[mask], x[mask] - probs @ x[mask]), probs) for x in (first, second))
    return _half_distance(a, b, probs) if a.any() and b.any() else math.nan


def normalized_l2_distance(first: Floats, second: Floats) -> float:
    """Half the L2 distance of two vectors [N] brought to length 1, a vector of zeros staying one; in [0, 1]."""
    ones = np.ones(len(first))
    return _half_distance(_normalize(first, ones), _normalize(second, ones), ones)


def zero_if_negligible(reward: Floats, canonical: Floats, gamma: float = 0.0) -> Floats:
    """The canonical reward, zeros when it is nothing but rounding; values are up to 1 / (1 - gamma) rewards."""
    scale = np.abs(reward).max(initial=0.0) / (1 - gamma)
    return canonical if np.abs(canonical).max(initial=0.0) > ROUNDING_TOLERANCE * scale else np.zeros_like(canonical)


def _normalize(vector: Floats, weights: Floats) -> Floats:
    norm = math.sqrt(weights @ vector**2)
    return vector / norm if norm > 0 else vector


def _half_distance(a: Floats, b: Floats, weights: Floats) -> float:
    """Of vectors of length 1 it is sqrt((1 - cosine) / 2)."""
    return min(1.0, math.sqrt(weights @ (a - b) ** 2) / 2)

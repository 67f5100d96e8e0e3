"""EPIC and STARC: distances between reward functions that ignore potential shaping and positive scale.

Rewards of a finite MDP are tables [S, A, S']: states, actions, next states. Both distances are in [0, 1]. They are 0
between rewards that differ by potential shaping and positive scale, and 1 between a reward and its negative.

From recorded transitions, the unshaped reward R(s, a, s') = Phi(s') of a progress Phi is compared. The training reward
gamma Phi(s') - Phi(s) is pure shaping: its canonical form is 0 for every Phi (Gleave et al., arXiv 2006.13900). The
undiscounted gain adds nothing: Phi(s') - Phi(s) = (gamma Phi(s') - Phi(s)) + (1 - gamma) Phi(s').
"""

import math

import numpy as np
import numpy.typing as npt

from embodied_rm.types import IntArray

Floats = npt.NDArray[np.float64]

ROUNDING_TOLERANCE = 1e-9  # fraction of the reward's scale below which a canonical reward counts as 0


def epic_distance(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    gamma: float,
    states: npt.ArrayLike,
    actions: npt.ArrayLike,
    coverage: npt.ArrayLike | None = None,
) -> float:
    """Return the EPIC distance of two reward tables [S, A, S'] (Gleave et al., ICLR 2021, arXiv 2006.13900), in [0, 1].

    The canonical form is that of the distributions `states` [S] and `actions` [A]. `coverage` [S, A, S'] weights the
    compared transitions; None: `states` x `actions` x `states`. `nan` if a canonical reward is constant there.
    """
    state_probs, action_probs = np.asarray(states, dtype=np.float64), np.asarray(actions, dtype=np.float64)
    if coverage is None:
        coverage = np.einsum("s,a,t->sat", state_probs, action_probs, state_probs)
    a, b = (canonical_epic(np.asarray(r, dtype=np.float64), gamma, state_probs, action_probs) for r in (first, second))
    return pearson_distance(a.ravel(), b.ravel(), np.asarray(coverage, dtype=np.float64).ravel())


def canonical_epic(reward: Floats, gamma: float, states: Floats, actions: Floats) -> Floats:
    """Return R(s, a, s') + E[gamma R(s', A, S') - R(s, A, S') - gamma R(S, A, S')], S, S' ~ `states`, A ~ `actions`."""
    mean = np.einsum("sat,a,t->s", reward, actions, states)
    canonical = reward + gamma * mean[None, None, :] - mean[:, None, None] - gamma * states @ mean
    return zero_if_negligible(reward, canonical)


def starc_distance(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    gamma: float,
    transition: npt.ArrayLike,
    policy: npt.ArrayLike | None = None,
) -> float:
    """Return the STARC distance of two reward tables [S, A, S'] (Skalse et al., ICLR 2024, arXiv 2309.15257).

    Uses value-adjusted levelling by a policy [S, A] (None: uniform), gamma < 1, the L2 norm and half the L2 distance. A
    trivial reward (all policies equally good) has distance 0 to another trivial one and 1/2 to any other reward.
    """
    probs = np.asarray(transition, dtype=np.float64)
    policy = np.asarray(np.full(probs.shape[:2], 1 / probs.shape[1]) if policy is None else policy, dtype=np.float64)
    a, b = (canonical_val(np.asarray(r, dtype=np.float64), gamma, probs, policy) for r in (first, second))
    return normalized_l2_distance(a.ravel(), b.ravel())


def canonical_val(reward: Floats, gamma: float, transition: Floats, policy: Floats) -> Floats:
    """Return the advantage [S, A] of a policy: E[R(s, a, S') - V(s) + gamma V(S')] with S' ~ `transition`.

    It also ignores how a reward is distributed over next states.
    """
    expected = np.einsum("sat,sat->sa", transition, reward)
    chain = np.einsum("sa,sat->st", policy, transition)
    value = np.linalg.solve(np.eye(len(chain)) - gamma * chain, (policy * expected).sum(axis=1))
    return zero_if_negligible(reward, expected - value[:, None] + gamma * transition @ value, gamma)


def pearson_distance(first: Floats, second: Floats, weights: Floats) -> float:
    """Return sqrt((1 - rho) / 2) in [0, 1] of two vectors [N] under weights [N] >= 0; `nan` if either is constant."""
    mask = weights > 0
    probs = weights[mask] / weights[mask].sum()
    a, b = (_normalize(zero_if_negligible(x[mask], x[mask] - probs @ x[mask]), probs) for x in (first, second))
    return _half_distance(a, b, probs) if a.any() and b.any() else math.nan


def normalized_l2_distance(first: Floats, second: Floats) -> float:
    """Return half the L2 distance, in [0, 1], of two vectors [N] scaled to length 1; a zero vector stays zero."""
    ones = np.ones(len(first))
    return _half_distance(_normalize(first, ones), _normalize(second, ones), ones)


def zero_if_negligible(reward: Floats, canonical: Floats, gamma: float = 0.0) -> Floats:
    """Return the canonical reward, or zeros if it is rounding error. Values are at most 1 / (1 - gamma) rewards."""
    scale = np.abs(reward).max(initial=0.0) / (1 - gamma)
    return canonical if np.abs(canonical).max(initial=0.0) > ROUNDING_TOLERANCE * scale else np.zeros_like(canonical)


def _normalize(vector: Floats, weights: Floats) -> Floats:
    norm = math.sqrt(weights @ vector**2)
    return vector / norm if norm > 0 else vector


def _half_distance(a: Floats, b: Floats, weights: Floats) -> float:
    """Return sqrt((1 - cosine) / 2) of two vectors of length 1."""
    return min(1.0, math.sqrt(weights @ (a - b) ** 2) / 2)


def epic_of_state_rewards(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return the EPIC distance of two rewards R(s, a, s') = Phi(s') of N sampled transitions of equal weight.

    The canonical form of such a reward is Phi(s') - E[Phi(S')]: the EPIC distance is the Pearson distance for every
    discount. `nan` if either is constant or N < 2.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    assert a.shape == b.shape
    return math.nan if len(a) < 2 else pearson_distance(a, b, np.ones(len(a)))


def starc_of_transitions(
    first: npt.ArrayLike, second: npt.ArrayLike, start: npt.ArrayLike, end: npt.ArrayLike, gamma: float
) -> float:
    """Return the STARC distance of two rewards [N] of sampled transitions between cells [N], int >= 0.

    Cells are the states of a finite MDP and transitions its actions; gamma < 1. The recorded policy levels the rewards:
    R - V(start) + gamma V(end), with V from the transition frequencies. Rewards that differ by shaping with a potential
    of the cells have distance 0, trivial rewards as in `starc_distance`. Transitions into a cell without outgoing
    transition are dropped: its value is unknown. `nan` if no transition is left.
    """
    starts, ends = np.asarray(start, dtype=np.int64), np.asarray(end, dtype=np.int64)
    mask = _continuing_mask(starts, ends)
    if not mask.any():
        return math.nan
    cells, cell_ids = np.unique(np.concatenate([starts[mask], ends[mask]]), return_inverse=True)
    starts, ends = cell_ids[: mask.sum()], cell_ids[mask.sum() :]
    rewards = (np.asarray(reward, dtype=np.float64)[mask] for reward in (first, second))
    return normalized_l2_distance(*(_canonical_reward(r, starts, ends, len(cells), gamma) for r in rewards))


def _continuing_mask(start: IntArray, end: IntArray) -> npt.NDArray[np.bool_]:
    """Return which transitions end in the start cell of another kept one; bool [N]."""
    mask = np.ones(len(start), dtype=bool)
    while True:
        next_mask = mask & np.isin(end, start[mask])
        if (next_mask == mask).all():
            return mask
        mask = next_mask


def _canonical_reward(reward: Floats, start: IntArray, end: IntArray, num_cells: int, gamma: float) -> Floats:
    """Return R - V(start) + gamma V(end); [N]."""
    transition_counts = np.zeros((num_cells, num_cells))
    reward_sums = np.zeros(num_cells)
    visits = np.bincount(start, minlength=num_cells)
    np.add.at(transition_counts, (start, end), 1.0)
    np.add.at(reward_sums, start, reward)
    value = np.linalg.solve(np.eye(num_cells) - gamma * transition_counts / visits[:, None], reward_sums / visits)
    return zero_if_negligible(reward, reward - value[start] + gamma * value[end], gamma)

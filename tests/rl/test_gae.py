"""Tests of GAE: a table computed by hand, and the invariance to shaping."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_rm.client.shaping import hold_potential, shaped_reward
from embodied_rm.rl.learner.gae import gae


def column(*values) -> np.ndarray:
    return np.array(values)[:, None]


def test_known_values() -> None:
    """Four steps with gamma 0.5 and lambda 0.5: a time limit after the second, success after the fourth."""
    advantage = gae(
        reward=column(1.0, 2.0, 3.0, 4.0),
        value=column(10.0, 20.0, 30.0, 40.0),
        next_value=column(20.0, 8.0, 40.0, 99.0),
        terminated=column(False, False, False, True),
        done=column(False, True, False, True),
        valid=column(True, True, True, True),
        gamma=0.5,
        lam=0.5,
    )
    # t=3: 4 + 0 - 40 = -36.                  t=2: (3 + 0.5 * 40 - 30) + 0.25 * -36 = -7 - 9 = -16.
    # t=1: 2 + 0.5 * 8 - 20 = -14, no trace.  t=0: (1 + 0.5 * 20 - 10) + 0.25 * -14 = 1 - 3.5 = -2.5.
    assert advantage[:, 0].tolist() == [-2.5, -14.0, -16.0, -36.0]


def test_invalid_transition_cuts_the_trace() -> None:
    """The numbers of an invalid transition are not read; the steps before it end with a bootstrap."""
    rng = np.random.default_rng(0)
    reward, value = rng.normal(size=(2, 5, 1))
    next_value = np.concatenate([value[1:], [[0.7]]])
    no, yes = np.zeros((5, 1), bool), np.ones((5, 1), bool)
    invalid = np.arange(5)[:, None] == 3
    invalid_reward, invalid_value = reward.copy(), value.copy()
    invalid_reward[3] = np.nan
    with_invalid = gae(invalid_reward, invalid_value, next_value, no, no, ~invalid, 0.9, 0.8)
    cut = gae(reward[:3], value[:3], next_value[:3], no[:3], no[:3], yes[:3], 0.9, 0.8)
    assert np.allclose(with_invalid[:3], cut)
    assert with_invalid[3] == 0 and np.isfinite(with_invalid).all()


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    gamma=st.floats(0.5, 1.0),
    lam=st.floats(0.0, 1.0),
    scale=st.floats(0, 5),
    score_every=st.integers(1, 4),
)
def test_shaping_only_shifts_the_critic(seed: int, gamma: float, lam: float, scale: float, score_every: int):
    """GAE on shaped rewards with the critic shifted by -Phi is GAE on raw rewards with the critic as it is.

    For random critics and potentials that are held between scores, with random terminations and time limits. A wrong
    mask, gamma or final observation fails the test.
    """
    rng = np.random.default_rng(seed)
    T, N = 25, 3
    terminated = rng.random((T, N)) < 0.1
    done = terminated | (rng.random((T, N)) < 0.1)
    reward, value, final_value = rng.normal(size=(3, T, N))
    next_value = np.where(done, final_value, np.concatenate([value[1:], rng.normal(size=(1, N))]))
    phi, next_phi = np.zeros((T, N)), np.zeros((T, N))
    held, since = rng.normal(size=N), np.zeros(N, int)
    for t in range(T):
        since += 1
        scored = (since == score_every) | done[t]
        phi[t], next_phi[t] = held, hold_potential(held, rng.normal(size=N), scored)
        since[scored] = 0
        held = np.where(done[t], rng.normal(size=N), next_phi[t])
    valid = np.ones((T, N), bool)
    shaped = shaped_reward(reward, phi, next_phi, terminated, gamma, scale=scale)
    expected = gae(reward, value, next_value, terminated, done, valid, gamma, lam)
    shifted = gae(shaped, value - scale * phi, next_value - scale * next_phi, terminated, done, valid, gamma, lam)
    assert np.allclose(shifted, expected, atol=1e-9)

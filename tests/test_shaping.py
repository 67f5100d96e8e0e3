"""Tests of potential-based shaping: it never changes the optimal policy."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embodied_rm.client.shaping import hold_potential, shaped_reward

finite = st.floats(-5, 5)
gammas = st.floats(0.5, 1.0)


@given(data=st.data(), length=st.integers(1, 30), gamma=gammas, scale=st.floats(0, 10), terminates=st.booleans())
def test_shaping_telescopes(data, length: int, gamma: float, scale: float, terminates: bool) -> None:
    """The discounted shaping of an episode depends only on its first and last potential; a terminal one is 0."""
    phi = data.draw(arrays(float, length + 1, elements=finite))
    steps = data.draw(arrays(int, length, elements=st.integers(1, 5)))
    elapsed = np.concatenate([[0], np.cumsum(steps)])
    terminated = np.arange(length) == length - 1 if terminates else np.zeros(length, bool)
    rewards = shaped_reward(0.0, phi[:-1], phi[1:], terminated, gamma, steps, scale)
    last = 0.0 if terminates else gamma ** elapsed[-1] * phi[-1]
    assert np.isclose((gamma ** elapsed[:-1] * rewards).sum(), scale * (last - phi[0]), atol=1e-6)


@given(data=st.data(), length=st.integers(1, 40), score_every=st.integers(1, 7), gamma=gammas, terminates=st.booleans())
def test_held_potentials_telescope_per_chunk(data, length, score_every, gamma, terminates) -> None:
    """With scores every k steps and at the end, the shaping of each chunk is gamma**k' Phi' - Phi."""
    scores = data.draw(arrays(float, length, elements=finite))
    first = data.draw(finite)
    held, rewards, boundaries = first, [], [0]
    for t in range(length):
        scored = (t + 1) % score_every == 0 or t == length - 1
        next_phi = hold_potential(held, scores[t], np.array(scored))
        terminated = terminates and t == length - 1
        rewards.append(shaped_reward(0.0, held, next_phi, terminated, gamma))
        held = next_phi
        if scored:
            boundaries.append(t + 1)
    phi = first
    for start, end in itertools.pairwise(boundaries):
        chunk = sum(gamma**i * r for i, r in enumerate(rewards[start:end]))
        last = terminates and end == length
        assert np.isclose(chunk, shaped_reward(0.0, phi, scores[end - 1], last, gamma, end - start), atol=1e-6)
        phi = scores[end - 1]


def test_rewards_broadcast_over_steps_and_environments() -> None:
    rewards = shaped_reward(
        np.ones((3, 2)), np.zeros(2), np.ones((3, 2)), np.zeros((3, 1), bool), 0.5, np.array([1, 2]), 2
    )
    assert np.allclose(rewards, [[2.0, 1.5]] * 3)


def random_mdp(rng: np.random.Generator, states: int = 6, actions: int = 3):
    """Return transitions [S, A, S], rewards [S, A, S], terminal states [S]."""
    transition = rng.dirichlet(np.full(states, 0.3), (states, actions))
    terminal = rng.random(states) < 0.3
    terminal[0] = False
    return transition, rng.normal(size=(states, actions, states)), terminal


def optimal_q(transition, reward, terminal, gamma: float) -> np.ndarray:
    """Return Q [S, A] by value iteration."""
    q = np.zeros(transition.shape[:2])
    for _ in range(400):
        next_phi = np.where(terminal, 0.0, q.max(axis=1))
        q = (transition * (reward + gamma * next_phi)).sum(axis=2)
    return q


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.floats(0.1, 10))
def test_optimal_policies_are_unchanged(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    transition, reward, terminal = random_mdp(rng)
    phi = rng.normal(size=len(terminal))
    shaped = shaped_reward(reward, phi[:, None, None], phi, terminal, 0.9, scale=scale)
    raw_q, shaped_q = (optimal_q(transition, r, terminal, 0.9) for r in (reward, shaped))
    assert np.allclose(shaped_q, raw_q - scale * phi[:, None], atol=1e-6)
    live = ~terminal
    assert (shaped_q.argmax(axis=1) == raw_q.argmax(axis=1))[live].all()


def test_without_the_terminal_rule_some_optimal_policies_change() -> None:
    changed = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        transition, reward, terminal = random_mdp(rng)
        phi = rng.normal(size=len(terminal))
        wrong = shaped_reward(reward, phi[:, None, None], phi, False, 0.9)
        raw_q, wrong_q = (optimal_q(transition, r, terminal, 0.9) for r in (reward, wrong))
        changed += bool((raw_q.argmax(axis=1) != wrong_q.argmax(axis=1))[~terminal].any())
    assert changed > 0


def test_hovering_is_worth_less_than_success() -> None:
    """With raw progress, hovering at 0.9 has a higher return than success; with shaping, it has not."""
    gamma = 0.99
    hover, succeed = np.full(200, 0.9), np.linspace(0.05, 1.0, 20)

    def discounted(rewards: np.ndarray) -> float:
        return float((gamma ** np.arange(len(rewards)) * rewards).sum())

    def shaped(progress: np.ndarray, success: bool) -> float:
        end = np.arange(len(progress)) == len(progress) - 1
        before = np.concatenate([[0.0], progress[:-1]])
        return discounted(shaped_reward(end * float(success), before, progress, end & success, gamma))

    assert discounted(hover) > discounted(succeed)
    assert shaped(succeed, True) > shaped(hover, False)

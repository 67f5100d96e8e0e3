"""Shaping may change how fast one learns, never what is best."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embodied_rm.rewards.shaping import hold_potential, shaped_reward

finite = st.floats(-5, 5)
gammas = st.floats(0.5, 1.0)


@given(data=st.data(), length=st.integers(1, 30), gamma=gammas, scale=st.floats(0, 10), terminates=st.booleans())
def test_shaping_telescopes(data, length: int, gamma: float, scale: float, terminates: bool) -> None:
    """Whatever the potential, an episode's discounted shaping depends on its ends only; a terminal end is worth 0."""
    phi = data.draw(arrays(float, length + 1, elements=finite))
    steps = data.draw(arrays(int, length, elements=st.integers(1, 5)))
    elapsed = np.concatenate([[0], np.cumsum(steps)])
    terminated = np.arange(length) == length - 1 if terminates else np.zeros(length, bool)
    paid = shaped_reward(0.0, phi[:-1], phi[1:], terminated, gamma, steps, scale)
    last = 0.0 if terminates else gamma ** elapsed[-1] * phi[-1]
    assert np.isclose((gamma ** elapsed[:-1] * paid).sum(), scale * (last - phi[0]), atol=1e-6)


@given(data=st.data(), length=st.integers(1, 40), every=st.integers(1, 7), gamma=gammas, terminates=st.booleans())
def test_held_potentials_pay_each_chunk_its_difference(data, length, every, gamma, terminates) -> None:
    """Scored every k steps and at the end: each chunk, the short last one too, is worth gamma**k' Phi' - Phi."""
    scores = data.draw(arrays(float, length, elements=finite))
    first = data.draw(finite)
    held, paid, boundaries = first, [], [0]
    for t in range(length):
        scored = (t + 1) % every == 0 or t == length - 1
        following = hold_potential(held, scores[t], np.array(scored))
        terminated = terminates and t == length - 1
        paid.append(shaped_reward(0.0, held, following, terminated, gamma))
        held = following
        if scored:
            boundaries.append(t + 1)
    phi = first
    for start, end in itertools.pairwise(boundaries):
        chunk = sum(gamma**i * r for i, r in enumerate(paid[start:end]))
        last = terminates and end == length
        assert np.isclose(chunk, shaped_reward(0.0, phi, scores[end - 1], last, gamma, end - start), atol=1e-6)
        phi = scores[end - 1]


def test_rewards_broadcast_over_steps_and_environments() -> None:
    paid = shaped_reward(
        np.ones((3, 2)), np.zeros(2), np.ones((3, 2)), np.zeros((3, 1), bool), 0.5, np.array([1, 2]), 2
    )
    assert np.allclose(paid, [[2.0, 1.5]] * 3)


def random_mdp(rng: np.random.Generator, states: int = 6, actions: int = 3):
    """Transitions [S, A, S], rewards [S, A, S], terminal states [S]."""
    transition = rng.dirichlet(np.full(states, 0.3), (states, actions))
    terminal = rng.random(states) < 0.3
    terminal[0] = False
    return transition, rng.normal(size=(states, actions, states)), terminal


def optimal_q(transition, reward, terminal, gamma: float) -> np.ndarray:
    """Value iteration to convergence: Q [S, A]."""
    q = np.zeros(transition.shape[:2])
    for _ in range(400):
        following = np.where(terminal, 0.0, q.max(axis=1))
        q = (transition * (reward + gamma * following)).sum(axis=2)
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
        forgetful = shaped_reward(reward, phi[:, None, None], phi, False, 0.9)
        raw_q, forgetful_q = (optimal_q(transition, r, terminal, 0.9) for r in (reward, forgetful))
        changed += bool((raw_q.argmax(axis=1) != forgetful_q.argmax(axis=1))[~terminal].any())
    assert changed > 0


def test_hovering_is_worth_less_than_success() -> None:
    """Raw progress pays a policy that hovers at 0.9 for ever more than one that succeeds; shaping does not."""
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

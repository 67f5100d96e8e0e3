"""EPIC and STARC on random MDPs and on sampled transitions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.metrics import epic_distance, epic_of_state_rewards, starc_distance, starc_of_transitions

TOLERANCE = 1e-6


@dataclass
class Mdp:
    """A random finite MDP with random rewards."""

    seed: int

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.s, self.a = int(self.rng.integers(2, 6)), int(self.rng.integers(2, 4))
        self.gamma = float(self.rng.uniform(0.1, 0.95))
        self.states, self.actions = self.rng.dirichlet(np.ones(self.s)), self.rng.dirichlet(np.ones(self.a))
        self.transition = self.rng.dirichlet(np.ones(self.s), (self.s, self.a))
        self.policy = self.rng.dirichlet(np.ones(self.a), self.s)

    def reward(self) -> np.ndarray:
        return self.rng.normal(size=(self.s, self.a, self.s))

    def shaping(self) -> np.ndarray:
        """Return gamma Phi(s') - Phi(s) of a random potential."""
        phi = self.rng.normal(size=self.s)
        return np.broadcast_to(self.gamma * phi - phi[:, None, None], (self.s, self.a, self.s))

    def epic(self, first, second) -> float:
        return epic_distance(first, second, self.gamma, self.states, self.actions)

    def starc(self, first, second) -> float:
        return starc_distance(first, second, self.gamma, self.transition, self.policy)


mdps = st.integers(0, 2**32 - 1).map(Mdp)


@pytest.mark.parametrize("name", ["epic", "starc"])
@given(mdp=mdps, scale=st.floats(0.01, 100))
def test_distances_ignore_shaping_and_positive_scale(name, mdp, scale):
    distance, first, second = getattr(mdp, name), mdp.reward(), mdp.reward()
    assert distance(scale * first + mdp.shaping(), first) == pytest.approx(0, abs=TOLERANCE)
    assert distance(scale * first + mdp.shaping(), second) == pytest.approx(distance(first, second), abs=TOLERANCE)
    assert distance(-scale * first + mdp.shaping(), first) == pytest.approx(1, abs=TOLERANCE)


@pytest.mark.parametrize("name", ["epic", "starc"])
@given(mdp=mdps)
def test_distances_are_pseudometrics_in_the_unit_interval(name, mdp):
    distance = getattr(mdp, name)
    x, y, z = (mdp.reward() for _ in range(3))
    assert distance(x, x) == 0
    assert distance(x, y) == pytest.approx(distance(y, x))
    assert 0 < distance(x, y) <= 1
    assert distance(x, z) <= distance(x, y) + distance(y, z) + TOLERANCE


@given(mdps)
def test_trivial_rewards(mdp):
    reward = mdp.reward()
    for trivial in (np.full_like(reward, 0.5), np.zeros_like(reward), mdp.shaping()):
        assert math.isnan(mdp.epic(trivial, reward)) and math.isnan(mdp.epic(trivial, trivial))
        assert mdp.starc(trivial, reward) == pytest.approx(0.5)
        assert mdp.starc(trivial, np.ones_like(reward)) == 0


@given(mdps)
def test_starc_ignores_the_distribution_over_next_states(mdp):
    reward, noise = mdp.reward(), mdp.reward()
    noise -= np.einsum("sat,sat->sa", mdp.transition, noise)[..., None]
    assert mdp.starc(reward, reward + noise) == pytest.approx(0, abs=TOLERANCE)


@given(mdps)
def test_epic_equals_starc_if_actions_choose_the_next_state(mdp):
    """EPIC's canonical form assumes this MDP: any state can follow any second."""
    n = mdp.s
    transition = np.broadcast_to(np.eye(n), (n, n, n))
    first, second = mdp.rng.normal(size=(2, n, 1, n))
    by_action = [np.broadcast_to(np.swapaxes(r, 1, 2), (n, n, n)) for r in (first, second)]
    uniform = np.full(n, 1 / n)
    assert starc_distance(*by_action, mdp.gamma, transition) == pytest.approx(
        epic_distance(first, second, mdp.gamma, uniform, [1.0]), abs=TOLERANCE
    )


@given(mdps, st.sampled_from(["state", "gain"]))
def test_epic_of_state_rewards_is_the_pearson_distance_of_progress(mdp, reward):
    samples = mdp.rng.normal(size=(2, 7))
    tables = [np.broadcast_to(x - (x[:, None, None] if reward == "gain" else 0), (7, 2, 7)) for x in samples]
    uniform = np.full(7, 1 / 7)
    expected = epic_distance(*tables, mdp.gamma, uniform, [0.3, 0.7])
    assert epic_of_state_rewards(*samples) == pytest.approx(expected, abs=TOLERANCE)


@given(mdps, st.floats(0.01, 100))
def test_starc_of_transitions_ignores_shaping_by_the_cells(mdp, scale):
    start, end = mdp.rng.integers(0, 5, (2, 40))
    first, second, phi = mdp.rng.normal(size=40), mdp.rng.normal(size=40), mdp.rng.normal(size=5)
    shaped = scale * first + mdp.gamma * phi[end] - phi[start]

    def distance(x, y) -> float:
        return starc_of_transitions(x, y, start, end, mdp.gamma)

    assert distance(shaped, first) == pytest.approx(0, abs=TOLERANCE)
    assert distance(shaped, second) == pytest.approx(distance(first, second), abs=TOLERANCE)
    assert distance(-shaped, first) == pytest.approx(1, abs=TOLERANCE)
    assert distance(np.ones(40), first) == pytest.approx(0.5)


@given(mdps)
def test_starc_of_all_transitions_equals_that_of_the_mdp(mdp):
    """With deterministic transitions and equally frequent actions the recorded policy is uniform."""
    next_state = mdp.rng.integers(0, mdp.s, (mdp.s, mdp.a))
    next_state[:, 0] = (np.arange(mdp.s) + 1) % mdp.s  # every state is entered and left
    first, second = mdp.reward(), mdp.reward()
    transition = np.eye(mdp.s)[next_state]
    start, action = (grid.ravel() for grid in np.indices((mdp.s, mdp.a)))
    end = next_state.ravel()
    sampled = starc_of_transitions(first[start, action, end], second[start, action, end], start, end, mdp.gamma)
    assert sampled == pytest.approx(starc_distance(first, second, mdp.gamma, transition), abs=TOLERANCE)


def test_transitions_to_unknown_values_are_dropped():
    assert math.isnan(starc_of_transitions([1.0, 2.0], [1.0, 2.0], [0, 1], [1, 2], 0.9)), (
        "no transition leaves 2; hence 1 and 0 are dropped"
    )
    assert math.isnan(starc_of_transitions([], [], [], [], 0.9))
    loop = ([0, 1, 1], [1, 0, 0])
    expected = starc_of_transitions([1.0, 2.0, 3.0], [1.0, 3.0, 2.0], *loop, 0.9)
    assert expected > 0.1
    with_end = starc_of_transitions([1.0, 2.0, 3.0, 9.0], [1.0, 3.0, 2.0, 0.0], [0, 1, 1, 0], [1, 0, 0, 7], 0.9)
    assert with_end == pytest.approx(expected)


def test_epic_of_progress_curves():
    rising = np.linspace(0, 1, 20)
    assert epic_of_state_rewards(rising, rising) == 0
    assert epic_of_state_rewards(1 - rising, rising) == pytest.approx(1)
    assert epic_of_state_rewards(0.1 + 0.5 * rising, rising) == pytest.approx(0, abs=TOLERANCE)
    assert math.isnan(epic_of_state_rewards(np.full(20, 0.1, np.float32), rising))
    noise = np.random.default_rng(0).normal(size=(2, 20000))
    assert epic_of_state_rewards(*noise) == pytest.approx(math.sqrt(0.5), abs=0.01), "unrelated rewards"

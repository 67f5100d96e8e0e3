"""Tests of reward rules: known values, the registry, and policy invariance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_rm.errors import UserError
from embodied_rm.rewards import rule_registry
from embodied_rm.rewards.episodic_rules import self_reference, sigmoid_reference, trajectory_reference
from embodied_rm.rewards.rules import RULES, find_rule, register_reward_rule
from embodied_rm.rewards.transitions import RewardParams, Transitions, is_finished, mean_per_episode, number_episodes

PARAMS = RewardParams(gamma=0.9, scale=2.0, max_episode_steps=10, reference_rewards=(0.3, 0.8), auxiliary_weight=0.5)


def video(phi, *, success=None, is_success: bool = False, timed_out: bool = False) -> Transitions:
    """One episode in one environment, [T, 1], whose potential goes from `phi[0]` to `phi[-1]`."""
    phi = np.asarray(phi, float)[:, None]
    steps = len(phi) - 1
    last = (np.arange(steps) == steps - 1)[:, None]
    return Transitions(
        task_reward=np.where(last & is_success, 1.0, 0.0),
        is_success=last & is_success,
        terminated=last & is_success,
        done=last & (is_success or timed_out),
        potential=phi[:-1],
        next_potential=phi[1:],
        potential_change=np.diff(phi, axis=0),
        success_prob=np.zeros((steps, 1)) if success is None else np.asarray(success, float)[:, None],
        embedding=phi[1:, :, None] * [1.0, 2.0],
        contribution=np.diff(phi, axis=0) / 4,
        preference_reward=np.abs(np.diff(phi, axis=0)) / 4,
        outcome_reward=np.abs(np.diff(phi, axis=0)) / 2,
        program_reward=phi[1:],
    )


def rewards_of(rule: str, steps: Transitions, params: RewardParams = PARAMS) -> list[float]:
    return RULES[rule].compute(steps, params)[:, 0].round(6).tolist()


def test_known_rewards_of_a_success():
    steps = video([0, 0.5, 0.25, 1.0], success=[0, 0.2, 0.9], is_success=True)
    assert rewards_of("sparse", steps) == [0, 0, 1]
    assert rewards_of("shaped", steps) == [0.9, 2 * (0.9 * 0.25 - 0.5), 1 - 0.5]
    assert rewards_of("difference", steps) == [1, -0.5, 2.5]
    assert rewards_of("raw", steps) == [1, 0.5, 3]
    assert rewards_of("hold", steps) == [1.0, round(2 * 0.25 / 3, 6), 2]
    assert rewards_of("delta", steps) == [1, -1, 3]
    assert rewards_of("negative_time", steps) == [round(-1 + 0.2 * (10 - 4.5), 6), round(-1 + 0.2 * (5 - 6.75), 6), 1.5]
    assert rewards_of("terminal_ordinal", steps) == [0, 0, 2]
    assert rewards_of("gated", steps) == [1, -0.5, 2.5]
    assert rewards_of("dense", steps) == rewards_of("shaped", steps)
    assert rewards_of("blended", steps) == [0.05, 0.025, 1.1]
    assert rewards_of("redistributed", steps) == [0.25, -0.125, 0.375]
    assert rewards_of("implicit_preference", steps) == [0.25, 0.125, 1.375]
    assert rewards_of("implicit_outcome", steps) == [0.5, 0.25, 1.75]
    assert rewards_of("self_reference", steps) == rewards_of("trajectory_reference", steps) == [0, 0, 2]
    better = [1 / (1 + np.exp(-10 * (1 - r))) for r in (0.3, 0.8)]
    assert rewards_of("sigmoid_reference", steps) == [0, 0, round(float(np.mean(2 * np.array(better))), 6)]
    weight = np.exp(-np.array([0.5, -0.25, 0.75]) / 0.1)
    made = 2 * weight / weight.sum() * [0.5, -0.25, 0.75] + [0, 0, 1]
    assert rewards_of("min_form", steps) == pytest.approx(made.tolist(), abs=1e-6)


def test_known_rewards_of_a_failure():
    steps = video([0, 0.5, 0.8], success=[0.9, 0.4], timed_out=True)
    assert rewards_of("gated", steps) == [0, 0] and rewards_of("terminal_ordinal", steps) == [0, 1.5]
    assert rewards_of("sparse", steps) == [0, 0] and rewards_of("shaped", steps) == [0.9, round(2 * (0.72 - 0.5), 6)]


def test_registered_rules_are_found_by_name(monkeypatch):
    monkeypatch.setattr(rule_registry, "_RULES", rules := dict(RULES))

    @register_reward_rule("half_progress", uses_success_prob=True)
    def half_progress(transitions: Transitions, params: RewardParams):
        return transitions.task_reward + 0.5 * params.scale * transitions.next_potential

    assert rules["half_progress"].compute is half_progress and rules["half_progress"].uses_success_prob
    with pytest.raises(ValueError, match="'shaped' is registered already"):
        register_reward_rule("shaped")(half_progress)
    with pytest.raises(UserError, match=r"unknown reward rule 'shapd'. Did you mean 'shaped'\?"):
        find_rule("shapd")


def test_failure_has_at_most_score_four_of_five():
    assert rewards_of("terminal_ordinal", video([0, 1.0], timed_out=True)) == [1.5]


def test_rewards_depend_only_on_the_own_episode():
    """Two episodes in one row, and other rows, do not change the rewards."""
    one, two = video([0, 0.4, 1], success=[0, 1], is_success=True), video([0, 0.3, 0.2, 0.1], timed_out=True)
    both = Transitions(**{name: np.concatenate([getattr(one, name), getattr(two, name)]) for name in one.columns()})
    with_neighbor = Transitions(**{name: np.hstack([column, column[::-1]]) for name, column in both.columns().items()})
    assert number_episodes(both.done)[:, 0].tolist() == [0, 0, 1, 1, 1]
    for name in RULES.keys() - {"self_reference", "trajectory_reference"}:
        assert (
            rewards_of(name, both) == rewards_of(name, one) + rewards_of(name, two) == rewards_of(name, with_neighbor)
        )


def test_is_finished():
    ended = np.array([[0, 0, 1], [1, 0, 0], [0, 0, 0]], bool)
    assert is_finished(ended).tolist() == [[True, False, True], [True, False, False], [False] * 3]


def test_sigmoid_reference_values():
    steps = video([0, 0.2, 0.6], timed_out=True)
    assert sigmoid_reference(steps, replace(PARAMS, reference_rewards=(0.6,)))[:, 0].tolist() == [0, 1]
    several = sigmoid_reference(steps, replace(PARAMS, reference_rewards=(0.0, 0.6, 1.0)))[-1, 0]
    assert several == pytest.approx(2 * np.mean([1 / (1 + np.exp(-6)), 0.5, 1 / (1 + np.exp(4))]))
    success = video([0, 0.2, 0.6], is_success=True)
    assert sigmoid_reference(success, replace(PARAMS, reference_rewards=(1.0,)))[-1, 0] == pytest.approx(1)


def embedded_steps(embedding: np.ndarray, is_success: np.ndarray, done: np.ndarray) -> Transitions:
    """Steps [T, N] without progress that have embeddings [T, N, D]."""
    blank = np.zeros(done.shape)
    return Transitions(
        task_reward=blank,
        is_success=is_success,
        terminated=is_success,
        done=done,
        potential=blank,
        next_potential=blank,
        potential_change=blank,
        success_prob=blank,
        embedding=embedding,
    )


def test_self_reference_rewards_failures_near_a_success():
    is_success = np.array([[True, False, False, False]])
    ended = np.array([[True, True, True, False]])
    where = np.array([[[0.0, 0.0], [1.0, 1.0], [3.0, 3.0], [0.0, 0.0]]])
    steps = embedded_steps(where, is_success, ended)
    one = RewardParams(gamma=0.9)
    near, far = (0.6 / (1 + np.exp(-10 * (0.5 - d))) for d in (0.0, 1.0))
    assert self_reference(steps, one)[0] == pytest.approx([1, near, far, 0])
    no_success = replace(steps, is_success=np.zeros_like(is_success))
    assert not self_reference(no_success, one).any()


def test_trajectory_reference_compares_the_whole_way():
    # A success, a failure that goes the same way and stops short, one that ends where the success ends by another way.
    ways = np.array([[[0.0, 0], [1, 0], [2, 0]], [[0, 0], [1, 0], [1, 0]], [[0, 9], [1, 9], [2, 0]]]).transpose(1, 0, 2)
    is_success = np.array([[False, False, False], [False, False, False], [True, False, False]])
    done = np.array([[False] * 3, [False] * 3, [True] * 3])
    steps = embedded_steps(ways, is_success, done)
    one = RewardParams(gamma=0.9)
    near, far = (0.6 / (1 + np.exp(-10 * (0.5 - d))) for d in (0.0, 1.0))
    assert trajectory_reference(steps, one)[2] == pytest.approx([1, near, far])
    assert self_reference(steps, one)[2] == pytest.approx([1, far, near])


def test_the_mean_of_an_episode_is_that_of_its_steps_in_the_rollout():
    done = np.array([[False, True], [True, False], [False, False]])
    values = np.arange(12.0).reshape(3, 2, 2)
    expected = [[[2, 3], [2, 3]], [[2, 3], [8, 9]], [[8, 9], [8, 9]]]
    assert mean_per_episode(values, number_episodes(done)).tolist() == expected


def test_diverged_rows_do_not_change_self_reference():
    one = video([0, 1], is_success=True)
    ends = [video([0, phi], timed_out=True) for phi in (0.9, 0.4, 0.0)]
    columns = {name: np.hstack([getattr(each, name) for each in (one, *ends)]) for name in one.columns()}
    broken = np.array([[False, False, False, True]])
    without = Transitions(**{name: column[:, :3] for name, column in columns.items()})
    assert self_reference(Transitions(**columns, diverged=broken), PARAMS)[0, :3].tolist() == (
        self_reference(without, PARAMS)[0].tolist()
    )


def random_chain(rng: np.random.Generator, states: int = 5, actions: int = 3):
    """Return transitions [S, A, S], success states [S], failure states [S] and a random potential [S]."""
    moves = rng.dirichlet(np.full(states, 0.4), (states, actions))
    return moves, np.arange(states) == states - 1, np.arange(states) == states - 2, rng.random(states)


def optimal_q(moves, reward, terminal, gamma: float) -> np.ndarray:
    """Return Q [S, A] of the optimal policy."""
    q = np.zeros(moves.shape[:2])
    for _ in range(300):
        q = (moves * (reward + gamma * np.where(terminal, 0.0, q.max(axis=1)))).sum(axis=2)
    return q


def rewards_by_rule(name: str, shape: tuple[int, ...], success, failure, phi, gamma: float) -> np.ndarray:
    """Return the rewards of a rule for the transitions from s to s', [S, A, S]."""
    is_success, end = np.broadcast_to(success, shape), np.broadcast_to(success | failure, shape)
    before, after = np.broadcast_to(phi[:, None, None], shape), np.broadcast_to(phi, shape)
    steps = Transitions(
        task_reward=is_success.astype(float),
        is_success=is_success,
        terminated=end,
        done=end,
        potential=before,
        next_potential=after,
        potential_change=after - before,
        success_prob=is_success.astype(float),
        program_reward=after,
    )
    return RULES[name].compute(steps, RewardParams(gamma=gamma, max_episode_steps=20, reference_rewards=(0.2, 0.7)))


def has_same_optimum(name: str, seed: int, gamma: float = 0.9) -> bool:
    """Return whether the optimal actions of a rule are optimal for the task in all states."""
    moves, success, failure, phi = random_chain(np.random.default_rng(seed))
    task_q, got = (
        optimal_q(moves, rewards_by_rule(rule, moves.shape, success, failure, phi, gamma), success | failure, gamma)
        for rule in ("sparse", name)
    )
    is_running = ~(success | failure)
    chosen = task_q[is_running, got[is_running].argmax(axis=1)]
    return bool(np.allclose(chosen, task_q[is_running].max(axis=1), atol=1e-6))


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.policy_invariant and name != "sparse"])
@given(seed=st.integers(0, 10_000), gamma=st.floats(0.5, 0.99))
@settings(max_examples=40, deadline=None)
def test_policy_invariant_rules_keep_the_optimal_policy(name: str, seed: int, gamma: float):
    assert has_same_optimum(name, seed, gamma)


@pytest.mark.parametrize(
    "name", [name for name, rule in RULES.items() if not (rule.policy_invariant or rule.needs_full_rollout)]
)
def test_other_rules_change_the_optimal_policy(name: str):
    assert not all(has_same_optimum(name, seed) for seed in range(30))


ENDS = ("success", "failure", "time limit", "end of the rollout")


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.policy_invariant])
@given(
    scored=st.lists(st.floats(0, 1), min_size=1, max_size=6),
    k=st.integers(1, 4),
    end=st.sampled_from(ENDS),
    gamma=st.floats(0.5, 0.999),
    after=st.floats(-2, 2),
    first=st.floats(0, 1),
)
def test_shaping_adds_only_the_initial_potential_to_the_return(
    name: str, scored: list[float], k: int, end: str, gamma: float, after: float, first: float
):
    """For all episode ends and scoring intervals. The shaped value after a time limit is lower by the potential there;
    after success and failure it is 0. The return is that of the task minus the initial potential."""
    held = [first, *np.repeat(scored, k)]
    steps = video(held, is_success=end == "success", timed_out=end in ENDS[1:3])
    if end == "failure":
        steps = replace(steps, terminated=steps.done)
    params = replace(PARAMS, gamma=gamma)
    weight = params.scale if RULES[name].is_potential_based else 0.0
    follows = 0.0 if end in ENDS[:2] else gamma ** len(steps.task_reward)
    discount = gamma ** np.arange(len(steps.task_reward))
    got = discount @ RULES[name].compute(steps, params)[:, 0] + follows * (after - weight * held[-1])
    assert got == pytest.approx(discount @ steps.task_reward[:, 0] + follows * after - weight * held[0], abs=1e-9)


LATE_SUCCESS_PROGRESS = {
    "gated": [0, 1, 1, 1, 1],
    "min_form": [0, 0.25, 0.5, 0.75, 1],
    "redistributed": [0, 1, 1, 1, 1],
    "implicit_preference": [0, 1, 0, 1, 1],
    "implicit_outcome": [0, 1, 0, 1, 1],
}
"""Rule -> progress of a success in four steps that has a higher return than one in three steps."""


def test_invariance_of_every_rule_is_tested():
    changing = {name for name, rule in RULES.items() if not rule.policy_invariant}
    assert changing == LATE_SUCCESS_PROGRESS.keys() | {"self_reference", "trajectory_reference"} | {
        name for name in changing if not RULES[name].needs_full_rollout
    }


@pytest.mark.parametrize("name", LATE_SUCCESS_PROGRESS)
def test_full_rollout_rules_prefer_a_later_success(name: str):
    """The task prefers an earlier success, so they are not invariant."""
    videos = [
        video(phi, success=[1.0] * (len(phi) - 1), is_success=True)
        for phi in ([0, 0, 0, 1], LATE_SUCCESS_PROGRESS[name])
    ]
    task, got = (
        [
            float(0.9 ** np.arange(len(f.task_reward)) @ RULES[rule].compute(f, replace(PARAMS, scale=1.0))[:, 0])
            for f in videos
        ]
        for rule in ("sparse", name)
    )
    assert task[0] > task[1] and got[0] < got[1]


def test_self_reference_prefers_a_quick_failure_to_a_slow_success():
    near, slow = video([0, 0.9], timed_out=True), video(np.linspace(0, 1, 31), is_success=True)
    rest = video(np.zeros(30))
    quick = Transitions(
        **{name: np.concatenate([getattr(near, name), getattr(rest, name)])[:30] for name in near.columns()}
    )
    both = Transitions(**{name: np.hstack([getattr(quick, name), getattr(slow, name)]) for name in slow.columns()})
    failed, done = (0.9 ** np.arange(30) @ RULES["self_reference"].compute(both, replace(PARAMS, scale=1.0))).tolist()
    assert failed > done > 0


@pytest.mark.parametrize("name", RULES)
def test_state_rewards_prefer_hovering_to_finishing(name: str):
    hover = video([0, 0.5, *[0.9] * 40], timed_out=True)
    finish = video([0, 0.5, 0.9, 1.0], success=[0, 0, 1], is_success=True)
    params = RewardParams(gamma=0.99, max_episode_steps=41, reference_rewards=(0.5,))
    returns = [
        float(0.99 ** np.arange(len(s.task_reward)) @ RULES[name].compute(s, params)[:, 0]) for s in (hover, finish)
    ]
    assert (returns[0] > returns[1]) == (name in {"raw", "hold", "program"})

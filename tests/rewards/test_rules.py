"""Closed forms of every rule, and which of them leave the best policy alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_rm.rewards.episodic_rules import self_reference, sigmoid_reference
from embodied_rm.rewards.rules import RULES
from embodied_rm.rewards.transitions import RewardParams, Transitions, is_finished, number_episodes

TERMS = RewardParams(gamma=0.9, scale=2.0, max_episode_steps=10, reference_rewards=(0.3, 0.8), auxiliary_weight=0.5)


def video(phi, *, success=None, achieved: bool = False, timed_out: bool = False) -> Transitions:
    """One episode in one environment, [T, 1], whose potential goes from `phi[0]` to `phi[-1]`."""
    phi = np.asarray(phi, float)[:, None]
    steps = len(phi) - 1
    last = (np.arange(steps) == steps - 1)[:, None]
    return Transitions(
        task_reward=np.where(last & achieved, 1.0, 0.0),
        is_success=last & achieved,
        terminated=last & achieved,
        done=last & (achieved or timed_out),
        potential=phi[:-1],
        next_potential=phi[1:],
        potential_change=np.diff(phi, axis=0),
        success_prob=np.zeros((steps, 1)) if success is None else np.asarray(success, float)[:, None],
        embedding=phi[1:, :, None] * [1.0, 2.0],
        contribution=np.diff(phi, axis=0) / 4,
    )


def paid(rule: str, steps: Transitions, terms: RewardParams = TERMS) -> list[float]:
    return RULES[rule].compute(steps, terms)[:, 0].round(6).tolist()


def test_known_answers_of_an_episode_that_succeeds():
    steps = video([0, 0.5, 0.25, 1.0], success=[0, 0.2, 0.9], achieved=True)
    assert paid("sparse", steps) == [0, 0, 1]
    assert paid("shaped", steps) == [0.9, 2 * (0.9 * 0.25 - 0.5), 1 - 0.5]
    assert paid("difference", steps) == [1, -0.5, 2.5]
    assert paid("raw", steps) == [1, 0.5, 3]
    assert paid("hold", steps) == [1.0, round(2 * 0.25 / 3, 6), 2]
    assert paid("delta", steps) == [1, -1, 3]
    assert paid("negative_time", steps) == [round(-1 + 0.2 * (10 - 4.5), 6), round(-1 + 0.2 * (5 - 6.75), 6), 1.5]
    assert paid("terminal_ordinal", steps) == [0, 0, 2]
    assert paid("gated", steps) == [1, -0.5, 2.5]
    assert paid("dense", steps) == paid("shaped", steps)
    assert paid("blended", steps) == [0.5, 0.25, 2]
    assert paid("redistributed", steps) == [0.25, -0.125, 0.375]
    assert paid("self_reference", steps) == [0, 0, 2]
    better = [1 / (1 + np.exp(-10 * (1 - r))) for r in (0.3, 0.8)]
    assert paid("sigmoid_reference", steps) == [0, 0, round(float(np.mean(2 * np.array(better))), 6)]
    weight = np.exp(-np.array([0.5, -0.25, 0.75]) / 0.1)
    made = 2 * weight / weight.sum() * [0.5, -0.25, 0.75] + [0, 0, 1]
    assert paid("min_form", steps) == pytest.approx(made.tolist(), abs=1e-6)


def test_a_failed_episode_is_paid_nothing_by_a_closed_gate_and_by_quarters_at_its_end():
    steps = video([0, 0.5, 0.8], success=[0.9, 0.4], timed_out=True)
    assert paid("gated", steps) == [0, 0] and paid("terminal_ordinal", steps) == [0, 1.5]
    assert paid("sparse", steps) == [0, 0] and paid("shaped", steps) == [0.9, round(2 * (0.72 - 0.5), 6)]


def test_almost_done_is_four_of_five():
    assert paid("terminal_ordinal", video([0, 1.0], timed_out=True)) == [1.5]


def test_what_comes_after_an_episode_does_not_change_it():
    """Two episodes in one row are paid as each alone, and a neighbor changes nothing."""
    one, two = video([0, 0.4, 1], success=[0, 1], achieved=True), video([0, 0.3, 0.2, 0.1], timed_out=True)
    both = Transitions(**{name: np.concatenate([getattr(one, name), getattr(two, name)]) for name in one.columns()})
    beside = Transitions(**{name: np.hstack([column, column[::-1]]) for name, column in both.columns().items()})
    assert number_episodes(both.done)[:, 0].tolist() == [0, 0, 1, 1, 1]
    for name in RULES.keys() - {"self_reference"}:
        assert paid(name, both) == paid(name, one) + paid(name, two) == paid(name, beside)


def test_steps_after_the_last_end_of_their_row_are_of_no_finished_episode():
    ended = np.array([[0, 0, 1], [1, 0, 0], [0, 0, 0]], bool)
    assert is_finished(ended).tolist() == [[True, False, True], [True, False, False], [False] * 3]


def test_references_are_beaten_half_by_what_equals_them():
    steps = video([0, 0.2, 0.6], timed_out=True)
    assert sigmoid_reference(steps, replace(TERMS, reference_rewards=(0.6,)))[:, 0].tolist() == [0, 1]
    many = sigmoid_reference(steps, replace(TERMS, reference_rewards=(0.0, 0.6, 1.0)))[-1, 0]
    assert many == pytest.approx(2 * np.mean([1 / (1 + np.exp(-6)), 0.5, 1 / (1 + np.exp(4))]))
    won = video([0, 0.2, 0.6], achieved=True)
    assert sigmoid_reference(won, replace(TERMS, reference_rewards=(1.0,)))[-1, 0] == pytest.approx(1)


def test_failures_near_a_success_earn_more_than_far_ones_and_nothing_where_nobody_succeeded():
    achieved = np.array([[True, False, False, False]])
    ended = np.array([[True, True, True, False]])
    blank = np.zeros((1, 4))
    where = np.array([[[0.0, 0.0], [1.0, 1.0], [3.0, 3.0], [0.0, 0.0]]])
    steps = Transitions(task_reward=blank, is_success=achieved, terminated=achieved, done=ended, potential=blank,
                  next_potential=blank, potential_change=blank, success_prob=blank, embedding=where)  # fmt: skip
    one = RewardParams(gamma=0.9)
    near, far = (0.6 / (1 + np.exp(-10 * (0.5 - d))) for d in (0.0, 1.0))
    assert self_reference(steps, one)[0] == pytest.approx([1, near, far, 0])
    lost = replace(steps, is_success=np.zeros_like(achieved))
    assert not self_reference(lost, one).any()


def test_a_env_that_breaks_down_changes_nobody_elses_pay():
    one = video([0, 1], achieved=True)
    ends = [video([0, phi], timed_out=True) for phi in (0.9, 0.4, 0.0)]
    told = {name: np.hstack([getattr(each, name) for each in (one, *ends)]) for name in one.columns()}
    broken = np.array([[False, False, False, True]])
    without = Transitions(**{name: column[:, :3] for name, column in told.items()})
    assert self_reference(Transitions(**told, diverged=broken), TERMS)[0, :3].tolist() == (
        self_reference(without, TERMS)[0].tolist()
    )


def chain(rng: np.random.Generator, states: int = 5, actions: int = 3):
    """Transitions [S, A, S], the states that are a success [S] and a failure [S], a potential [S] of no meaning."""
    moves = rng.dirichlet(np.full(states, 0.4), (states, actions))
    return moves, np.arange(states) == states - 1, np.arange(states) == states - 2, rng.random(states)


def best(moves, reward, terminal, gamma: float) -> np.ndarray:
    """Q [S, A] of the optimal policy."""
    q = np.zeros(moves.shape[:2])
    for _ in range(300):
        q = (moves * (reward + gamma * np.where(terminal, 0.0, q.max(axis=1)))).sum(axis=2)
    return q


def of_rule(name: str, shape: tuple[int, ...], success, failure, phi, gamma: float) -> np.ndarray:
    """What the rule pays for going from s to s', [S, A, S]."""
    achieved, end = np.broadcast_to(success, shape), np.broadcast_to(success | failure, shape)
    before, after = np.broadcast_to(phi[:, None, None], shape), np.broadcast_to(phi, shape)
    steps = Transitions(task_reward=achieved.astype(float), is_success=achieved, terminated=end, done=end, potential=before,
                  next_potential=after, potential_change=after - before, success_prob=achieved.astype(float))  # fmt: skip
    return RULES[name].compute(steps, RewardParams(gamma=gamma, max_episode_steps=20, reference_rewards=(0.2, 0.7)))


def same_choice(name: str, seed: int, gamma: float = 0.9) -> bool:
    """Whether the best action of every state is one of the task's best."""
    moves, success, failure, phi = chain(np.random.default_rng(seed))
    wanted, got = (
        best(moves, of_rule(rule, moves.shape, success, failure, phi, gamma), success | failure, gamma)
        for rule in ("sparse", name)
    )
    going = ~(success | failure)
    chosen = wanted[going, got[going].argmax(axis=1)]
    return bool(np.allclose(chosen, wanted[going].max(axis=1), atol=1e-6))


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.policy_invariant and name != "sparse"])
@given(seed=st.integers(0, 10_000), gamma=st.floats(0.5, 0.99))
@settings(max_examples=40, deadline=None)
def test_rules_that_claim_it_leave_the_best_policy_alone(name: str, seed: int, gamma: float):
    assert same_choice(name, seed, gamma)


@pytest.mark.parametrize(
    "name", [name for name, rule in RULES.items() if not (rule.policy_invariant or rule.needs_full_rollout)]
)
def test_every_other_rule_changes_it_somewhere(name: str):
    assert not all(same_choice(name, seed) for seed in range(30))


ENDS = ("success", "failure", "time limit", "end of the rollout")


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.policy_invariant])
@given(
    scored=st.lists(st.floats(0, 1), min_size=1, max_size=6), k=st.integers(1, 4), end=st.sampled_from(ENDS),
    gamma=st.floats(0.5, 0.999), after=st.floats(-2, 2), first=st.floats(0, 1),
)  # fmt: skip
def test_whatever_ends_an_episode_and_however_seldom_it_is_scored_nothing_but_its_start_adds_to_the_return(
    name: str, scored: list[float], k: int, end: str, gamma: float, after: float, first: float
):
    """The value of the task after a time limit, shaped, is less by the potential there; after success and failure
    nothing follows. Then the return is that of the task less the potential of the start, which no action decides."""
    held = [first, *np.repeat(scored, k)]
    steps = video(held, achieved=end == "success", timed_out=end in ENDS[1:3])
    if end == "failure":
        steps = replace(steps, terminated=steps.done)
    terms = replace(TERMS, gamma=gamma)
    weight = terms.scale if RULES[name].is_potential_based else 0.0
    follows = 0.0 if end in ENDS[:2] else gamma ** len(steps.task_reward)
    discount = gamma ** np.arange(len(steps.task_reward))
    got = discount @ RULES[name].compute(steps, terms)[:, 0] + follows * (after - weight * held[-1])
    assert got == pytest.approx(discount @ steps.task_reward[:, 0] + follows * after - weight * held[0], abs=1e-9)


LATER = {"gated": [0, 1, 1, 1, 1], "min_form": [0, 0.25, 0.5, 0.75, 1], "redistributed": [0, 1, 1, 1, 1]}
"""Rule of whole episodes -> the progress of a success in four steps that it would rather see than one in three."""


def test_every_rule_is_shown_to_be_what_it_claims():
    changing = {name for name, rule in RULES.items() if not rule.policy_invariant}
    assert changing == LATER.keys() | {"self_reference"} | {
        name for name in changing if not RULES[name].needs_full_rollout
    }


@pytest.mark.parametrize("name", LATER)
def test_rules_of_whole_episodes_would_rather_see_a_later_success(name: str):
    """By the task sooner is better: they are not invariant."""
    videos = [video(phi, success=[1.0] * (len(phi) - 1), achieved=True) for phi in ([0, 0, 0, 1], LATER[name])]
    task, got = ([float(0.9 ** np.arange(len(f.task_reward)) @ RULES[rule].compute(f, replace(TERMS, scale=1.0))[:, 0])
                  for f in videos] for rule in ("sparse", name))  # fmt: skip
    assert task[0] > task[1] and got[0] < got[1]


def test_self_reference_would_rather_see_a_quick_failure_than_a_slow_success():
    near, slow = video([0, 0.9], timed_out=True), video(np.linspace(0, 1, 31), achieved=True)
    rest = video(np.zeros(30))
    quick = Transitions(
        **{name: np.concatenate([getattr(near, name), getattr(rest, name)])[:30] for name in near.columns()}
    )
    both = Transitions(**{name: np.hstack([getattr(quick, name), getattr(slow, name)]) for name in slow.columns()})
    failed, done = (0.9 ** np.arange(30) @ RULES["self_reference"].compute(both, replace(TERMS, scale=1.0))).tolist()
    assert failed > done > 0


@pytest.mark.parametrize("name", RULES)
def test_rules_that_pay_for_being_somewhere_pay_hovering_more_than_finishing(name: str):
    hover = video([0, 0.5, *[0.9] * 40], timed_out=True)
    finish = video([0, 0.5, 0.9, 1.0], success=[0, 0, 1], achieved=True)
    terms = RewardParams(gamma=0.99, max_episode_steps=41, reference_rewards=(0.5,))
    worth = [
        float(0.99 ** np.arange(len(s.task_reward)) @ RULES[name].compute(s, terms)[:, 0]) for s in (hover, finish)
    ]
    assert (worth[0] > worth[1]) == (name in {"raw", "hold", "blended"})

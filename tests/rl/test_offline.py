"""Offline learning: known answers of its losses, exact values of a small MDP, and runs that are interrupted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from killing_reporter import KilledError, KillingReporter
from torch import Tensor

from embodied_rm.errors import DataError, UserError
from embodied_rm.models.reward_model import make_plain_output
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rewards.transitions import RewardParams
from embodied_rm.rl.offline.cql import CQL
from embodied_rm.rl.offline.critics import advantage_weights, expectile_loss, td_target
from embodied_rm.rl.offline.iql import IQL
from embodied_rm.rl.offline.offline_config import OfflineConfig
from embodied_rm.rl.offline.offline_reward import OfflineReward, with_ranks
from embodied_rm.rl.offline.train_offline import LEARNERS, learn_offline, make_policy
from embodied_rm.rl.offline.transitions import OfflineTransitions, make_transitions, recorded_rewards
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.types import Episode

GAMMA = 0.9
NUM_STATES = 4
"""States of a corridor. Action +1 moves to the right and ends the episode in the last state; -1 stays."""


def expectile(values: Tensor, tau: float) -> float:
    """Return the expectile by bisection on tau E (x - e)+ = (1 - tau) E (e - x)+."""
    low, high = float(values.min()), float(values.max())
    for _ in range(60):
        middle = (low + high) / 2
        above = tau * (values - middle).clamp_min(0).mean()
        below = (1 - tau) * (middle - values).clamp_min(0).mean()
        low, high = (middle, high) if above > below else (low, middle)
    return low


def minimum_of_expectile_loss(values: Tensor, tau: float) -> float:
    value = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.LBFGS([value], max_iter=200)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = expectile_loss(values - value, tau)
        loss.backward()
        return loss

    optimizer.step(closure)
    return float(value.detach())


def corridor(repeats: int = 40) -> OfflineTransitions:
    """Return both actions in every state of the corridor, as often as each other."""
    states = torch.eye(NUM_STATES)
    rows = [(state, action) for state in range(NUM_STATES) for action in (-1.0, 1.0)] * repeats
    moves = [(min(state + 1, NUM_STATES - 1) if action > 0 else state) for state, action in rows]
    ends = [state == NUM_STATES - 1 and action > 0 for state, action in rows]
    return OfflineTransitions(
        observation=states[[state for state, _ in rows]],
        action=torch.tensor([[action] for _, action in rows]),
        reward=torch.tensor([float(end) for end in ends]),
        next_observation=states[moves],
        terminated=torch.tensor(ends),
        potential=torch.zeros(len(rows)),
        episode_index=torch.arange(len(rows)) % 20,
    )


def exact_values(tau: float) -> Tensor:
    """Return Q [state, action] of implicit Q-learning in the corridor."""
    q = torch.zeros(NUM_STATES, 2)
    for _ in range(300):
        value = torch.tensor([expectile(row, tau) for row in q])
        stay, move = GAMMA * value, GAMMA * value.roll(-1)
        move[-1] = 1.0
        q = torch.stack([stay, move], dim=1)
    return q


def small_config(**settings) -> OfflineConfig:
    sizes = {"hidden_sizes": (16,), "critic_hidden_sizes": (32, 32), "batch_size": 64}
    return OfflineConfig(**{"gamma": GAMMA, "learning_rate": 3e-3, "target_update_rate": 0.05, **sizes, **settings})


def learn(transitions: OfflineTransitions, config: OfflineConfig):
    policy = make_policy(transitions, config)
    torch.manual_seed(0)
    learner = LEARNERS[config.method](policy, config)
    for step in range(config.steps):
        learner.update(transitions.sample(config.batch_size, learner.generator), step)
    return learner


def make_episode(length: int = 5, success: bool | None = True, **columns) -> Episode:
    rng = np.random.default_rng(length)
    columns = {"state": rng.random((length, 3)), "action": rng.uniform(-1, 1, (length, 2)), **columns}
    frames = np.zeros((length, 2, 2, 3), np.uint8)
    return Episode(name="one", views={"front": frames}, instruction="x", fps=10, success=success, **columns)


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.7, 0.95])
def test_the_minimum_of_the_expectile_loss_is_the_expectile(tau: float) -> None:
    values = torch.tensor([0.0, 0.2, 1.0, 3.0])
    assert minimum_of_expectile_loss(values, tau) == pytest.approx(expectile(values, tau), abs=1e-3)


def test_expectiles_lie_between_the_mean_and_the_maximum() -> None:
    values = torch.tensor([0.0, 0.2, 1.0, 3.0])
    assert expectile(values, 0.5) == pytest.approx(float(values.mean()))
    assert expectile(values, 0.999) == pytest.approx(3.0, abs=0.02)


def test_weights_of_actions_do_not_depend_on_the_scale_of_the_rewards_and_are_bounded() -> None:
    advantage = torch.tensor([-1.0, 0.0, 0.5, 2.0])
    weights = advantage_weights(advantage, 3.0, 100.0)
    assert torch.allclose(weights, advantage_weights(1000 * advantage, 3.0, 100.0))
    assert (weights.diff() > 0).all() and weights[1] == 1
    assert advantage_weights(advantage, 30.0, 100.0).max() == 100
    assert (advantage_weights(advantage, 0.0, 100.0) == 1).all()


def test_nothing_follows_a_terminal_transition() -> None:
    target = td_target(torch.tensor([1.0, 2.0]), torch.tensor([True, False]), torch.tensor([5.0, 5.0]), 0.5)
    assert target.tolist() == [1.0, 4.5]


@pytest.mark.parametrize("tau", [0.5, 0.9])
def test_iql_finds_the_exact_values_of_a_corridor(tau: float) -> None:
    learner = learn(corridor(), small_config(steps=1500, expectile=tau))
    observation = learner.policy.normalizer(torch.eye(NUM_STATES))
    actions = torch.tensor([-1.0, 1.0])
    values = torch.stack([learner.critics(observation, a.expand(NUM_STATES, 1)).mean(0) for a in actions], dim=1)
    assert torch.allclose(values, exact_values(tau), atol=0.05)


@pytest.mark.parametrize("method", LEARNERS)
def test_the_policy_walks_to_the_end_of_the_corridor(method: str) -> None:
    data = corridor()
    # Actions of any size do what their sign says: the policy of CQL climbs the values between the two.
    size = torch.rand(data.action.shape, generator=torch.Generator().manual_seed(0))
    data = replace(data, action=data.action * size)
    learner = learn(data, small_config(method=method, steps=1000, conservative_coef=0.1))
    assert (learner.policy.act(np.eye(NUM_STATES, dtype=np.float32)) > 0.2).all()


def test_without_advantages_iql_clones() -> None:
    learner = learn(corridor(), small_config(steps=500, inverse_temperature=0.0))
    assert np.abs(learner.policy.act(np.eye(NUM_STATES, dtype=np.float32))).max() < 0.2


def test_a_family_reaches_from_cloning_to_improvement_and_the_balance_selects_by_value() -> None:
    """Both actions are recorded equally often: a clone is in the middle, and moving on is better in every state."""
    learner = learn(corridor(), small_config(method="famo2o", steps=1500, inverse_temperature=1.0))
    observation = learner.policy.normalizer(torch.eye(NUM_STATES))
    with torch.no_grad():
        members = [learner.family_action(observation, torch.full((NUM_STATES,), b))[:, 0] for b in (0.0, 0.5, 1.0)]
        balance = learner.balance(observation)
    assert members[0].abs().max() < 0.3
    assert (members[1] > members[0] + 0.2).all() and (members[2] > members[1]).all()
    assert (balance > 0.6).all()
    distilled = torch.from_numpy(learner.policy.act(np.eye(NUM_STATES, dtype=np.float32)))
    assert torch.allclose(distilled, learner.balanced_action(observation).detach(), atol=0.1)


def test_a_conservative_value_of_an_action_that_was_not_recorded_is_lower() -> None:
    data = corridor()
    recorded = data.take(data.action[:, 0] > 0)
    state, unseen = torch.eye(NUM_STATES), torch.full((NUM_STATES, 1), -1.0)

    def gap(coef: float) -> float:
        learner = learn(recorded, small_config(method="cql", steps=300, conservative_coef=coef))
        values = [learner.critics(learner.policy.normalizer(state), action) for action in (-unseen, unseen)]
        return float((values[0] - values[1]).mean().detach())

    assert gap(1.0) > max(gap(0.0), 0) + 0.3


def test_shaped_rewards_of_an_episode_sum_to_success_minus_the_first_potential() -> None:
    progress = np.array([0.1, 0.3, 0.2, 0.6, 0.9], np.float32)
    reward = recorded_rewards(make_episode(), find_rule("shaped"), RewardParams(gamma=GAMMA), progress=progress)
    assert float((reward * GAMMA ** np.arange(4)).sum()) == pytest.approx(GAMMA**3 - 0.1)


def test_a_failure_keeps_its_last_potential_and_earns_no_success() -> None:
    progress, params = np.linspace(0, 0.8, 5, dtype=np.float32), RewardParams(gamma=GAMMA)
    failure = make_episode(success=False)
    reward = recorded_rewards(failure, find_rule("shaped"), params, progress=progress)
    assert float((reward * GAMMA ** np.arange(4)).sum()) == pytest.approx(GAMMA**4 * 0.8, abs=1e-6)
    assert not recorded_rewards(failure, find_rule("sparse"), params).any()


def test_a_reward_without_the_outcome_is_that_of_the_progress() -> None:
    progress = np.linspace(0, 1, 5, dtype=np.float32)
    params = RewardParams(gamma=GAMMA)
    reward = recorded_rewards(make_episode(), find_rule("difference"), params, progress=progress, success_reward=0)
    assert reward == pytest.approx(np.full(4, 0.25))


def test_without_the_outcome_a_recorded_success_ends_nothing() -> None:
    episode, progress = make_episode(), np.linspace(0, 1, 5, dtype=np.float32)
    params = RewardParams(gamma=GAMMA)
    for rule in ("raw", "shaped"):
        unused = recorded_rewards(episode, find_rule(rule), params, progress=progress, success_reward=0)
        failure = recorded_rewards(replace(episode, success=False), find_rule(rule), params, progress=progress)
        assert np.array_equal(unused, failure)
    transitions = make_transitions([episode], [np.zeros(4, np.float32)], uses_outcome=False)
    assert not transitions.terminated.any()


@pytest.mark.parametrize("settings", [{"success_reward": 0.0}, {}])
def test_without_a_rewarded_success_the_task_teaches_nothing(settings: dict) -> None:
    """Shaping makes no difference between policies, so the reward of the task has to."""
    failures = [make_episode(5, success=False, progress=np.linspace(0, 0.5, 5, dtype=np.float32)) for _ in range(3)]
    for rule in ("sparse", "dense"):
        with pytest.raises(DataError, match=rf"rule={rule} makes no difference .* 0 of 3 episodes are recorded succ"):
            OfflineReward(rule=rule, **settings).make_transitions(failures, None, GAMMA)


def test_rules_that_recorded_episodes_do_not_permit_are_refused() -> None:
    for rule in ("self_reference", "terminal_ordinal"):
        with pytest.raises(UserError, match=f"rule={rule} needs whole rollouts .* difference, hold"):
            OfflineReward(rule=rule)
    with pytest.raises(UserError, match="rule=program pays the output of a program"):
        OfflineReward(rule="program")
    with pytest.raises(UserError, match=r"reward\.rule=negative_time reads the time limit"):
        OfflineReward.from_refinement(RewardConfig(rule="negative_time"))
    with pytest.raises(UserError, match="rank_progress=true ranks predictions"):
        OfflineReward(rule="sparse", rank_progress=True)


def test_a_run_goes_on_with_the_same_inputs_only(tmp_path: Path) -> None:
    config, data = small_config(steps=20), corridor(4)
    learn_offline(make_policy(data, config), data, config, RunFolder.open(tmp_path), NullReporter())
    other = replace(config, method="cql")
    with pytest.raises(UserError, match=r"was started with method=iql: name another folder"):
        learn_offline(make_policy(data, other), data, other, RunFolder.open(tmp_path, resume=True), NullReporter())
    changed = replace(data, reward=data.reward + 1)
    with pytest.raises(UserError, match="was started with other episodes, or another policy"):
        learn_offline(make_policy(data, config), changed, config, RunFolder.open(tmp_path, resume=True), NullReporter())


def test_sizes_that_differ_between_episodes_are_named() -> None:
    with pytest.raises(DataError, match="one: its state has size 4, that of one 3"):
        make_transitions([make_episode(), make_episode(state=np.zeros((5, 4)))], [np.zeros(4, np.float32)] * 2)


def test_values_outside_the_bounds_of_actions_do_not_count() -> None:
    """The soft maximum of a constant Q is that of the volume of actions, wherever the policy is."""
    config, data = small_config(method="cql", num_sampled_actions=400), corridor(2)
    learner = CQL(make_policy(data, config), config)
    with torch.no_grad():
        for parameter in learner.critics.parameters():
            parameter.zero_()
        learner.policy.mlp[-1].bias.fill_(1.2)
        learner.policy.log_std.fill_(0.5)
        soft_maximum = learner._soft_maximum(learner.policy.normalizer(torch.eye(NUM_STATES)))
    assert torch.allclose(soft_maximum, torch.tensor(2.0).log().expand_as(soft_maximum), atol=0.15)


def test_ranks_keep_the_order_of_all_frames_and_have_equal_distances() -> None:
    rng = np.random.default_rng(0)
    curves = [rng.random(length).astype(np.float32) ** 4 for length in (30, 50, 20)]
    predictions = [make_plain_output(curve, np.ones(len(curve), bool), curve) for curve in curves]
    ranks = np.concatenate([output.progress for output in with_ranks(predictions)])
    assert np.array_equal(np.argsort(ranks), np.argsort(np.concatenate(curves)))
    assert np.allclose(np.sort(ranks), np.arange(100) / 100)


def test_transitions_pair_each_frame_with_the_next_and_leave_out_the_last_action() -> None:
    episodes = [make_episode(4), make_episode(6, success=False)]
    rewards, potentials = [np.arange(3, dtype=np.float32), np.zeros(5, np.float32)], [np.arange(4) / 4, None]
    transitions = make_transitions(episodes, rewards, potentials)
    assert transitions.potential.tolist() == [0, 0.25, 0.5, 0, 0, 0, 0, 0], "of the states before the actions"
    assert len(transitions) == 8
    assert transitions.terminated.tolist() == [False, False, True, *[False] * 5]
    first, second = (np.asarray(episode.state, np.float32) for episode in episodes)
    assert np.array_equal(transitions.next_observation[:3], first[1:])
    assert np.array_equal(transitions.observation[3:], second[:-1])
    assert np.array_equal(transitions.action[3:], np.asarray(episodes[1].action, np.float32)[:-1])
    assert transitions.reward[:3].tolist() == [0, 1, 2]


def test_no_episode_is_trained_and_validated_on() -> None:
    train, validation = corridor().split(0.3, seed=1)
    assert len(train) + len(validation) == len(corridor())
    assert len(validation.episode_index.unique()) == 6
    assert not set(train.episode_index.tolist()) & set(validation.episode_index.tolist())


@pytest.mark.parametrize("method", LEARNERS)
def test_an_interrupted_run_ends_with_the_same_weights(tmp_path: Path, method: str) -> None:
    config, data = small_config(method=method, steps=60), corridor(4)
    policies = []
    for name, reporters in (("whole", [NullReporter()]), ("killed", [KillingReporter(41), NullReporter()])):
        for reporter in reporters:
            policy = make_policy(data, config)
            try:
                rows = learn_offline(policy, data, config, RunFolder.open(tmp_path / name, resume=True), reporter)
            except KilledError:
                assert reporter is not reporters[-1]
        policies.append((policy.state_dict(), rows))
    (whole, rows), (resumed, resumed_rows) = policies
    assert rows == resumed_rows and rows[-1]["step"] == 60
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_diagnostics_compare_errors_and_values_on_episodes_that_are_not_trained_on(tmp_path: Path) -> None:
    config = small_config(steps=40)
    data = corridor(4)
    rows = learn_offline(make_policy(data, config), data, config, RunFolder.open(tmp_path), NullReporter())
    assert len(rows) == 20
    for part in ("train", "validation"):
        assert {"td_error", "q_data", "q_policy", "action_mse", "value"} == set(rows[-1][part])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "sac"}, "method must be one of iql, cql, famo2o, got 'sac'"),
        ({"expectile": 1.0}, r"expectile must be in \(0, 1\), got 1.0"),
        ({"gamma": 0.0}, r"gamma must be in \(0, 1\], got 0.0"),
        ({"max_weight": 0.0}, "max_weight must be > 0, got 0.0"),
        ({"bc_share": 2.0}, r"bc_share must be in \[0, 1\], got 2.0"),
    ],
)
def test_settings_out_of_range_say_so(settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        OfflineConfig(**settings)


def test_episodes_without_actions_or_with_infinite_states_say_so() -> None:
    for columns in ({"action": None}, {"state": np.full((5, 3), np.inf)}):
        with pytest.raises(DataError, match="offline learning needs a finite"):
            make_transitions([make_episode(**columns)], [np.zeros(4, np.float32)])


def test_one_episode_is_too_few_and_cql_needs_actions_within_its_range(tmp_path: Path) -> None:
    data, config = corridor(), small_config(steps=1)
    one = data.take(data.episode_index == 0)
    with pytest.raises(DataError, match="at least 2 episodes"):
        learn_offline(make_policy(one, config), one, config, RunFolder.open(tmp_path), NullReporter())
    wide = replace(data, action=3 * data.action)
    for method in ("cql", "famo2o"):
        config = replace(config, method=method)
        with pytest.raises(UserError, match=rf"method={method} needs actions in \[-1, 1\], and one is 3"):
            learn_offline(make_policy(wide, config), wide, config, RunFolder.open(tmp_path), NullReporter())


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    config, data = small_config(), corridor(2)
    learner = IQL(make_policy(data, config), config)
    with pytest.raises(UserError, match="the loss of critics became"):
        learner.update(replace(data, reward=torch.full((len(data),), float("inf"))), 0)

"""Rewards of whole rollouts: every rule runs, what has to be learned is learned, and nothing of it is forgotten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rl_envs import ImageModel, PointReachEnv

from embodied_rm.errors import UserError
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rewards.rules import RULES, find_rule
from embodied_rm.rewards.transitions import RewardParams, Transitions
from embodied_rm.rl.credit.attribution import ContributionEstimator, find_complete_episodes
from embodied_rm.rl.credit.auxiliary_weight import MAX_AUXILIARY_WEIGHT, update_auxiliary_weight
from embodied_rm.rl.credit.rollout_rewards import RolloutRewards
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv, make_reward_env
from embodied_rm.rl.envs.state_env import StateRewardEnv
from embodied_rm.rl.learner.buffer import PPOBatch, RolloutBuffer, collect
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.learner.ppo import PPO, PPOConfig
from embodied_rm.rl.refine import make_learner, run_iteration
from embodied_rm.rl.refine_config import RefineConfig

SPEC = PolicySpec(obs_dim=2, action_dim=2, hidden=(16,))
CONFIG = RefineConfig(rollout_steps=20, ppo=PPOConfig(gamma=0.95, num_minibatches=2, epochs=1))


class Told(PointReachEnv):
    """`PointReachEnv` whose simulator tells progress too."""

    def reset(self, **kwargs):
        observation, infos = super().reset(**kwargs)
        return observation, {**infos, **self._told()}

    def step(self, actions):
        *rest, infos = super().step(actions)
        return *rest, {**infos, **self._told()}

    def _told(self):
        progress = np.clip(1 - np.linalg.norm(self.position, axis=1), 0, 1).astype(np.float32)
        return {"progress": progress, "subtask": np.zeros(self.num_envs, np.int64)}


class EmbeddedMemory:
    """That of `ImageModel`, which embeds an image as its progress."""

    def __init__(self, inner) -> None:
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def take(self, rows):
        return EmbeddedMemory(self.inner.take(rows))

    def put(self, rows, other):
        return EmbeddedMemory(self.inner.put(rows, other.inner))

    def potential(self):
        return self.inner.potential()

    def embedding(self):
        return self.inner.phi[:, None]


class EmbeddingModel(ImageModel):
    def reset(self, views, instructions, goal=None):
        return EmbeddedMemory(super().reset(views, instructions, goal))

    def step(self, memory, views):
        judged, inner = super().step(memory.inner, views)
        return judged, EmbeddedMemory(inner)


def reward(rule: str) -> RewardConfig:
    return RewardConfig(
        rule=rule,
        success_patience=2,
        success_source="simulator" if RULES[rule].progress_source == "simulator" else "model",
    )


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_pays_a_rollout_that_a_policy_learns_from(rule: str, every: int) -> None:
    config = replace(CONFIG, reward=replace(reward(rule), score_every=every))
    env = make_reward_env(Told(16), EmbeddingModel(), config.reward, 0.95)
    torch.manual_seed(0)
    observation, _ = env.reset(seed=0)
    learner = make_learner(GaussianPolicy(SPEC), config, env.critic_obs_dim)
    settlement = RolloutRewards(env.rule, env.params, env.critic_obs_dim, seed=0)
    before = learner.policy.mlp[0].weight.clone()
    for iteration in range(1, 3):
        observation, row = run_iteration(env, learner, settlement, observation, iteration + 2, config)
        assert np.isfinite(row["critic_loss"])
    assert not torch.equal(learner.policy.mlp[0].weight, before)


def test_success_is_the_simulators_where_that_was_asked_for_and_then_nothing_is_drawn_for_it() -> None:
    envs = Told(8)
    env = make_reward_env(envs, ImageModel(), RewardConfig(rule="sparse", success_source="simulator"), 0.9)
    assert isinstance(env, StateRewardEnv)
    env.reset(seed=0)
    paid, succeeded = 0.0, 0
    for _ in range(40):
        _, step_reward, terminated, _, infos = env.step(-envs.position / 0.15)
        assert np.array_equal(step_reward, infos["success"].astype(float)) and np.array_equal(
            terminated, infos["success"]
        )
        paid, succeeded = paid + step_reward.sum(), succeeded + int(infos["success"].sum())
    stats = env.pop_stats()
    assert paid == succeeded == stats.successes == stats.simulator_successes > 8
    assert envs.rendered == 0


def test_the_models_progress_can_shape_the_simulators_success() -> None:
    """A model that never says "done" still shapes; the episode ends when the simulator says so."""
    envs = PointReachEnv(8)
    config = RewardConfig(success_source="simulator", success_patience=1000)
    env = make_reward_env(envs, ImageModel(), config, 1.0)
    assert isinstance(env, LearnedRewardEnv)
    env.reset(seed=0)
    returns, over = np.zeros(8), np.zeros(8, bool)
    while not over.all():
        _, step_reward, terminated, _, infos = env.step(-envs.position / 0.15)
        returns += np.where(over, 0, step_reward)
        assert np.array_equal(terminated, infos["success"]) and not infos["predicted_success"].any()
        over |= terminated
    np.testing.assert_allclose(returns, 1, atol=1e-6, err_msg="success once, shaping telescopes to nothing")


def test_rewards_of_the_simulator_and_of_the_model_are_never_mixed_silently() -> None:
    with pytest.raises(UserError, match="success_source=simulator"):
        RewardConfig(rule="dense")
    with pytest.raises(UserError, match=r"unknown reward rule 'shape'.*'shaped'"):
        RewardConfig(rule="shape")
    with pytest.raises(UserError, match="model, simulator"):
        RewardConfig(success_source="anyone")


def test_a_rule_that_needs_what_is_not_there_says_so_at_the_first_step() -> None:
    blind = make_reward_env(PointReachEnv(2), ImageModel(), RewardConfig(rule="self_reference"), 0.9)
    blind.reset(seed=0)
    with pytest.raises(UserError, match="whose states have embeddings"):
        blind.step(np.zeros((2, 2)))
    endless = PointReachEnv(2)
    endless.__class__ = type("Endless", (PointReachEnv,), {"max_episode_steps": property()})
    with pytest.raises(UserError, match="lacks max_episode_steps"):
        make_reward_env(endless, ImageModel(), RewardConfig(rule="negative_time"), 0.9)
    short = RolloutRewards(find_rule("sigmoid_reference"), RewardParams(gamma=0.9), 2, seed=0)
    with pytest.raises(UserError, match="rollout_steps=3"):
        short.compute_rewards(rollout(3)[0], GaussianPolicy(SPEC))


def test_embeddings_are_those_of_the_model() -> None:
    net = ProgressNet(NetConfig(views=("front",))).eval()
    env = LearnedRewardEnv(PointReachEnv(3), net, RewardConfig(rule="self_reference"), 0.9)
    env.reset(seed=0)
    _, _, _, _, infos = env.step(np.zeros((3, 2)))
    assert np.array_equal(infos["transitions"].embedding, env._reward_state.states[0].previous_embedding.numpy())


def rollout(steps: int, policy: GaussianPolicy | None = None) -> tuple[RolloutBuffer, Transitions]:
    env = LearnedRewardEnv(PointReachEnv(64), ImageModel(), RewardConfig(success_patience=1000), 0.9)
    torch.manual_seed(0)
    policy = policy or GaussianPolicy(SPEC)
    buffer, _ = collect(env, policy, env.reset(seed=0)[0], steps, torch.Generator().manual_seed(0))
    return buffer, Transitions.stack(buffer.transitions)


def test_contributions_find_the_steps_that_an_outcome_comes_from() -> None:
    """An episode is worth the number of its steps that go right; nobody says which ones did."""
    attribution = ContributionEstimator(2, seed=0)
    for _ in range(8):
        buffer, steps = rollout(60)
        right = (buffer.next_critic_observation[..., 0] > 0).astype(np.float64)
        whole = np.add.reduceat(right, np.arange(0, 60, 20), axis=0)
        outcome = np.zeros_like(right)
        outcome[19::20] = whole
        told = attribution.estimate_contributions(buffer, replace(steps, task_reward=outcome))
    assert told.shape == right.shape
    assert told[right == 1].mean() > 0.8 and told[right == 0].mean() < 0.2
    sums = np.add.reduceat(told, np.arange(0, 60, 20), axis=0)
    assert np.corrcoef(sums.ravel(), whole.ravel())[0, 1] > 0.95


def test_only_episodes_seen_from_first_to_last_step_without_a_fault_are_learned_from() -> None:
    ended = np.array([[0, 0], [1, 0], [0, 1], [1, 0], [0, 0]], bool)
    first = np.array([[0, 1], [0, 0], [1, 0], [0, 1], [1, 0]], bool)
    valid = np.ones_like(ended)
    assert find_complete_episodes(ended, first, valid)[1].T.tolist() == [
        [False, False, True, True, False],
        [True] * 3 + [False] * 2,
    ]
    valid[0, 1] = False
    assert find_complete_episodes(ended, first, valid)[1].T.tolist() == [[False, False, True, True, False], [False] * 5]


def test_an_episode_that_nobody_saw_end_is_not_learned_from() -> None:
    """Episodes of 20 steps; a restart cuts the second one in half."""
    attribution = ContributionEstimator(2, seed=0)
    attribution.estimate_contributions(*rollout(30))
    attribution.end_episodes()
    attribution.estimate_contributions(*rollout(20))
    kept = attribution.state_dict()
    _, whole = find_complete_episodes(*(kept[f"rollouts.{name}"].numpy() for name in ("done", "first", "valid")))
    assert whole.all(axis=1).tolist() == whole.any(axis=1).tolist() == [True] * 20 + [False] * 10 + [True] * 20


@pytest.mark.parametrize(
    ("rule", "bootstraps"), [("terminal_ordinal", False), ("self_reference", False), ("raw", True)]
)
def test_nothing_follows_a_time_limit_for_who_is_paid_at_the_end(rule: str, bootstraps: bool) -> None:
    """Else to end just short of success would be worth more than success, again and again."""
    net = ProgressNet(NetConfig(views=("front",))).eval()
    env = LearnedRewardEnv(PointReachEnv(8), net, RewardConfig(rule=rule, success_patience=1000), 0.9)
    observation, _ = env.reset(seed=0)
    config = RefineConfig(rollout_steps=20, ppo=PPOConfig(gamma=0.9, gae_lambda=1.0, epochs=1, num_minibatches=1))
    learner = make_learner(GaussianPolicy(SPEC), config, env.critic_obs_dim)
    last = learner.critic.mlp[-1]
    torch.nn.init.zeros_(last.weight), torch.nn.init.constant_(last.bias, 100.0)
    seen: list[PPOBatch] = []
    learner.update = lambda batch, **_: seen.append(batch) or PPO.update(learner, batch, train_actor=False)
    run_iteration(env, learner, RolloutRewards(env.rule, env.params, env.critic_obs_dim, 0), observation, 0, config)
    assert (float(seen[0].target.max()) > 50) == bootstraps


def test_the_blend_follows_what_helps_the_task() -> None:
    policy = GaussianPolicy(SPEC)
    buffer, _ = rollout(40, policy)
    task = -np.linalg.norm(buffer.next_critic_observation, axis=-1)
    up = update_auxiliary_weight(0.5, buffer, task, 3 * task + 1, policy, 0.9)
    down = update_auxiliary_weight(0.5, buffer, task, -task, policy, 0.9)
    assert up == pytest.approx(0.7, abs=0.01) and down == pytest.approx(0.3, abs=0.01)
    assert update_auxiliary_weight(0.5, buffer, np.zeros_like(task), task, policy, 0.9) == 0.5, (
        "no success yet: nothing is known"
    )
    assert (
        update_auxiliary_weight(MAX_AUXILIARY_WEIGHT, buffer, task, task, policy, 0.9) == MAX_AUXILIARY_WEIGHT
        and update_auxiliary_weight(0.0, buffer, task, -task, policy, 0.9) == 0
    )


@pytest.mark.parametrize("rule", ["sigmoid_reference", "redistributed", "blended"])
def test_what_was_remembered_is_remembered_after_a_restart(rule: str, tmp_path: Path) -> None:
    policy, terms = GaussianPolicy(SPEC), RewardParams(gamma=0.9)
    one = RolloutRewards(find_rule(rule), terms, 2, seed=0)
    buffer = rollout(40, policy)[0]
    one.compute_rewards(buffer, policy)
    other = RolloutRewards(find_rule(rule), terms, 2, seed=1)
    other.load_state_dict(one.state_dict(), "there")
    assert np.array_equal(one.compute_rewards(buffer, policy), other.compute_rewards(buffer, policy))

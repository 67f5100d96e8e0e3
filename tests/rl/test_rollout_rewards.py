"""Tests of rewards of whole rollouts: all rules, learned contributions and weights, and stored state."""

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
from embodied_rm.rl.credit.attribution import ContributionEstimator
from embodied_rm.rl.credit.auxiliary_weight import MAX_AUXILIARY_WEIGHT, update_auxiliary_weight
from embodied_rm.rl.credit.episode_memory import EpisodeMemory, find_complete_episodes
from embodied_rm.rl.credit.rollout_rewards import RolloutRewards
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv, StateRewardEnv, make_reward_env
from embodied_rm.rl.iteration import make_learner, run_iteration
from embodied_rm.rl.learner.buffer import PPOBatch, RolloutBuffer, collect
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.learner.ppo import PPO, PPOConfig
from embodied_rm.rl.refine_config import RefineConfig

SPEC = PolicySpec(obs_dim=2, action_dim=2, hidden=(16,))
CONFIG = RefineConfig(rollout_steps=20, ppo=PPOConfig(gamma=0.95, num_minibatches=2, epochs=1))


class ProgressEnv(PointReachEnv):
    """`PointReachEnv` with the progress of the simulator."""

    def reset(self, **kwargs):
        observation, infos = super().reset(**kwargs)
        return observation, {**infos, **self._progress_infos()}

    def step(self, actions):
        *rest, infos = super().step(actions)
        return *rest, {**infos, **self._progress_infos()}

    def _progress_infos(self):
        progress = np.clip(1 - np.linalg.norm(self.position, axis=1), 0, 1).astype(np.float32)
        subtask = np.zeros(self.num_envs, np.int64)
        return {"progress": progress, "program_reward": progress, "subtask": subtask}


class EmbeddingState:
    """State of `ImageModel` with the progress as the embedding."""

    def __init__(self, inner) -> None:
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def take(self, rows):
        return EmbeddingState(self.inner.take(rows))

    def put(self, rows, other):
        return EmbeddingState(self.inner.put(rows, other.inner))

    def potential(self):
        return self.inner.potential()

    def embedding(self):
        return self.inner.phi[:, None]


class EmbeddingModel(ImageModel):
    def reset(self, views, instructions, goal=None):
        return EmbeddingState(super().reset(views, instructions, goal))

    def step(self, state, views):
        output, inner = super().step(state.inner, views)
        return output, EmbeddingState(inner)


def reward(rule: str) -> RewardConfig:
    return RewardConfig(
        rule=rule,
        success_patience=2,
        success_source="simulator" if RULES[rule].progress_source == "simulator" else "model",
    )


@pytest.mark.parametrize("score_every", [1, 3])
@pytest.mark.parametrize("rule", RULES)
def test_a_policy_learns_with_every_rule(rule: str, score_every: int) -> None:
    config = replace(CONFIG, reward=replace(reward(rule), score_every=score_every))
    env = make_reward_env(ProgressEnv(16), EmbeddingModel(), config.reward, 0.95)
    torch.manual_seed(0)
    observation, _ = env.reset(seed=0)
    learner = make_learner(GaussianPolicy(SPEC), config, env.critic_obs_dim)
    rollout_rewards = RolloutRewards(env.rule, env.params, learner.policy, env.critic_obs_dim, seed=0)
    before = learner.policy.mlp[0].weight.clone()
    for iteration in range(1, 3):
        observation, row = run_iteration(env, learner, rollout_rewards, observation, iteration + 2, config)
        assert np.isfinite(row["critic_loss"])
    assert not torch.equal(learner.policy.mlp[0].weight, before)


def test_simulator_success_needs_no_images() -> None:
    envs = ProgressEnv(8)
    env = make_reward_env(envs, ImageModel(), RewardConfig(rule="sparse", success_source="simulator"), 0.9)
    assert isinstance(env, StateRewardEnv)
    env.reset(seed=0)
    total_reward, succeeded = 0.0, 0
    for _ in range(40):
        _, step_reward, terminated, _, infos = env.step(-envs.position / 0.15)
        assert np.array_equal(step_reward, infos["success"].astype(float)) and np.array_equal(
            terminated, infos["success"]
        )
        total_reward, succeeded = total_reward + step_reward.sum(), succeeded + int(infos["success"].sum())
    stats = env.pop_stats()
    assert total_reward == succeeded == stats.successes == stats.simulator_successes > 8
    assert envs.rendered == 0


def test_progress_of_the_model_shapes_success_of_the_simulator() -> None:
    """The model never predicts success, but its progress shapes; the success of the simulator ends episodes."""
    envs = PointReachEnv(8)
    config = RewardConfig(success_source="simulator", success_patience=1000)
    env = make_reward_env(envs, ImageModel(), config, 1.0)
    assert isinstance(env, LearnedRewardEnv)
    env.reset(seed=0)
    returns, done = np.zeros(8), np.zeros(8, bool)
    while not done.all():
        _, step_reward, terminated, _, infos = env.step(-envs.position / 0.15)
        returns += np.where(done, 0, step_reward)
        assert np.array_equal(terminated, infos["success"]) and not infos["predicted_success"].any()
        done |= terminated
    np.testing.assert_allclose(returns, 1, atol=1e-6, err_msg="one success; shaping telescopes to 0")


def test_invalid_rules_and_sources_raise() -> None:
    with pytest.raises(UserError, match="success_source=simulator"):
        RewardConfig(rule="dense")
    with pytest.raises(UserError, match=r"unknown reward rule 'shape'.*'shaped'"):
        RewardConfig(rule="shape")
    with pytest.raises(UserError, match="model, simulator"):
        RewardConfig(success_source="other")


def test_missing_rule_inputs_raise() -> None:
    blind = make_reward_env(PointReachEnv(2), ImageModel(), RewardConfig(rule="self_reference"), 0.9)
    blind.reset(seed=0)
    with pytest.raises(UserError, match="whose states have embeddings"):
        blind.step(np.zeros((2, 2)))
    endless = PointReachEnv(2)
    endless.__class__ = type("Endless", (PointReachEnv,), {"max_episode_steps": property()})
    with pytest.raises(UserError, match="lacks max_episode_steps"):
        make_reward_env(endless, ImageModel(), RewardConfig(rule="negative_time"), 0.9)
    short = RolloutRewards(find_rule("sigmoid_reference"), RewardParams(gamma=0.9), GaussianPolicy(SPEC), 2, seed=0)
    with pytest.raises(UserError, match="rollout_steps=3"):
        short.compute_rewards(rollout(3)[0], GaussianPolicy(SPEC))


def test_transitions_have_the_embeddings_of_the_model() -> None:
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


def test_contributions_find_the_relevant_steps() -> None:
    """The outcome of an episode is its number of steps to the right; single steps have no label."""
    estimator = ContributionEstimator(2, seed=0)
    for _ in range(8):
        buffer, steps = rollout(60)
        right = (buffer.next_critic_observation[..., 0] > 0).astype(np.float64)
        episode_sums = np.add.reduceat(right, np.arange(0, 60, 20), axis=0)
        outcome = np.zeros_like(right)
        outcome[19::20] = episode_sums
        contributions = estimator.step_rewards(buffer, replace(steps, task_reward=outcome), GaussianPolicy(SPEC))
    assert contributions.shape == right.shape
    assert contributions[right == 1].mean() > 0.8 and contributions[right == 0].mean() < 0.2
    sums = np.add.reduceat(contributions, np.arange(0, 60, 20), axis=0)
    assert np.corrcoef(sums.ravel(), episode_sums.ravel())[0, 1] > 0.95


def test_only_complete_valid_episodes_are_training_data() -> None:
    ended = np.array([[0, 0], [1, 0], [0, 1], [1, 0], [0, 0]], bool)
    first = np.array([[0, 1], [0, 0], [1, 0], [0, 1], [1, 0]], bool)
    valid = np.ones_like(ended)
    assert find_complete_episodes(ended, first, valid)[1].T.tolist() == [
        [False, False, True, True, False],
        [True] * 3 + [False] * 2,
    ]
    valid[0, 1] = False
    assert find_complete_episodes(ended, first, valid)[1].T.tolist() == [[False, False, True, True, False], [False] * 5]


def test_interrupted_episodes_are_no_training_data() -> None:
    """Episodes of 20 steps; a restart cuts the second one in half."""
    estimator = ContributionEstimator(2, seed=0)
    estimator.step_rewards(*rollout(30), GaussianPolicy(SPEC))
    estimator.end_episodes()
    estimator.step_rewards(*rollout(20), GaussianPolicy(SPEC))
    state = estimator.state_dict()
    _, episode_sums = find_complete_episodes(
        *(state[f"rollouts.{name}"].numpy() for name in ("done", "first", "valid"))
    )
    assert (
        episode_sums.all(axis=1).tolist()
        == episode_sums.any(axis=1).tolist()
        == [True] * 20 + [False] * 10 + [True] * 20
    )


@pytest.mark.parametrize("rollout_steps", [3, 4, 7, 20, 50])
def test_an_episode_of_any_length_up_to_the_limit_is_complete_when_it_ends(rollout_steps: int) -> None:
    """Rollouts may be much shorter than episodes, and out of step with them."""
    limit = 20
    memory, lengths = EpisodeMemory(limit), [limit, limit - 1, limit]
    done = np.zeros((sum(lengths) // rollout_steps + 1) * rollout_steps, bool)
    done[np.cumsum(lengths) - 1] = True
    ends = set(np.cumsum(lengths) - 1)
    for start in range(0, len(done), rollout_steps):
        steps = np.arange(start, start + rollout_steps, dtype=np.float32)[:, None]
        chunk = done[start : start + rollout_steps, None]
        memory.add({"step": steps}, chunk, np.ones_like(chunk))
        episodes = memory.complete_episodes()
        found = {int(episodes.columns["step"][episodes.index == i].max()) for i in range(episodes.count)}
        assert {end for end in ends if start <= end < start + rollout_steps} <= found <= ends


@pytest.mark.parametrize(
    ("rule", "bootstraps"), [("terminal_ordinal", False), ("self_reference", False), ("raw", True)]
)
def test_terminal_rules_do_not_bootstrap_at_time_limits(rule: str, bootstraps: bool) -> None:
    """With bootstrapping, stopping just before success would be worth more than success."""
    net = ProgressNet(NetConfig(views=("front",))).eval()
    env = LearnedRewardEnv(PointReachEnv(8), net, RewardConfig(rule=rule, success_patience=1000), 0.9)
    observation, _ = env.reset(seed=0)
    config = RefineConfig(rollout_steps=20, ppo=PPOConfig(gamma=0.9, gae_lambda=1.0, epochs=1, num_minibatches=1))
    learner = make_learner(GaussianPolicy(SPEC), config, env.critic_obs_dim)
    last = learner.critic.mlp[-1]
    torch.nn.init.zeros_(last.weight), torch.nn.init.constant_(last.bias, 100.0)
    batches: list[PPOBatch] = []
    learner.update = lambda batch, **_: batches.append(batch) or PPO.update(learner, batch, train_actor=False)
    run_iteration(
        env,
        learner,
        RolloutRewards(env.rule, env.params, learner.policy, env.critic_obs_dim, 0),
        observation,
        0,
        config,
    )
    assert (float(batches[0].target.max()) > 50) == bootstraps


def test_auxiliary_weight_follows_the_task() -> None:
    policy = GaussianPolicy(SPEC)
    buffer, _ = rollout(40, policy)
    task = -np.linalg.norm(buffer.next_critic_observation, axis=-1)
    up = update_auxiliary_weight(0.5, buffer, task, 3 * task + 1, policy, 0.9)
    down = update_auxiliary_weight(0.5, buffer, task, -task, policy, 0.9)
    assert up == pytest.approx(0.7, abs=0.01) and down == pytest.approx(0.3, abs=0.01)
    assert update_auxiliary_weight(0.5, buffer, np.zeros_like(task), task, policy, 0.9) == 0.5, (
        "without a task reward, the weight stays"
    )
    assert (
        update_auxiliary_weight(MAX_AUXILIARY_WEIGHT, buffer, task, task, policy, 0.9) == MAX_AUXILIARY_WEIGHT
        and update_auxiliary_weight(0.0, buffer, task, -task, policy, 0.9) == 0
    )


@pytest.mark.parametrize(
    "rule", ["sigmoid_reference", "redistributed", "blended", "implicit_preference", "implicit_outcome"]
)
def test_state_round_trip(rule: str, tmp_path: Path) -> None:
    policy, params = GaussianPolicy(SPEC), RewardParams(gamma=0.9, max_episode_steps=20)
    one = RolloutRewards(find_rule(rule), params, policy, 2, seed=0)
    buffer = rollout(40, policy)[0]
    one.compute_rewards(buffer, policy)
    other = RolloutRewards(find_rule(rule), params, policy, 2, seed=1)
    other.load_state_dict(one.state_dict(), "there")
    assert np.array_equal(one.compute_rewards(buffer, policy), other.compute_rewards(buffer, policy))

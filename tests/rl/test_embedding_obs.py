"""Tests of observations with proprioception and embeddings of the current images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from rl_envs import ImageModel, PointReachEnv

from embodied_rm.errors import UserError
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.credit.rollout_rewards import RolloutRewards
from embodied_rm.rl.envs.embedding_obs import EmbeddingObservation, embed_observations
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.rl.iteration import make_learner, run_iteration
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.learner.ppo import PPOConfig
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.types import Episode, Views
from embodied_sim.observation import PROPRIO_DIM
from embodied_sim.vec_env import TabletopVecEnv

VIEWS = ("front", "wrist")
NET = ProgressNet(NetConfig(views=VIEWS)).eval()


def envs() -> TabletopVecEnv:
    return TabletopVecEnv("lift_cube", 3, views=VIEWS, autoreset_mode=AutoresetMode.DISABLED)


def embed_images(env: EmbeddingObservation, instructions: tuple[str, ...]) -> np.ndarray:
    """Return the embeddings of the current images in new episodes."""
    return NET.reset(
        Views(names=VIEWS, frames=env.env.render_views(np.arange(3))), instructions
    ).previous_embedding.numpy()


def test_observation_is_proprioception_and_current_embeddings() -> None:
    env = EmbeddingObservation(envs(), NET)
    obs, infos = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for step in range(6):
        assert env.single_observation_space.shape == obs.shape[1:] == (PROPRIO_DIM + NET.config.width,)
        assert np.array_equal(obs[:, :PROPRIO_DIM], infos["state"][:, :PROPRIO_DIM])
        np.testing.assert_allclose(obs[:, PROPRIO_DIM:], embed_images(env, env.env.instructions), atol=1e-4)
        if step == 3:
            obs, infos = env.reset(options={"reset_mask": np.array([False, True, False])})
        else:
            obs, _, _, _, infos = env.step(rng.uniform(-1, 1, (3, 4)))
    env.close()


def test_embedded_demonstration_equals_online_observations() -> None:
    """Recorded images and states give the observations of the environment."""
    env = EmbeddingObservation(envs(), NET)
    obs, infos = env.reset(seed=2)
    rows, states, frames = [obs[0]], [infos["state"][0]], [env.render_views(np.arange(3))[0]]
    for _ in range(4):
        obs, _, _, _, infos = env.step(np.full((3, 4), 0.3))
        rows.append(obs[0]), states.append(infos["state"][0]), frames.append(env.render_views(np.arange(3))[0])
    views = {name: np.stack(frames)[:, v] for v, name in enumerate(VIEWS)}
    demo = Episode(name="demo", views=views, instruction=env.env.instructions[0], fps=20, state=np.stack(states))
    np.testing.assert_allclose(embed_observations(NET, demo, PROPRIO_DIM).state, np.stack(rows), atol=1e-4)
    env.close()


def test_snapshot_round_trip() -> None:
    one, other = EmbeddingObservation(envs(), NET), EmbeddingObservation(envs(), NET)
    one.reset(seed=0), other.reset(seed=5)
    one.step(np.full((3, 4), 0.5))
    snapshot = one.snapshot()
    expected = one.step(np.full((3, 4), -0.5))[0]
    other.restore(snapshot)
    assert np.array_equal(other.step(np.full((3, 4), -0.5))[0], expected)
    one.close(), other.close()


def test_environments_without_snapshots_have_no_state() -> None:
    """New episodes start after a restart."""
    no_snapshot = envs()
    no_snapshot.__class__ = type("Forgetful", (TabletopVecEnv,), {"snapshot": property()})
    env = LearnedRewardEnv(EmbeddingObservation(no_snapshot, NET), NET, RewardConfig(), 0.9)
    first, _ = env.reset(seed=3)
    first = first.copy()
    env.step(np.full((3, 4), 0.5))
    assert env.state_dict() == {}
    assert np.array_equal(env.load_state_dict({}, seed=3), first)
    env.close()


def test_critic_observes_the_full_state() -> None:
    env = LearnedRewardEnv(EmbeddingObservation(envs(), NET), NET, RewardConfig(score_every=2), 0.9)
    observation, _ = env.reset(seed=0)
    config = RefineConfig(rollout_steps=5, ppo=PPOConfig(num_minibatches=2, epochs=1))
    policy = GaussianPolicy(
        PolicySpec(obs_dim=observation.shape[1], action_dim=4, hidden=(8,), obs_mode="proprio+embeddings")
    )
    learner = make_learner(policy, config, env.critic_obs_dim)
    state_dim = env.env.env.single_observation_space.shape[0]
    assert learner.critic.normalizer.mean.shape == (state_dim,) != learner.policy.normalizer.mean.shape
    rollout_rewards = RolloutRewards(env.rule, env.params, policy, env.critic_obs_dim, 0)
    _, row = run_iteration(env, learner, rollout_rewards, observation, 0, config)
    assert np.isfinite(row["critic_loss"]) and not torch.equal(learner.critic.normalizer.mean, torch.zeros(state_dim))
    env.close()


def test_unsupported_environments_and_models_raise() -> None:
    with pytest.raises(UserError, match="lacks proprio_size"):
        EmbeddingObservation(PointReachEnv(2), NET)
    body = PointReachEnv(2)
    body.proprio_size = 1
    with pytest.raises(UserError, match="whose states have embeddings"):
        EmbeddingObservation(body, ImageModel())

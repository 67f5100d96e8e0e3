"""Policies that see what a robot sees: its body, and embeddings of the images of this very moment."""

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
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.learner.ppo import PPOConfig
from embodied_rm.rl.refine import make_learner, run_iteration
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.types import Episode, Views
from embodied_sim.observation import PROPRIO_DIM
from embodied_sim.vec_env import TabletopVecEnv

VIEWS = ("front", "wrist")
NET = ProgressNet(NetConfig(views=VIEWS)).eval()


def envs() -> TabletopVecEnv:
    return TabletopVecEnv("lift_cube", 3, views=VIEWS, autoreset_mode=AutoresetMode.DISABLED)


def embedded(env: EmbeddingObservation, instructions: tuple[str, ...]) -> np.ndarray:
    """What the model makes of the images now, from nothing."""
    return NET.reset(
        Views(names=VIEWS, frames=env.env.render_views(np.arange(3))), instructions
    ).previous_embedding.numpy()


def test_what_is_seen_is_the_body_and_the_images_of_now() -> None:
    env = EmbeddingObservation(envs(), NET)
    seen, infos = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for step in range(6):
        assert env.single_observation_space.shape == seen.shape[1:] == (PROPRIO_DIM + NET.config.width,)
        assert np.array_equal(seen[:, :PROPRIO_DIM], infos["state"][:, :PROPRIO_DIM])
        np.testing.assert_allclose(seen[:, PROPRIO_DIM:], embedded(env, env.env.instructions), atol=1e-4)
        if step == 3:
            seen, infos = env.reset(options={"reset_mask": np.array([False, True, False])})
        else:
            seen, _, _, _, infos = env.step(rng.uniform(-1, 1, (3, 4)))
    env.close()


def test_a_demonstration_looks_as_it_would_have_looked() -> None:
    """The very observations of the environment, from the recorded images and states."""
    env = EmbeddingObservation(envs(), NET)
    seen, infos = env.reset(seed=2)
    rows, states, frames = [seen[0]], [infos["state"][0]], [env.render_views(np.arange(3))[0]]
    for _ in range(4):
        seen, _, _, _, infos = env.step(np.full((3, 4), 0.3))
        rows.append(seen[0]), states.append(infos["state"][0]), frames.append(env.render_views(np.arange(3))[0])
    views = {name: np.stack(frames)[:, v] for v, name in enumerate(VIEWS)}
    demo = Episode(name="demo", views=views, instruction=env.env.instructions[0], fps=20, state=np.stack(states))
    np.testing.assert_allclose(embed_observations(NET, demo, PROPRIO_DIM).state, np.stack(rows), atol=1e-4)
    env.close()


def test_it_goes_on_from_a_snapshot() -> None:
    one, other = EmbeddingObservation(envs(), NET), EmbeddingObservation(envs(), NET)
    one.reset(seed=0), other.reset(seed=5)
    one.step(np.full((3, 4), 0.5))
    taken = one.snapshot()
    expected = one.step(np.full((3, 4), -0.5))[0]
    other.restore(taken)
    assert np.array_equal(other.step(np.full((3, 4), -0.5))[0], expected)
    one.close(), other.close()


def test_of_envs_that_cannot_be_put_away_nothing_is() -> None:
    """Their episodes begin anew after a restart."""
    forgetful = envs()
    forgetful.__class__ = type("Forgetful", (TabletopVecEnv,), {"snapshot": property()})
    env = LearnedRewardEnv(EmbeddingObservation(forgetful, NET), NET, RewardConfig(), 0.9)
    first, _ = env.reset(seed=3)
    first = first.copy()
    env.step(np.full((3, 4), 0.5))
    assert env.state_dict() == {}
    assert np.array_equal(env.load_state_dict({}, seed=3), first)
    env.close()


def test_the_critic_sees_the_whole_state_and_the_policy_does_not() -> None:
    env = LearnedRewardEnv(EmbeddingObservation(envs(), NET), NET, RewardConfig(score_every=2), 0.9)
    observation, _ = env.reset(seed=0)
    config = RefineConfig(rollout_steps=5, ppo=PPOConfig(num_minibatches=2, epochs=1))
    policy = GaussianPolicy(
        PolicySpec(obs_dim=observation.shape[1], action_dim=4, hidden=(8,), obs_mode="proprio+embeddings")
    )
    learner = make_learner(policy, config, env.critic_obs_dim)
    whole = env.env.env.single_observation_space.shape[0]
    assert learner.critic.normalizer.mean.shape == (whole,) != learner.policy.normalizer.mean.shape
    settlement = RolloutRewards(env.rule, env.params, env.critic_obs_dim, 0)
    _, row = run_iteration(env, learner, settlement, observation, 0, config)
    assert np.isfinite(row["critic_loss"]) and not torch.equal(learner.critic.normalizer.mean, torch.zeros(whole))
    env.close()


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(UserError, match="lacks proprio_size"):
        EmbeddingObservation(PointReachEnv(2), NET)
    body = PointReachEnv(2)
    body.proprio_size = 1
    with pytest.raises(UserError, match="whose states have embeddings"):
        EmbeddingObservation(body, ImageModel())

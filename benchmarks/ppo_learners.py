"""Three PPO implementations with equal settings: embodied-rm, Stable-Baselines3 and rsl-rl; for ppo_parity.py and
ppo_speed.py."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import stable_baselines3 as sb3
import torch
from gymnasium.spaces.utils import flatdim
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

from embodied_rm.rl.learner.buffer import collect
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, ValueCritic
from embodied_rm.rl.learner.ppo import PPO, PPOConfig
from embodied_sim.adapters.rsl_rl import OBS_GROUP, RslRlVecEnv
from embodied_sim.adapters.sb3 import Sb3VecEnv

PolicyFn = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class PPOSettings:
    """Settings of all three."""

    rollout_steps: int
    """Steps per environment and iteration."""
    minibatches: int
    epochs: int
    hidden: tuple[int, ...] = (64, 64)
    learning_rate: float = 1e-3
    gamma: float = 0.9
    gae_lambda: float = 0.95
    clip: float = 0.2
    max_grad_norm: float = 0.5


class DenseFinalObs(VectorWrapper):
    """SAME_STEP autoreset with the infos that `collect` and the adapters need."""

    def step(self, actions: Any) -> Any:
        observation, reward, terminated, truncated, infos = self.env.step(actions)
        final_obs = observation.copy()
        for row in np.flatnonzero(terminated | truncated):
            final_obs[row] = infos["final_obs"][row]
        zeros = np.zeros(self.num_envs)
        dense_infos = {
            "final_obs": final_obs,
            "valid_transition": zeros == 0,
            "potential": zeros,
            "next_potential": zeros,
        }
        return observation, reward, terminated, truncated, dense_infos


def make_envs(task: str, num_envs: int) -> VectorEnv:
    """Create a `SyncVectorEnv` of a Gymnasium task."""
    return DenseFinalObs(SyncVectorEnv([lambda: gym.make(task)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP))


def train_ours(env: VectorEnv, settings: PPOSettings, iterations: int, seed: int) -> PolicyFn:
    """Train with this package and return the policy."""
    torch.manual_seed(seed)
    obs_dim, action_dim = map(flatdim, (env.single_observation_space, env.single_action_space))
    config = PPOConfig(
        gamma=settings.gamma,
        gae_lambda=settings.gae_lambda,
        actor_learning_rate=settings.learning_rate,
        critic_learning_rate=settings.learning_rate,
        epochs=settings.epochs,
        num_minibatches=settings.minibatches,
        clip_range=settings.clip,
        entropy_coef=0.0,
        target_kl=float("inf"),
        max_grad_norm=settings.max_grad_norm,
    )
    spec = PolicySpec(obs_dim=obs_dim, action_dim=action_dim, hidden=settings.hidden, log_std_init=0.0)
    ppo = PPO(GaussianPolicy(spec), ValueCritic(obs_dim, settings.hidden), config, torch.Generator().manual_seed(seed))
    observation, _ = env.reset(seed=seed)
    for _ in range(iterations):
        buffer, observation = collect(env, ppo.policy, observation, settings.rollout_steps, ppo.generator)
        ppo.update(buffer.make_batch(ppo.critic, config.gamma, config.gae_lambda))
    return ppo.policy.act


def train_sb3(env: VectorEnv, settings: PPOSettings, iterations: int, seed: int) -> PolicyFn:
    """Train with Stable-Baselines3 and return the policy."""
    steps_per_iteration = settings.rollout_steps * env.num_envs
    model = sb3.PPO(
        "MlpPolicy",
        Sb3VecEnv(env),
        learning_rate=settings.learning_rate,
        n_steps=settings.rollout_steps,
        batch_size=steps_per_iteration // settings.minibatches,
        n_epochs=settings.epochs,
        gamma=settings.gamma,
        gae_lambda=settings.gae_lambda,
        clip_range=settings.clip,
        ent_coef=0.0,
        max_grad_norm=settings.max_grad_norm,
        policy_kwargs={"net_arch": list(settings.hidden)},
        seed=seed,
        device="cpu",
    )
    model.learn(iterations * steps_per_iteration)
    return lambda observation: model.predict(observation, deterministic=True)[0]


def train_rsl_rl(env: VectorEnv, settings: PPOSettings, iterations: int, seed: int) -> PolicyFn:
    """Train with rsl-rl and return the policy."""
    torch.manual_seed(seed)
    network = {"class_name": "MLPModel", "hidden_dims": list(settings.hidden), "activation": "tanh"}
    config = {
        "num_steps_per_env": settings.rollout_steps,
        "save_interval": 10**9,
        "check_for_nan": False,
        "obs_groups": {"actor": [OBS_GROUP], "critic": [OBS_GROUP]},
        "actor": {**network, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0}},
        "critic": dict(network),
        "algorithm": {
            "class_name": "PPO",
            "num_learning_epochs": settings.epochs,
            "num_mini_batches": settings.minibatches,
            "clip_param": settings.clip,
            "gamma": settings.gamma,
            "lam": settings.gae_lambda,
            "entropy_coef": 0.0,
            "learning_rate": settings.learning_rate,
            "max_grad_norm": settings.max_grad_norm,
            "use_clipped_value_loss": False,
            "schedule": "fixed",
        },
    }
    with contextlib.redirect_stdout(io.StringIO()):
        runner = OnPolicyRunner(RslRlVecEnv(env, seed=seed), config, log_dir=None)
        runner.learn(iterations)
    policy = runner.get_inference_policy()

    def act(observation: np.ndarray) -> np.ndarray:
        observations = TensorDict(
            {OBS_GROUP: torch.as_tensor(observation, dtype=torch.float32)}, batch_size=[len(observation)]
        )
        with torch.inference_mode():
            return policy(observations).numpy()

    return act


LEARNERS = {"ours": train_ours, "Stable-Baselines3": train_sb3, "rsl-rl": train_rsl_rl}
DIFFERENCES_NOTE = (
    "Differences: Stable-Baselines3 has one optimizer and one gradient norm for both networks, the others one for "
    "each. It normalizes advantages per minibatch, the others per rollout. rsl-rl uses Adam's eps of 1e-8, the others "
    "1e-5. It keeps torch's default initialization, the others use orthogonal weights. It learns the standard "
    "deviation instead of its logarithm. At time limits it bootstraps from the value before the last step, the others "
    "from that after it."
)

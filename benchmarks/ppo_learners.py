"""Three PPO learners at equal settings: ours, Stable-Baselines3's and rsl-rl's; for ppo_parity.py and ppo_speed.py."""

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
from embodied_rm.rl.learner.policy import Critic, GaussianPolicy, PolicySpec
from embodied_rm.rl.learner.ppo import PPO, PPOConfig
from sim.adapters.rsl_rl import GROUP, RslRlVecEnv
from sim.adapters.sb3 import Sb3VecEnv

Act = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What all three have in common."""

    rollout: int
    """Steps of every environment in an iteration."""
    minibatches: int
    epochs: int
    hidden: tuple[int, ...] = (64, 64)
    learning_rate: float = 1e-3
    gamma: float = 0.9
    gae_lambda: float = 0.95
    clip: float = 0.2
    max_grad_norm: float = 0.5


class DenseFinal(VectorWrapper):
    """SAME_STEP autoreset with what `collect` and the adapters need in the infos."""

    def step(self, actions: Any) -> Any:
        observation, reward, terminated, truncated, infos = self.env.step(actions)
        final = observation.copy()
        for row in np.flatnonzero(terminated | truncated):
            final[row] = infos["final_obs"][row]
        flat = np.zeros(self.num_envs)
        needed = {"final_obs": final, "valid": flat == 0, "potential": flat, "next_potential": flat}
        return observation, reward, terminated, truncated, needed


def worlds(task: str, num_envs: int) -> VectorEnv:
    """Environments of Gymnasium's, one after the other."""
    return DenseFinal(SyncVectorEnv([lambda: gym.make(task)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP))


def ours(env: VectorEnv, settings: Settings, iterations: int, seed: int) -> Act:
    """Our policy after that many rollouts."""
    torch.manual_seed(seed)
    seen, acted = map(flatdim, (env.single_observation_space, env.single_action_space))
    config = PPOConfig(
        gamma=settings.gamma,
        gae_lambda=settings.gae_lambda,
        actor_lr=settings.learning_rate,
        critic_lr=settings.learning_rate,
        epochs=settings.epochs,
        minibatches=settings.minibatches,
        clip=settings.clip,
        entropy_coef=0.0,
        target_kl=float("inf"),
        max_grad_norm=settings.max_grad_norm,
    )
    spec = PolicySpec(obs_dim=seen, action_dim=acted, hidden=settings.hidden, log_std_init=0.0)
    ppo = PPO(GaussianPolicy(spec), Critic(seen, settings.hidden), config, torch.Generator().manual_seed(seed))
    observation, _ = env.reset(seed=seed)
    for _ in range(iterations):
        buffer, observation = collect(env, ppo.policy, observation, settings.rollout, ppo.generator)
        ppo.update(buffer.batch(ppo.critic, config.gamma, config.gae_lambda))
    return ppo.policy.act


def stable_baselines3(env: VectorEnv, settings: Settings, iterations: int, seed: int) -> Act:
    """Stable-Baselines3's."""
    size = settings.rollout * env.num_envs
    model = sb3.PPO(
        "MlpPolicy",
        Sb3VecEnv(env),
        learning_rate=settings.learning_rate,
        n_steps=settings.rollout,
        batch_size=size // settings.minibatches,
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
    model.learn(iterations * size)
    return lambda observation: model.predict(observation, deterministic=True)[0]


def rsl_rl(env: VectorEnv, settings: Settings, iterations: int, seed: int) -> Act:
    """rsl-rl's."""
    torch.manual_seed(seed)
    network = {"class_name": "MLPModel", "hidden_dims": list(settings.hidden), "activation": "tanh"}
    config = {
        "num_steps_per_env": settings.rollout,
        "save_interval": 10**9,
        "check_for_nan": False,
        "obs_groups": {"actor": [GROUP], "critic": [GROUP]},
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
        seen = TensorDict({GROUP: torch.as_tensor(observation, dtype=torch.float32)}, batch_size=[len(observation)])
        with torch.inference_mode():
            return policy(seen).numpy()

    return act


LEARNERS = {"ours": ours, "Stable-Baselines3": stable_baselines3, "rsl-rl": rsl_rl}
EQUAL = (
    "What is not equal: Stable-Baselines3 has one optimiser and one gradient norm for both networks, the others one "
    "for each, and normalises advantages in each minibatch, the others once a rollout; rsl-rl has Adam's eps at 1e-8, "
    "the others at 1e-5, weights drawn as torch does, the others orthogonal ones, learns the noise and not its "
    "logarithm, and follows a time limit by the value before the last step, the others by that after it."
)

"""Train Stable-Baselines3's PPO on a task: python docs/examples/sb3_ppo.py

Needs `pip install '.[sb3]'`. Its other algorithms accept the same environment.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np
from progress_reward import ProgressReward
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

import embodied_sim
from embodied_sim.adapters.sb3 import Sb3VecEnv

gym.register_envs(embodied_sim)


def train(env_id: str, num_envs: int, num_steps: int, seed: int = 0) -> PPO:
    """Train for about `num_steps` environment steps and return the model."""
    envs = gym.make_vec(env_id, num_envs=num_envs, ends_on_success=True)
    env = VecNormalize(VecMonitor(Sb3VecEnv(ProgressReward(envs))), norm_reward=False)
    model = PPO(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        n_steps=64,
        batch_size=512,
        gamma=0.98,
        gae_lambda=0.9,
        target_kl=0.02,
        policy_kwargs={"log_std_init": -0.5},
        seed=seed,
        device="cpu",
    )
    return model.learn(num_steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="embodied_rm/LiftCube-v0", help="Gymnasium id of the task")
    parser.add_argument("--num-envs", type=int, default=64, help="number of environments")
    parser.add_argument("--steps", type=int, default=250_000, help="environment steps")
    args = parser.parse_args()
    model = train(args.env, args.num_envs, args.steps)
    successes = list(model.ep_success_buffer or [])
    print(f"success of the last {len(successes)} episodes: {np.mean(successes):.2f}")


if __name__ == "__main__":
    main()

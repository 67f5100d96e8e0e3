"""Train rsl-rl's PPO on a task: python docs/examples/rsl_rl_ppo.py

Needs `pip install '.[rsl-rl]'`. Writes TensorBoard logs and checkpoints to runs/rsl_rl.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
from progress_reward import ProgressReward
from rsl_rl.runners import OnPolicyRunner

import embodied_sim
from embodied_sim.adapters.rsl_rl import RslRlVecEnv

gym.register_envs(embodied_sim)


def make_config() -> dict[str, Any]:
    """Return a new config; the runner modifies its config."""
    network = {"class_name": "MLPModel", "hidden_dims": [64, 64], "activation": "tanh", "obs_normalization": True}
    return {
        "num_steps_per_env": 64,
        "save_interval": 100,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": {**network, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 0.6}},
        "critic": network,
        "algorithm": {"class_name": "PPO", "gamma": 0.98, "lam": 0.9, "entropy_coef": 0.001, "desired_kl": 0.01},
    }


def train(env_id: str, num_envs: int, iterations: int, log_dir: str | None, seed: int = 0) -> OnPolicyRunner:
    """Train for `iterations` rollouts of 64 steps per environment and return the runner."""
    envs = gym.make_vec(env_id, num_envs=num_envs, ends_on_success=True)
    runner = OnPolicyRunner(RslRlVecEnv(ProgressReward(envs), seed=seed), make_config(), log_dir=log_dir)
    runner.learn(iterations)
    return runner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="embodied_rm/LiftCube-v0", help="Gymnasium id of the task")
    parser.add_argument("--num-envs", type=int, default=64, help="number of environments")
    parser.add_argument("--iterations", type=int, default=60, help="rollouts of 64 steps per environment")
    args = parser.parse_args()
    train(args.env, args.num_envs, args.iterations, "runs/rsl_rl")


if __name__ == "__main__":
    main()

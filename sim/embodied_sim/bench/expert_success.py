"""How often a task's scripted expert succeeds, by arm and physics engine."""

from __future__ import annotations

import numpy as np
from gymnasium.vector import AutoresetMode

from embodied_sim.scripted_policy import ScriptedPolicy
from embodied_sim.vec_env import TabletopVecEnv


def expert_success_rate(task: str, robot: str, backend: str, episodes: int, seed: int = 7) -> float:
    """Share of `episodes` seeded episodes, all side by side, whose last state is a success; no noise, full pace."""
    env = TabletopVecEnv(task, episodes, robot=robot, backend=backend, autoreset_mode=AutoresetMode.DISABLED)
    try:
        env.reset(seed=seed)
        policy = ScriptedPolicy(env, seed=seed)
        policy.reset(np.arange(episodes))
        for _ in range(env.max_episode_steps):
            *_, info = env.step(policy.act())
        return float(info["success"].mean())
    finally:
        env.close()

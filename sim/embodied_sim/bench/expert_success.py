"""Success rate of the scripted experts by arm and physics engine."""

from __future__ import annotations

import numpy as np
from gymnasium.vector import AutoresetMode

from embodied_sim.scripted_policy import ScriptedPolicy
from embodied_sim.vec_env import TabletopVecEnv


def expert_success_rate(task: str, robot: str, backend: str, episodes: int, seed: int = 7) -> float:
    """Return the fraction of seeded episodes that end in success, without noise, at full speed."""
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

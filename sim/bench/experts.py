"""How often a task's scripted expert succeeds, by arm and physics engine."""

from __future__ import annotations

import numpy as np
from gymnasium.vector import AutoresetMode

from sim.actors import ScriptedActor
from sim.vec_env import TabletopVecEnv


def expert_rate(task: str, robot: str, backend: str, episodes: int, seed: int = 7) -> float:
    """Share of `episodes` seeded episodes, all side by side, whose last state is a success; no noise, full pace."""
    env = TabletopVecEnv(task, episodes, robot=robot, backend=backend, autoreset_mode=AutoresetMode.DISABLED)
    try:
        env.reset(seed=seed)
        actor = ScriptedActor(env, seed=seed)
        actor.begin(np.arange(episodes))
        for _ in range(env.max_episode_steps):
            *_, info = env.step(actor.act())
        return float(info["success"].mean())
    finally:
        env.close()

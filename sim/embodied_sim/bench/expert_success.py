"""Success rate of the scripted experts, and the grid of tasks and arms that benchmarks cover."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from gymnasium.vector import AutoresetMode

from embodied_sim.registry import task_names
from embodied_sim.robots import ROBOTS
from embodied_sim.scripted_policy import ScriptedPolicy
from embodied_sim.sim_errors import lookup
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


def task_robot_pairs(tasks: Sequence[str]) -> list[tuple[str, str]]:
    """Return (task, robot) pairs for these tasks, or for all if empty. Raises `SimError` for an unknown task."""
    task_by_name = {name: name for name in task_names()}
    return list(product([lookup(task_by_name, task, "task") for task in tasks] or task_by_name, ROBOTS))

"""Every task under a Gymnasium id: `lift_cube` is `embodied_rm/LiftCube-v0`.

`gymnasium.make` gives a `TabletopEnv`, `gymnasium.make_vec` a `TabletopVecEnv`; both take the keyword arguments of
what they make. Gymnasium 1.0 and later load no plugins by themselves: `import sim` first, or ask for
`embodied_sim:embodied_rm/LiftCube-v0`.
"""

from __future__ import annotations

import gymnasium as gym

from embodied_sim.registry import task_names

ENV_NAMESPACE, ENV_VERSION = "embodied_rm", 0


def gym_id(task: str) -> str:
    """The Gymnasium id of a task: its name in camel case, with namespace and version."""
    name = "".join(part.capitalize() for part in task.split("_"))
    return f"{ENV_NAMESPACE}/{name}-v{ENV_VERSION}"


def register_envs() -> None:
    """Register every task. The environments keep the time limit themselves, so Gymnasium is given none."""
    for task in task_names():
        gym.register(
            id=gym_id(task),
            entry_point="embodied_sim.single_env:TabletopEnv",
            vector_entry_point="embodied_sim.vec_env:TabletopVecEnv",
            kwargs={"task": task},
        )

"""Gymnasium registration of all tasks: `lift_cube` is `embodied_rm/LiftCube-v0`.

`gymnasium.make` returns a `TabletopEnv`, `gymnasium.make_vec` a `TabletopVecEnv`; both forward keyword arguments.
Gymnasium 1.0 and later do not load plugins: `import embodied_sim` first, or use the id
`embodied_sim:embodied_rm/LiftCube-v0`.
"""

import gymnasium as gym

from embodied_sim.registry import task_names

ENV_NAMESPACE, ENV_VERSION = "embodied_rm", 0


def gym_id(task: str) -> str:
    """Return the Gymnasium id of a task: its name in camel case, with namespace and version."""
    name = "".join(part.capitalize() for part in task.split("_"))
    return f"{ENV_NAMESPACE}/{name}-v{ENV_VERSION}"


def register_envs() -> None:
    """Register every task. The environments apply their time limit themselves, so none is registered."""
    for task in task_names():
        gym.register(
            id=gym_id(task),
            entry_point="embodied_sim.single_env:TabletopEnv",
            vector_entry_point="embodied_sim.vec_env:TabletopVecEnv",
            kwargs={"task": task},
        )

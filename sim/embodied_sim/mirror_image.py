"""Mirror images of a scene, left for right: which columns of an observation change their sign."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.observation import build_observation
from embodied_sim.registry import make_task
from embodied_sim.sim_errors import SimError
from embodied_sim.state import SceneState
from embodied_sim.task import Task
from embodied_sim.vec_env import TabletopVecEnv

MIRRORED_ACTIONS = (1,)  # displacement of the tool along y
NUM_ROWS = 8  # of random states, in which no column is 0 by chance
LEFT_FOR_RIGHT = np.array([1.0, -1.0, 1.0])


def mirrored_columns(name: str) -> tuple[int, ...]:
    """Return the columns of a task's observation whose sign the mirror image changes; the others keep their values.

    Args:
        name: Name of a registered task, or path of a file that defines one.

    Raises:
        SimError: Another column changes too, such as the place of a point that is called left.
    """
    task = make_task(name)
    with closing(TabletopVecEnv(name, NUM_ROWS)) as env:
        env.reset(seed=0)
        state = randomize_state(env.state, np.random.default_rng(0))
    seen, mirrored = (observe(task, s) for s in (state, mirror_state(task, state)))
    flips = np.isclose(mirrored, -seen, atol=1e-6).all(axis=0) & (seen != 0).any(axis=0)
    keeps = np.isclose(mirrored, seen, atol=1e-6).all(axis=0)
    if not (flips | keeps).all():
        raise SimError(f"{name} has no mirror image: column {np.flatnonzero(~(flips | keeps))[0]} of it is another one")
    return tuple(np.flatnonzero(flips & ~keeps).tolist())


def mirror_state(task: Task, state: SceneState) -> SceneState:
    """Return the mirror image of a state, left for right, with the other side as the target."""
    flipped = {name for prop in task.props for name in prop.mirrored_joint_names}
    mirrored = replace(
        state,
        tool_pos=state.tool_pos * LEFT_FOR_RIGHT,
        target_pos=state.target_pos * LEFT_FOR_RIGHT,
        object_positions=state.object_positions * LEFT_FOR_RIGHT,
        points={name: point * LEFT_FOR_RIGHT for name, point in state.points.items()},
        joints={name: -joint if name in flipped else joint for name, joint in state.joints.items()},
    )
    return mirrored.with_other_side() if task.sides else mirrored


def randomize_state(state: SceneState, rng: np.random.Generator) -> SceneState:
    """Return the state with noise on everything that is measured, so that no two columns agree by chance."""

    def shift(array: FloatArray) -> FloatArray:
        return array + rng.normal(0.0, 0.05, array.shape)

    def shift_all(arrays: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
        return {name: shift(array) for name, array in arrays.items()}

    return replace(
        state,
        tool_pos=shift(state.tool_pos),
        target_pos=shift(state.target_pos),
        gripper_opening=shift(state.gripper_opening),
        object_positions=shift(state.object_positions),
        points=shift_all(state.points),
        joints=shift_all(state.joints),
    )


def observe(task: Task, state: SceneState) -> np.ndarray:
    """Return the observation of a state, float32 [N, D]."""
    return build_observation(state, task.observed_points, task.extra_observation(state))

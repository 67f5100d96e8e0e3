"""State observation: positions in the robot frame and relative to the tool."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from embodied_sim.control import FloatArray
from embodied_sim.state import SceneState
from embodied_sim.task import Task

PROPRIO_DIM = 7  # number of leading proprioceptive columns: tool, commanded - tool, gripper opening


def build_observation(
    state: SceneState, point_names: Sequence[str], extra_columns: Sequence[FloatArray]
) -> npt.NDArray[np.float32]:
    """Return the observation, float32 [N, D], m or rad.

    Columns: tool 3, commanded - tool 3, gripper opening 1, objects by role 3 each, joints 1 each, observed points 3
    each, objects and observed points relative to the tool 3 each, and the extra columns of the task.
    """
    objects = [state.object_position(role) for role in range(state.object_positions.shape[1])]
    points = [state.points[name] for name in point_names]
    columns = (
        state.tool_pos,
        state.target_pos - state.tool_pos,
        state.gripper_opening[:, None],
        *objects,
        *(joint[:, None] for joint in state.joints.values()),
        *points,
        *(position - state.tool_pos for position in (*objects, *points)),
        *extra_columns,
    )
    return np.concatenate(columns, axis=1).astype(np.float32)


def horizontal_position_columns(task: Task) -> tuple[int, ...]:
    """Return the columns of a task's observation that are horizontal positions in the robot frame.

    Where on the table a scene is changes these columns, and no others.
    """
    joints = PROPRIO_DIM + 3 * len(task.objects)
    points = joints + sum(len(prop.joint_names) for prop in task.props)
    end = points + 3 * len(task.observed_points)
    positions = (0, *range(PROPRIO_DIM, joints, 3), *range(points, end, 3))
    return tuple(column + axis for column in positions for axis in (0, 1))

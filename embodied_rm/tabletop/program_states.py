"""The states of a simulated scene as variables of a reward program, and recorded experts and failures of a task."""

from __future__ import annotations

import mujoco
import numpy as np

from embodied_rm.programs.critic import RecordedStates
from embodied_rm.programs.variables import NUMBER, POINT, START_PREFIX, Variable, with_start_values
from embodied_rm.rewards.transitions import FloatArray
from embodied_sim.episode_init import NUM_START_POSES
from embodied_sim.robots import ROBOTS
from embodied_sim.scene import build_scene
from embodied_sim.state import SceneState
from embodied_sim.task import SUCCESS_OUTCOME, Task
from embodied_sim.task_sandbox import TaskSandbox
from embodied_sim.waypoints import Plan


def role_name(role: int) -> str:
    """Return the variable of the object in a role: the one that the instruction names, the next one, ..."""
    return ("object_pos", "other_pos")[role] if role < 2 else f"other_{role}_pos"


def task_variables(task: Task) -> dict[str, Variable]:
    """Return what a program of the task may read, with shapes, units and meanings."""
    model = build_scene(task.props, ROBOTS["panda"])
    nouns = sorted({prop.noun for prop in task.object_props})
    described = {
        "tool_pos": Variable(size=POINT, unit="m", meaning="point between the finger pads"),
        "gripper_opening": Variable(
            size=NUMBER,
            unit="m",
            meaning="distance of the finger pads; 0.08 is open, and a gripped object's width stays",
        ),
    }
    for role in range(len(task.objects)):
        which = "that the instruction names" if role == 0 else "that it does not name, or names second"
        described[role_name(role)] = Variable(
            size=POINT, unit="m", meaning=f"center of the object ({' or '.join(nouns)}) {which}"
        )
    for prop in task.props:
        for name in prop.point_names:
            described[f"point_{name}"] = Variable(size=POINT, unit="m", meaning=f"point {name!r} of the {prop.name}")
        for name in prop.joint_names:
            hinge = model.joint(name).type[0] == mujoco.mjtJoint.mjJNT_HINGE
            described[f"joint_{name}"] = Variable(
                size=NUMBER, unit="rad" if hinge else "m", meaning=f"position of the joint {name!r} of the {prop.name}"
            )
    if task.sides:
        sides = ", ".join(f"{index}: {side}" for index, side in enumerate(task.sides))
        described["side_index"] = Variable(size=NUMBER, unit="", meaning=f"side that the instruction names ({sides})")
    return with_start_values(described)


def state_values(now: SceneState, start: SceneState) -> dict[str, FloatArray]:
    """Return the values of `task_variables` in N environments."""
    values: dict[str, FloatArray] = {}
    for prefix, state in (("", now), (START_PREFIX, start)):
        values[f"{prefix}tool_pos"] = state.tool_pos
        values[f"{prefix}gripper_opening"] = state.gripper_opening
        for role in range(state.object_positions.shape[1]):
            values[prefix + role_name(role)] = state.object_position(role)
        values |= {f"{prefix}point_{name}": points for name, points in state.points.items()}
        values |= {f"{prefix}joint_{name}": joints for name, joints in state.joints.items()}
        values[f"{prefix}side_index"] = state.side_index.astype(np.float64)
    return values


def record_states(task: Task, num_layouts: int = 8, seed: int = 0) -> list[RecordedStates]:
    """Play the expert and each failure plan of a task, each in `num_layouts` layouts, up to the time limit.

    An expert's episode ends at success; an expert that fails and a failure that succeeds are left out.
    """
    rng = np.random.default_rng(seed)
    plans: list[tuple[str, Plan]] = [(SUCCESS_OUTCOME, task.expert_plan())]
    plans += [(outcome, plan) for outcome, variants in task.failure_plans().items() for plan in variants]
    layouts = [task.draw_layout(rng, NUM_START_POSES) for _ in range(num_layouts)]
    sandbox = TaskSandbox(task, [layout for _ in plans for layout in layouts])
    try:
        start = sandbox.read()
        row_plans = [plan for _, plan in plans for _ in layouts]
        states = [start, *(state for state, _, _ in sandbox.play(row_plans, task.max_episode_steps))]
    finally:
        sandbox.close()
    values = [state_values(state, start) for state in states]
    done = np.array([task.success(state) for state in states])  # [T, N]
    outcomes = [outcome for outcome, _ in plans for _ in layouts]
    return [
        episode
        for row, outcome in enumerate(outcomes)
        if (episode := _episode(outcome, row, values, done[:, row])) is not None
    ]


def _episode(outcome: str, row: int, values: list[dict[str, FloatArray]], done: np.ndarray) -> RecordedStates | None:
    """Return the states of one row up to success, or to the time limit; None if its outcome is another."""
    is_success = outcome == SUCCESS_OUTCOME
    if is_success != bool(done[-1]):
        return None
    length = int(done.argmax()) + 1 if is_success else len(done)
    return RecordedStates(
        outcome=outcome,
        is_success=is_success,
        values={name: np.stack([step[name][row] for step in values[:length]]) for name in values[0]},
    )

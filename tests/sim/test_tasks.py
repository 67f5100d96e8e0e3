"""Requirements on every registered task; `embodied-rm bench experts` plays more episodes."""

from dataclasses import replace
from functools import cache
from string import Formatter

import mujoco
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from embodied_sim.bench.expert_success import expert_success_rate
from embodied_sim.observation import build_observation, horizontal_position_columns
from embodied_sim.registry import make_task, task_names
from embodied_sim.robots import ROBOTS
from embodied_sim.scripted_policy import POST_SUCCESS_OUTCOME, ScriptedPolicy, available_outcomes
from embodied_sim.sim_errors import SimError
from embodied_sim.task import ITEM_WIDTH_M, is_grasped
from embodied_sim.vec_env import TabletopVecEnv

NUM_EPISODES = 24
OUTCOMES = [(name, outcome) for name in task_names() for outcome in ("success", *make_task(name).failure_plans())]


@cache
def play(task: str, outcome: str, episodes: int):
    """Play episodes to the time limit; return progress [T, N], subtasks [T, N] and the last infos."""
    env = TabletopVecEnv(task, episodes, autoreset_mode=AutoresetMode.DISABLED)
    policy = ScriptedPolicy(env, (outcome,), seed=1, noise=0.0)
    _, info = env.reset(seed=7)
    policy.reset(np.arange(episodes))
    progress, subtasks = [info["progress"]], [info["subtask"]]
    for _ in range(env.max_episode_steps):
        _, _, _, _, info = env.step(policy.act())
        progress.append(info["progress"])
        subtasks.append(info["subtask"])
    env.close()
    return np.array(progress), np.array(subtasks), info


@pytest.mark.parametrize("task", task_names())
def test_the_place_on_the_table_changes_the_horizontal_positions_of_the_observation_and_nothing_else(task):
    env = TabletopVecEnv(task, 4)
    env.reset(seed=3)
    shift, state = np.array([0.07, -0.04, 0.0]), env.state
    moved = replace(
        state,
        tool_pos=state.tool_pos + shift,
        target_pos=state.target_pos + shift,
        object_positions=state.object_positions + shift,
        points={name: point + shift for name, point in state.points.items()},
    )
    here, there = (
        build_observation(s, env.task.observed_points, env.task.extra_observation(s)) for s in (state, moved)
    )
    env.close()
    columns = horizontal_position_columns(env.task)
    expected = np.zeros(here.shape[1])
    expected[list(columns)] = np.tile(shift[:2], len(columns) // 2)
    assert there - here == pytest.approx(np.tile(expected, (4, 1)), abs=1e-6)


@pytest.mark.parametrize("robot", set(ROBOTS) - {"panda"})
@pytest.mark.parametrize("task", task_names())
def test_expert_succeeds_with_every_other_arm(task, robot):
    assert expert_success_rate(task, robot, "batch", NUM_EPISODES) >= 0.95


@pytest.mark.parametrize(("task", "outcome"), OUTCOMES)
def test_experts_succeed_and_failures_fail(task, outcome):
    progress, subtasks, info = play(task, outcome, NUM_EPISODES if outcome == "success" else 8)
    assert not info["diverged"].any()
    assert (progress >= 0).all()
    assert (progress <= 1).all()
    assert progress[0].max() < 0.2
    if outcome == "success":
        assert info["success"].mean() >= 0.95
        done = info["success"]
        assert (progress[-1, done] == 1).all()
        assert (np.diff(subtasks[:, done], axis=0) >= -1).all()
        for subtask in range(len(make_task(task).subtasks)):
            assert (subtasks[:, done] == subtask).any(axis=0).all(), f"subtask {subtask} never occurs"
    else:
        assert info["success"].mean() <= 0.02


@pytest.mark.parametrize("task", task_names())
def test_progress_rises_during_expert_episodes(task):
    progress, _, info = play(task, "success", NUM_EPISODES)
    progress = progress[:, info["success"]]
    best = np.maximum.accumulate(progress, axis=0)
    assert (best - progress).max(axis=0).mean() < 0.15, "the expert's progress decreases"
    time = np.arange(len(progress))[: int(0.8 * len(progress))]
    assert np.corrcoef(time, progress[: len(time)].mean(axis=1))[0, 1] > 0.85


def visible_bodies(model: mujoco.MjModel, data: mujoco.MjData, camera: str, size: int) -> np.ndarray:
    """Return the body id at every pixel of a camera, -1 for none, by one ray per pixel."""
    camera_pose = data.camera(camera)
    height = np.tan(np.deg2rad(model.camera(camera).fovy[0]) / 2)
    grid = height * (2 * (np.arange(size) + 0.5) / size - 1)
    right, down = np.meshgrid(grid, grid)
    rays = np.stack([right, -down, -np.ones_like(right)], axis=-1).reshape(-1, 3) @ camera_pose.xmat.reshape(3, 3).T
    geom, dist = np.full(len(rays), -1, np.int32), np.zeros(len(rays))
    groups = np.array([1, 1, 1, 0, 0, 0], np.uint8)
    mujoco.mj_multiRay(model, data, camera_pose.xpos, rays.ravel(), groups, 1, -1, geom, dist, None, len(rays), 1e6)
    return np.where(geom >= 0, model.geom_bodyid[np.maximum(geom, 0)], -1)


@pytest.mark.parametrize("task", task_names())
def test_named_objects_are_visible_at_the_start(task):
    env = TabletopVecEnv(task, 8, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=3)
    model, data = env.model, mujoco.MjData(env.model)
    for row in range(8):
        data.qpos[:] = env._backend.qpos[row]
        data.mocap_pos[:] = env._backend.mocap_pos[row]
        mujoco.mj_forward(model, data)
        bodies_by_view = {view: visible_bodies(model, data, view, env.image_size) for view in env.view_names}
        for name in env.task.named_bodies(env._layouts[row]):
            pixels = {view: int((bodies == model.body(name).id).sum()) for view, bodies in bodies_by_view.items()}
            assert max(pixels.values()) >= 12, (name, row, pixels)
    env.close()


@pytest.mark.parametrize("task", task_names())
def test_instructions_name_the_target(task):
    """Instructions differ exactly when a placeholder of the template differs."""
    task_ = make_task(task)
    layouts = [task_.draw_layout(np.random.default_rng(seed), 1) for seed in range(60)]
    for phrasing, template in enumerate(task_.templates):
        placeholders = {field for _, field, _, _ in Formatter().parse(template) if field}
        fields = {tuple(task_.template_fields(layout)[name] for name in sorted(placeholders)) for layout in layouts}
        assert len({task_.instruction(layout, phrasing) for layout in layouts}) == len(fields)
        assert len(fields) > 1 or not placeholders


@pytest.mark.parametrize("task", task_names())
def test_phrasings_are_unique(task):
    task_ = make_task(task)
    phrasings = (*task_.templates, *task_.paraphrases, *task_.reversed_instructions)
    sentences = task_.format_instructions(phrasings, task_.draw_layout(np.random.default_rng(0), 1))
    assert len(set(sentences)) == len(phrasings) and not any("{" in sentence for sentence in sentences)


@pytest.mark.parametrize("task", [name for name in task_names() if make_task(name).post_success_plans()])
def test_success_lasts_through_post_success_plans(task):
    """The hand moves away and rests at the end."""
    env = TabletopVecEnv(task, 16, autoreset_mode=AutoresetMode.DISABLED)
    policy = ScriptedPolicy(env, (POST_SUCCESS_OUTCOME,), seed=1)
    env.reset(seed=5)
    policy.reset(np.arange(16))
    success_step, tool_positions = np.full(16, -1), []
    for step in range(env.max_episode_steps):
        *_, info = env.step(policy.act())
        success_step = np.where((success_step < 0) & info["success"], step, success_step)
        tool_positions.append(env.state.tool_pos.copy())
    env.close()
    assert (success_step >= 0).mean() >= 0.9 and info["success"].mean() >= 0.9
    end = tool_positions[-1]
    distance = np.linalg.norm(end - np.array(tool_positions)[success_step, np.arange(16)], axis=1)
    assert distance[success_step >= 0].min() > 0.04 and np.abs(end - tool_positions[-3]).max() < 0.02


def test_unknown_names_are_errors_with_the_nearest_name():
    with pytest.raises(SimError, match=r"unknown task 'lift_cub'\. Did you mean 'lift_cube'\?"):
        TabletopVecEnv("lift_cub")
    with pytest.raises(SimError, match=r"unknown view 'wrst'\. Did you mean 'wrist'\?"):
        TabletopVecEnv("lift_cube", 1, views=("wrst",))
    env = TabletopVecEnv("lift_cube", 1)
    assert "drop" in available_outcomes(env)
    with pytest.raises(SimError, match=r"unknown outcome 'dropp'\. Did you mean 'drop'\?"):
        ScriptedPolicy(env, ("dropp",))
    env.close()


@pytest.mark.parametrize(
    ("offset", "opening", "held"),
    [
        ([0.0, 0.0, 0.0], 0.05, True),
        ([0.03, 0.0, 0.0], 0.05, True),  # off center, but pads and cube overlap
        ([0.0, 0.0, 0.0], 0.08, False),  # still open
        ([0.0, 0.0, 0.033], 0.0, False),  # closed fingers on top of it
        ([0.06, 0.0, 0.0], 0.05, False),  # next to it
    ],
)
def test_is_grasped(offset, opening, held):
    env = TabletopVecEnv("lift_cube", 1, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=0)
    state = replace(
        env.state, tool_pos=env.state.object_position() + np.array(offset), gripper_opening=np.array([opening])
    )
    env.close()
    assert is_grasped(state, state.object_position(), ITEM_WIDTH_M).tolist() == [held]

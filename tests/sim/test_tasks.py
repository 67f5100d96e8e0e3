"""The registry sweep: what every task must be able to do, by itself, for any seed."""

from dataclasses import replace
from string import Formatter

import mujoco
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from embodied_sim.bench.expert_success import expert_success_rate
from embodied_sim.registry import make_task, task_names
from embodied_sim.robots import ROBOTS
from embodied_sim.scripted_policy import POST_SUCCESS_OUTCOME, ScriptedPolicy, available_outcomes
from embodied_sim.sim_errors import SimError
from embodied_sim.task import ITEM_WIDTH_M, is_grasped
from embodied_sim.vec_env import TabletopVecEnv

OUTCOMES = [(name, kind) for name in task_names() for kind in ("success", *make_task(name).failure_plans())]


def play(task: str, kind: str, episodes: int, robot: str = "panda"):
    """All progress [T, N], stages [T, N] and the last infos of `episodes` played to the time limit."""
    env = TabletopVecEnv(task, episodes, robot=robot, autoreset_mode=AutoresetMode.DISABLED)
    actor = ScriptedPolicy(env, (kind,), seed=1, noise=0.0)
    _, info = env.reset(seed=7)
    actor.reset(np.arange(episodes))
    progress, stages = [info["progress"]], [info["stage"]]
    for _ in range(env.max_episode_steps):
        _, _, _, _, info = env.step(actor.act())
        progress.append(info["progress"])
        stages.append(info["stage"])
    env.close()
    return np.array(progress), np.array(stages), info


@pytest.mark.parametrize("robot", set(ROBOTS) - {"panda"})
@pytest.mark.parametrize("task", task_names())
def test_the_expert_succeeds_with_every_other_arm(task, robot):
    assert expert_success_rate(task, robot, "batch", 100) >= 0.95


@pytest.mark.parametrize(("task", "kind"), OUTCOMES)
def test_experts_succeed_and_failures_fail(task, kind):
    progress, stages, info = play(task, kind, 100 if kind == "success" else 32)
    assert not info["diverged"].any()
    assert (progress >= 0).all()
    assert (progress <= 1).all()
    assert progress[0].max() < 0.2
    if kind == "success":
        assert info["success"].mean() >= 0.95
        done = info["success"]
        assert (progress[-1, done] == 1).all()
        assert (np.diff(stages[:, done], axis=0) >= -1).all()
        for step in range(len(make_task(task).subtasks)):
            assert (stages[:, done] == step).any(axis=0).all(), f"step {step} is never under way"
    else:
        assert info["success"].mean() <= 0.02


@pytest.mark.parametrize("task", task_names())
def test_progress_rises_along_the_experts_way(task):
    progress, _, info = play(task, "success", 32)
    rising = progress[:, info["success"]]
    best = np.maximum.accumulate(rising, axis=0)
    assert (best - rising).max(axis=0).mean() < 0.15, "the expert's progress falls back"
    time = np.arange(len(rising))[: int(0.8 * len(rising))]
    assert np.corrcoef(time, rising[: len(time)].mean(axis=1))[0, 1] > 0.85


def bodies_seen(model: mujoco.MjModel, data: mujoco.MjData, camera: str, size: int) -> np.ndarray:
    """Body id under every pixel of a camera, -1 for none: one ray a pixel, nothing of the renderer."""
    eye = data.camera(camera)
    height = np.tan(np.deg2rad(model.camera(camera).fovy[0]) / 2)
    grid = height * (2 * (np.arange(size) + 0.5) / size - 1)
    right, down = np.meshgrid(grid, grid)
    rays = np.stack([right, -down, -np.ones_like(right)], axis=-1).reshape(-1, 3) @ eye.xmat.reshape(3, 3).T
    geom, dist = np.full(len(rays), -1, np.int32), np.zeros(len(rays))
    groups = np.array([1, 1, 1, 0, 0, 0], np.uint8)
    mujoco.mj_multiRay(model, data, eye.xpos, rays.ravel(), groups, 1, -1, geom, dist, None, len(rays), 1e6)
    return np.where(geom >= 0, model.geom_bodyid[np.maximum(geom, 0)], -1)


@pytest.mark.parametrize("task", task_names())
def test_every_object_the_instruction_names_is_seen_at_the_start(task):
    env = TabletopVecEnv(task, 8, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=3)
    model, data = env.model, mujoco.MjData(env.model)
    for row in range(8):
        data.qpos[:] = env._backend.qpos[row]
        data.mocap_pos[:] = env._backend.mocap_pos[row]
        mujoco.mj_forward(model, data)
        seen = {view: bodies_seen(model, data, view, env.image_size) for view in env.view_names}
        for name in env.task.named_bodies(env._layouts[row]):
            pixels = {view: int((bodies == model.body(name).id).sum()) for view, bodies in seen.items()}
            assert max(pixels.values()) >= 12, (name, row, pixels)
    env.close()


@pytest.mark.parametrize("task", task_names())
def test_instructions_name_the_target(task):
    """Every word that a template leaves open makes a difference, and nothing else does."""
    task_ = make_task(task)
    layouts = [task_.draw_layout(np.random.default_rng(seed), 1) for seed in range(60)]
    for phrasing, template in enumerate(task_.templates):
        placeholders = {field for _, field, _, _ in Formatter().parse(template) if field}
        wanted = {tuple(task_.template_fields(layout)[name] for name in sorted(placeholders)) for layout in layouts}
        assert len({task_.instruction(layout, phrasing) for layout in layouts}) == len(wanted)
        assert len(wanted) > 1 or not placeholders


@pytest.mark.parametrize("task", task_names())
def test_every_phrasing_is_another_sentence(task):
    task_ = make_task(task)
    phrasings = (*task_.templates, *task_.paraphrases, *task_.reversed_instructions)
    told = task_.format_instructions(phrasings, task_.draw_layout(np.random.default_rng(0), 1))
    assert len(set(told)) == len(phrasings) and not any("{" in sentence for sentence in told)


@pytest.mark.parametrize("task", [name for name in task_names() if make_task(name).post_success_plans()])
def test_what_is_done_stays_done_afterwards(task):
    """The hand has withdrawn, and the last thing seen of it is that it rests."""
    env = TabletopVecEnv(task, 16, autoreset_mode=AutoresetMode.DISABLED)
    actor = ScriptedPolicy(env, (POST_SUCCESS_OUTCOME,), seed=1)
    env.reset(seed=5)
    actor.reset(np.arange(16))
    first, tools = np.full(16, -1), []
    for step in range(env.max_episode_steps):
        *_, info = env.step(actor.act())
        first = np.where((first < 0) & info["success"], step, first)
        tools.append(env.state.tool_pos.copy())
    env.close()
    assert (first >= 0).mean() >= 0.9 and info["success"].mean() >= 0.9
    gone = np.linalg.norm(tools[-1] - np.array(tools)[first, np.arange(16)], axis=1)
    assert gone[first >= 0].min() > 0.04 and np.abs(tools[-1] - tools[-3]).max() < 0.02


def test_unknown_names_are_answered_with_the_nearest():
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
        ([0.03, 0.0, 0.0], 0.05, True),  # off the middle, but pads and cube overlap
        ([0.0, 0.0, 0.0], 0.08, False),  # still open
        ([0.0, 0.0, 0.033], 0.0, False),  # a fist on top of it
        ([0.06, 0.0, 0.0], 0.05, False),  # beside it
    ],
)
def test_a_cube_is_held_by_fingers_that_it_keeps_apart(offset, opening, held):
    env = TabletopVecEnv("lift_cube", 1, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=0)
    state = replace(
        env.state, tool_pos=env.state.object_position() + np.array(offset), gripper_opening=np.array([opening])
    )
    env.close()
    assert is_grasped(state, state.object_position(), ITEM_WIDTH_M).tolist() == [held]

"""Plans between knots, and a planner that acts by a reward program without training."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from planted_programs import GOOD_PROGRAMS

from embodied_rm.cli.main import main
from embodied_rm.errors import UserError
from embodied_rm.programs.predictive_sampling import PlannerConfig, interpolate_knots, sample_knots, shift_knots
from embodied_rm.programs.program import parse_program
from embodied_rm.tabletop.envs import EnvConfig, make_envs
from embodied_rm.tabletop.program_planner import ProgramPlanner
from embodied_rm.tabletop.program_states import task_variables

TASK = "turn_lever"


def test_actions_lie_on_the_lines_between_knots() -> None:
    knots = np.array([[[0.0], [1.0], [-1.0]]])  # at the steps 0, 2 and 4
    actions = interpolate_knots(knots, 5, np.arange(7.0))
    assert actions[0, :, 0].tolist() == [0, 0.5, 1, 0, -1, -1, -1]
    assert shift_knots(knots, 5, 1)[0, :, 0].tolist() == [0.5, 0, -1]
    assert np.array_equal(shift_knots(knots, 5, 0), knots)


def test_the_first_plan_is_the_given_one_and_the_last_differ_most() -> None:
    knots = np.zeros((40, 4, 3))
    plans = sample_knots(knots, 50, 0.3, np.random.default_rng(0))
    assert plans.shape == (40, 50, 4, 3) and np.abs(plans).max() <= 1
    assert np.array_equal(plans[:, 0], knots)
    std = plans.std(axis=(0, 2, 3))
    assert std[40:].mean() == pytest.approx(0.3 * 44.5 / 49, rel=0.1) and std[1:10].mean() < 0.05


def play(source: str, num_steps: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the tool [T, N, 3], and the lever's angle [T, N], of two environments with a planner."""
    config = EnvConfig(num_envs=2, views=())
    with closing(make_envs(TASK, config, ends_on_success=True)) as envs:
        program = parse_program(source, task_variables(envs.task))
        planner = ProgramPlanner(envs, TASK, config, program, PlannerConfig(num_samples=16), seed)
        observation, _ = envs.reset(seed=3)
        new_episodes, tool, angle = np.arange(2), [], []
        for _ in range(num_steps):
            observation = envs.step(planner.act(observation, new_episodes))[0]
            new_episodes = np.arange(0)
            tool.append(envs.state.tool_pos)
            angle.append(envs.state.joints["lever"])
        planner.close()
    return np.array(tool), np.array(angle)


def test_a_corrected_program_acts_at_once() -> None:
    left, _ = play("progress = clip(0.5 - tool_pos[1], 0, 1)", 12)
    right, _ = play("progress = clip(0.5 + tool_pos[1], 0, 1)", 12)
    assert (left[-1, :, 1] < left[0, :, 1] - 0.1).all() and (right[-1, :, 1] > right[0, :, 1] + 0.1).all()


def test_plans_are_repeatable() -> None:
    first, again, other = (play("reward = tool_pos[2]", 5, seed)[0] for seed in (0, 0, 1))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_an_undefined_output_counts_as_zero() -> None:
    tool, _ = play("rise = tool_pos[2] - start_tool_pos[2]\nreward = where(rise > 0.02, 1, log(rise - 1))", 8)
    assert (tool[-1, :, 2] > tool[0, :, 2] + 0.01).all()


def test_play_follows_a_program(tmp_path: Path) -> None:
    (tmp_path / "lever.txt").write_text(GOOD_PROGRAMS[TASK])
    command = ["play", f"task={TASK}", "policy=planner", f"program={tmp_path}/lever.txt", "env.num_envs=2"]
    assert main([*command, "env.image_size=64", "planner.num_samples=32", f"out={tmp_path}/run"]) == 0
    played = json.loads((tmp_path / "run" / "metrics.json").read_text())["play"]
    assert played == {"episodes": 2, "successes": 2, "diverged": 0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["policy=planner"], "policy=planner and program= belong together"),
        (["program=lever.txt"], "policy=planner and program= belong together"),
        (["policy=planner", "program=lever.txt"], "lever.txt: not a program that can be read"),
        (["policy=planner", "program=lever.txt", "planner.horizon=3"], "planner.horizon must be at least"),
    ],
)
def test_mistakes_are_named(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["play", f"task={TASK}", *arguments, f"out={tmp_path}/run"]) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_a_plan_is_at_least_as_long_as_what_is_executed() -> None:
    with pytest.raises(UserError, match=r"planner.replan_steps=20, got 12"):
        PlannerConfig(replan_steps=20)

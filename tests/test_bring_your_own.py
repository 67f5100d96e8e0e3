"""docs/bring_your_own.md: the template is a complete task; site and actuator of an arm may have any name."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from embodied_rm.cli.main import main
from embodied_rm.data.open_dataset import open_dataset
from embodied_sim import registry
from embodied_sim.registry import make_task, register
from embodied_sim.robots import ROBOTS_DIR
from embodied_sim.scripted_policy import SUCCESS_OUTCOME, ScriptedPolicy, available_outcomes
from embodied_sim.sim_errors import SimError
from embodied_sim.vec_env import TabletopVecEnv

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "bring_your_own.md").read_text(encoding="utf-8")
(TEMPLATE,) = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
TINY = ("env.num_envs=2", "env.image_size=32")


pytestmark = pytest.mark.usefixtures("restore_task_registry")


def save_task(folder: Path, text: str = TEMPLATE, name: str = "my_task.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def success_rate(task: str, outcome: str, episodes: int, robot: str) -> float:
    envs = TabletopVecEnv(task, episodes, robot=robot, autoreset_mode=AutoresetMode.DISABLED)
    policy = ScriptedPolicy(envs, (outcome,), seed=1)
    envs.reset(seed=7)
    policy.reset(np.arange(episodes))
    for _ in range(envs.max_episode_steps):
        *_, info = envs.step(policy.act())
    envs.close()
    return info["success"].mean()


def test_template_fits_a_page() -> None:
    assert len(TEMPLATE.splitlines()) <= 60


@pytest.mark.parametrize("robot", ["panda", "six_axis"])
def test_template_expert_succeeds_and_failures_fail(tmp_path: Path, robot: str) -> None:
    task = save_task(tmp_path)
    failures = make_task(task).failure_plans()
    assert len(failures) >= 2
    assert success_rate(task, SUCCESS_OUTCOME, 100, robot) >= 0.95
    assert [success_rate(task, outcome, 16, robot) for outcome in failures] == [0] * len(failures)


def test_template_draws_colors_object_and_side_by_seed(tmp_path: Path) -> None:
    task = make_task(save_task(tmp_path))
    layouts = [task.draw_layout(np.random.default_rng(seed), 1) for seed in range(40)]
    assert len({layout.colors[0] for layout in layouts}) == 6
    assert {(layout.object_order[0], layout.side_index) for layout in layouts} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert len({task.instruction(layouts[0], phrasing) for phrasing in range(5)}) == len(task.templates) >= 2


def test_file_runs_once_and_registers_its_task(tmp_path: Path) -> None:
    path = save_task(tmp_path)
    task = make_task(path)
    assert type(make_task(path)) is type(task) is type(make_task("cube_in_tray"))
    envs = TabletopVecEnv("cube_in_tray", 2)
    assert "wrong_object" in available_outcomes(envs)
    envs.close()


def test_python_snippet_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_task(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    lines, _ = re.findall(r"^```py\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    space: dict[str, Any] = {}
    exec(lines, space)
    assert space["observation"].shape[0] == 64 and space["envs"].task.name == "cube_in_tray"
    space["envs"].close()
    monkeypatch.delitem(sys.modules, "my_task")


def test_redefined_class_replaces_the_old_one() -> None:
    for limit in (90, 80):
        space = {"__name__": "__notebook__"}
        exec(TEMPLATE.replace("steps = 90", f"steps = {limit}"), space)
    assert make_task("cube_in_tray").max_episode_steps == 80
    other = type("Other", (type(make_task("lift_cube")),), {"name": "cube_in_tray"})
    with pytest.raises(SimError, match="two tasks are called 'cube_in_tray': CubeInTray of __notebook__ has that name"):
        register(other)


MISTAKES = {
    "import numpy as np": ("import numpyy", r"ModuleNotFoundError: .*numpyy.* \(line 3 of .*my_task.py\)"),
    "@register\n": ("", "it must register one task, write @register above its class; it registers none"),
    'name = "cube_in_tray"': ('name = "Cube In Tray"', "name must be a lowercase identifier such as 'lift_cube'"),
    '"cube_in_tray"': ('"lift_cube"', "two tasks are called 'lift_cube'"),
    "max_episode_steps = 90": ("", "max_episode_steps must be a whole number .* got None"),
    '"grasp", "place")': ('"grasp")', "returns 2, but subtasks has 0 to 1: reach, grasp"),
    'Item("other"))': ('Item("cube"))', "two props are called 'cube'"),
    'Item("other")': ('Item("other", "rd")', "unknown color of 'other' .* 'rd'. Did you mean 'red'?"),
    "sides = SIDE_NAMES": (
        "sides = SIDE_NAMES; observed_points = ('left_try',)",
        "unknown observed point .* Did you mean 'left_tray'",
    ),
    "{side} tray": ("{sides} tray", "has an unknown placeholder .'sides'.. Available"),
    "templates = (": ("templates = 'lift' or (", "templates must be a tuple of sentences .* got 'lift'"),
    "def expert_plan": ("def exprt_plan", r"it must define expert_plan\(\)"),
    "return FULL_PLAN": ("return ()", "the plans for 'success' must be a tuple of one or more waypoints"),
    '{"wrong_object"': (
        '{"wrong"',
        r"failure_plans\(\) must return plans for at least two kinds of failure, including 'wrong_object'",
    ),
    "(shift_targets(FULL_PLAN, x=0.06),)": (
        "shift_targets(FULL_PLAN, x=0.06)",
        "the plans for 'miss' must be one or more tuples",
    ),
    "relative_to_start(z=0.1), GRIP_CLOSED": (
        "relative_to_start(z=0.5), GRIP_CLOSED",
        r"waypoint 3 of expert_plan\(\) leads to \[.*\] m, outside the workspace",
    ),
    'side_point(state, "tray")': ('side_point(state, "try")', r"ended in KeyError: 'left_try'"),
    "0.0, height])": ("0.0, height])[None, None]", r"waypoint 0 .*\[4, 3\] here.* got float64 \[1, 4, 3\]"),
    "start, CUBE)": ("start, CUBE) + np.nan", r"a fraction of current_subtask\(\) is not finite"),
    "return (CUBE(state) - goal(state),)": ("return ()", "the observation does not depend on the side"),
    "return (distance(now.object_position(), goal(now)) < 0.05) & (": (
        "return (",
        r"success\(\) holds at the start",
    ),
    "return (distance(now": ("return 1 + (distance(now", r"success\(\) must be an array of bools"),
    "    def success": (
        "    def draw_layout(self, rng, poses): return super().draw_layout(np.random.default_rng(), poses)\n"
        "    def success",
        r"draw_layout\(\) returns two layouts for one seed",
    ),
}


@pytest.mark.parametrize("correct", MISTAKES)
def test_mistake_in_the_file_gives_one_sentence(tmp_path: Path, correct: str) -> None:
    wrong, message = MISTAKES[correct]
    assert correct in TEMPLATE
    with pytest.raises(SimError, match=message) as error:
        make_task(save_task(tmp_path, TEMPLATE.replace(correct, wrong, 1)))
    assert "\n" not in str(error.value)


def test_every_bundled_task_is_valid() -> None:
    for name in registry.task_names():
        registry.check_task(type(make_task(name)))


def test_commands_accept_the_path_and_datasets_store_the_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, demos = save_task(tmp_path), tmp_path / "demos"
    assert main(["tasks", f"task={task}"]) == 0
    assert "put the {color} cube into the {side} tray" in capsys.readouterr().out
    assert main(["collect", f"tasks=[{task}]", "num_successes=2", "num_failures=3", f"out={demos}", *TINY]) == 0
    data = open_dataset(demos / "dataset")
    assert {meta.metadata["task"] for meta in data.meta} == {"cube_in_tray"}
    assert [meta.success for meta in data.meta] == [True, True, False, False, False]
    args = ["clone", f"task={task}", f"data={demos}", "num_demonstrations=2", "steps=5", "eval_episodes=2"]
    assert main([*args, f"out={tmp_path / 'cloned'}", *TINY]) == 0
    assert main(["play", f"task={tmp_path / 'gone.py'}", f"out={tmp_path / 'run'}"]) == 2
    error = capsys.readouterr().err
    assert "gone.py: there is no such file" in error and error.count("\n") == 1


def write_renamed_arm(folder: Path) -> Path:
    """Write the six-axis arm with another tool site and gripper actuator; return its path."""
    for file in ("six_axis_primitives.xml", "parallel_hand.xml"):
        text = (ROBOTS_DIR / file).read_text().replace('<site name="tool"', '<site name="tcp"')
        (folder / file).write_text(text.replace('<position name="grip"', '<position name="jaws"'))
    return folder / "six_axis_primitives.xml"


def test_site_and_actuator_of_an_arm_may_have_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arm, out = write_renamed_arm(tmp_path), f"out={tmp_path / 'run'}"
    args = ["play", "task=lift_cube", f"env.robot={arm}", out, *TINY]
    assert main([*args, "env.tool_site=tcp", "env.gripper_actuator=jaws"]) == 0
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["play"]["successes"] == 2
    assert main([*args[:-3], f"out={tmp_path / 'other'}", "env.gripper_actuator=jaws"]) == 2
    assert "unknown tool site of six_axis_primitives.xml 'tool'. Available: tcp" in capsys.readouterr().err
    assert main([*args[:-3], f"out={tmp_path / 'other'}", "env.tool_site=tcp"]) == 2
    error = capsys.readouterr().err
    assert "unknown gripper actuator of six_axis_primitives.xml 'grip'. Available: jaws, joint1" in error
    assert main(["play", "task=lift_cube", "env.tool_site=tcp", f"out={tmp_path / 'other'}"]) == 2
    assert "unknown tool site of panda_primitives.xml 'tcp'. Available: tool" in capsys.readouterr().err

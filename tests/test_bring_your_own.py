"""docs/bring_your_own.md is so: its template is a whole task, and an arm's site and actuator have any name."""

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
from embodied_sim.asset_paths import ROBOTS_DIR
from embodied_sim.registry import make_task, register
from embodied_sim.scripted_policy import SUCCESS_OUTCOME, ScriptedPolicy, available_outcomes
from embodied_sim.sim_errors import SimError
from embodied_sim.vec_env import TabletopVecEnv

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "bring_your_own.md").read_text(encoding="utf-8")
(TEMPLATE,) = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
TINY = ("env.num_envs=2", "env.image_size=32")


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))


def saved(folder: Path, text: str = TEMPLATE, name: str = "my_task.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def successes(task: str, kind: str, episodes: int, robot: str) -> float:
    envs = TabletopVecEnv(task, episodes, robot=robot, autoreset_mode=AutoresetMode.DISABLED)
    actor = ScriptedPolicy(envs, (kind,), seed=1)
    envs.reset(seed=7)
    actor.reset(np.arange(episodes))
    for _ in range(envs.max_episode_steps):
        *_, info = envs.step(actor.act())
    envs.close()
    return info["success"].mean()


def test_the_template_fits_a_page() -> None:
    assert len(TEMPLATE.splitlines()) <= 60


@pytest.mark.parametrize("robot", ["panda", "six_axis"])
def test_the_expert_of_the_template_succeeds_and_its_failures_fail(tmp_path: Path, robot: str) -> None:
    task = saved(tmp_path)
    kinds = make_task(task).failure_plans()
    assert len(kinds) >= 2
    assert successes(task, SUCCESS_OUTCOME, 100, robot) >= 0.95
    assert [successes(task, kind, 16, robot) for kind in kinds] == [0] * len(kinds)


def test_the_template_draws_colors_object_and_side_by_seed(tmp_path: Path) -> None:
    task = make_task(saved(tmp_path))
    drawn = [task.draw_layout(np.random.default_rng(seed), 1) for seed in range(40)]
    assert len({layout.colors[0] for layout in drawn}) == 6
    assert {(layout.object_order[0], layout.side_index) for layout in drawn} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert len({task.instruction(drawn[0], phrasing) for phrasing in range(5)}) == len(task.templates) >= 2


def test_a_file_is_run_once_and_its_task_has_its_name_from_then_on(tmp_path: Path) -> None:
    path = saved(tmp_path)
    task = make_task(path)
    assert type(make_task(path)) is type(task) is type(make_task("cube_in_tray"))
    envs = TabletopVecEnv("cube_in_tray", 2)
    assert "wrong_object" in available_outcomes(envs)
    envs.close()


def test_the_lines_for_python_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (lines,) = re.findall(r"^```py\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    space: dict[str, Any] = {}
    exec(lines, space)
    assert space["observation"].shape[0] == 64 and space["envs"].task.name == "cube_in_tray"
    space["envs"].close()
    monkeypatch.delitem(sys.modules, "my_task")


def test_a_class_defined_anew_takes_the_place_of_the_old_one() -> None:
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
    'name = "cube_in_tray"': ('name = "Cube In Tray"', "name must be a text in small letters such as 'lift_cube'"),
    '"cube_in_tray"': ('"lift_cube"', "two tasks are called 'lift_cube'"),
    "max_episode_steps = 90": ("", "max_episode_steps must be a whole number .* got None"),
    '"grasp", "place")': ('"grasp")', "gives step 2, but steps names 0 to 1: reach, grasp"),
    'Item("other"))': ('Item("cube"))', "two props are called 'cube'"),
    'Item("other")': ('Item("other", "rd")', "unknown color of 'other' .* 'rd'. Did you mean 'red'?"),
    "sides = SIDES": ("sides = SIDES; watched = ('left_try',)", "unknown watched point .* Did you mean 'left_tray'"),
    "{side} tray": ("{sides} tray", "has a placeholder .'sides'. that is not known here. Available"),
    "templates = (": ("templates = 'lift' or (", "templates must be a tuple of sentences .* got 'lift'"),
    "def expert": ("def exprt", r"it must define expert\(\)"),
    "return WHOLE": ("return ()", "the plans for 'success' must be a tuple of one waypoint or more"),
    '{"wrong_object"': ('{"wrong"', r"failures\(\) must give plans for two kinds .* 'wrong_object' among them"),
    "(missed(WHOLE, x=0.06),)": ("missed(WHOLE, x=0.06)", "the plans for 'miss' must be one tuple or more"),
    "moved(z=0.1), SHUT": ("moved(z=0.5), SHUT", r"waypoint 3 of expert\(\) leads to \[.*\] m, where the tool cannot"),
    'at_side(state, "tray")': ('at_side(state, "try")', r"ended in KeyError: 'left_try'"),
    "0.0, height])": ("0.0, height])[None, None]", r"waypoint 0 .*\[4, 3\] here.* got float64 \[1, 4, 3\]"),
    "- 0.02, distance(start": ("- 0.02 + np.nan, distance(start", r"a share of stage\(\) is not finite"),
    "return (CUBE(state) - place(state),)": ("return ()", "the policy cannot know which of its sides is meant"),
    "return (distance(now.object(), place(now)) < 0.05) & (": ("return (", r"success\(\) holds at the start"),
    "return (distance(now": ("return 1 + (distance(now", r"success\(\) must be an array of bools"),
    "    def success": (
        "    def layout(self, rng, poses): return super().layout(np.random.default_rng(), poses)\n    def success",
        r"layout\(\) gives two starts for one seed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("right", MISTAKES)
def test_a_mistake_in_the_file_is_one_sentence(tmp_path: Path, right: str) -> None:
    wrong, sentence = MISTAKES[right]
    assert right in TEMPLATE
    with pytest.raises(SimError, match=sentence) as mistake:
        make_task(saved(tmp_path, TEMPLATE.replace(right, wrong, 1)))
    assert "\n" not in str(mistake.value)


def test_every_task_in_the_box_is_sound() -> None:
    for name in registry.task_names():
        registry.check_task(type(make_task(name)))


def test_the_commands_take_the_path_and_the_data_know_the_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, demos = saved(tmp_path), tmp_path / "demos"
    assert main(["tasks", f"task={task}"]) == 0
    assert "put the {color} cube into the {side} tray" in capsys.readouterr().out
    assert main(["collect", f"tasks=[{task}]", "successes=2", "failures=3", f"out={demos}", *TINY]) == 0
    data = open_dataset(demos / "dataset")
    assert {meta.metadata["task"] for meta in data.meta} == {"cube_in_tray"}
    assert [meta.success for meta in data.meta] == [True, True, False, False, False]
    words = ["clone", f"task={task}", f"data={demos}", "demonstrations=2", "steps=5", "episodes=2"]
    assert main([*words, f"out={tmp_path / 'cloned'}", *TINY]) == 0
    assert main(["play", f"task={tmp_path / 'gone.py'}", f"out={tmp_path / 'run'}"]) == 2
    error = capsys.readouterr().err
    assert "gone.py: there is no such file" in error and error.count("\n") == 1


def own_arm(folder: Path) -> Path:
    """The six-axis arm with other names for what the simulator must find."""
    for file in ("six_axis_primitives.xml", "parallel_hand.xml"):
        text = (ROBOTS_DIR / file).read_text().replace('<site name="tool"', '<site name="tcp"')
        (folder / file).write_text(text.replace('<position name="grip"', '<position name="jaws"'))
    return folder / "six_axis_primitives.xml"


def test_the_tool_and_the_grip_of_ones_own_arm_have_any_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arm, out = own_arm(tmp_path), f"out={tmp_path / 'run'}"
    words = ["play", "task=lift_cube", f"env.robot={arm}", out, *TINY]
    assert main([*words, "env.tool=tcp", "env.grip=jaws"]) == 0
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["play"]["successes"] == 2
    assert main([*words[:-3], f"out={tmp_path / 'other'}", "env.grip=jaws"]) == 2
    assert "unknown tool site of six_axis_primitives.xml 'tool'. Available: tcp" in capsys.readouterr().err
    assert main([*words[:-3], f"out={tmp_path / 'other'}", "env.tool=tcp"]) == 2
    error = capsys.readouterr().err
    assert "unknown grip actuator of six_axis_primitives.xml 'grip'. Available: jaws, joint1" in error
    assert main(["play", "task=lift_cube", "env.tool=tcp", f"out={tmp_path / 'other'}"]) == 2
    assert "unknown tool site of panda_primitives.xml 'tcp'. Available: tool" in capsys.readouterr().err

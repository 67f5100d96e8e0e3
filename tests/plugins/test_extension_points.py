"""A package outside the tree adds one of each kind and uses it from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PYPROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "my-robot"
version = "0.1"

[project.entry-points]
"embodied_rm.dataset_readers" = {mine = "my_robot"}
"embodied_rm.encoders" = {mine = "my_robot"}
"embodied_rm.label_schemes" = {mine = "my_robot"}
"embodied_rm.reward_rules" = {mine = "my_robot"}
"embodied_sim.tasks" = {mine = "my_robot_task"}

[tool.setuptools]
py-modules = ["my_robot", "my_robot_task"]
"""
MODULE = """
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.readers import register_dataset_reader
from embodied_rm.labels import hops
from embodied_rm.labels.schemes import register_label_scheme
from embodied_rm.models.towers import StrideTower, register_image_encoder
from embodied_rm.rewards.rule_registry import register_reward_rule

register_label_scheme("my_hops", loss_terms=("all_pairs", "success"), supervision="true progress")(hops.label)

@register_image_encoder("my_encoder")
class MyEncoder(StrideTower):
    def __init__(self):
        super().__init__((8, 16))

@register_reward_rule("half_progress")
def half_progress(transitions, params):
    return transitions.task_reward + 0.5 * params.scale * transitions.next_potential

@register_dataset_reader("mine", layout="my_robot.txt, which names a folder")
def open_mine(path, instruction, feature_map):
    pointer = path / "my_robot.txt"
    return open_dataset(pointer.read_text(), instruction, feature_map) if pointer.exists() else None
"""
TASK = """
from embodied_sim.registry import register
from embodied_sim.tasks.lift_cube import LiftCube

@register
class MyLift(LiftCube):
    name = "my_lift"
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a process that has the package installed."""
    source, target = tmp_path_factory.mktemp("my_robot"), tmp_path_factory.mktemp("installed")
    (source / "pyproject.toml").write_text(PYPROJECT)
    (source / "my_robot.py").write_text(MODULE)
    (source / "my_robot_task.py").write_text(TASK)
    install = ["pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    subprocess.run([sys.executable, "-m", *install, str(source)], check=True, capture_output=True, text=True)
    path = os.pathsep.join(filter(None, [str(target), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def embodied_rm(environment: dict[str, str], folder: Path, *words: str) -> str:
    """What the command prints."""
    command = [sys.executable, "-m", "embodied_rm", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(900)
def test_one_of_each_is_used_from_the_command_line(environment: dict[str, str], tmp_path: Path) -> None:
    small = ("env.num_envs=2", "env.image_size=32")
    embodied_rm(
        environment, tmp_path, "collect", "tasks=[my_lift]", "num_successes=2", "num_failures=1", "out=demos", *small
    )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "my_robot.txt").write_text(str(tmp_path / "demos" / "dataset"))
    training = ("steps=2", "batch_size=2", "frames_per_episode=3", "image_size=[32,32]", "checkpoint_seconds=600")
    keys = ("data=mine", "tower=my_encoder", "label_schemes=[my_hops]", "out=reward", *training)
    embodied_rm(environment, tmp_path, "train", *keys)
    manifest = json.loads((tmp_path / "reward" / "checkpoint" / "manifest.json").read_text())
    assert manifest["net"]["encoder"]["open_clip"]["vision_cfg"]["timm_model_name"] == "my_encoder"
    embodied_rm(
        environment,
        tmp_path,
        "clone",
        "task=my_lift",
        "data=demos",
        "num_demonstrations=2",
        "steps=2",
        "eval_episodes=2",
        "out=clone",
        *small,
    )
    refine = (
        "iterations=1",
        "critic_warmup_iterations=0",
        "rollout_steps=3",
        "eval_episodes=0",
        "final_eval_episodes=2",
    )
    keys = ("task=my_lift", "policy=clone", "checkpoint=reward", "reward.rule=half_progress", "out=refine", *refine)
    embodied_rm(environment, tmp_path, "refine", *keys, *small)
    assert json.loads((tmp_path / "refine" / "metrics.json").read_text())["tasks"]["my_lift"]


def test_a_plugin_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    info = tmp_path / "broken-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[embodied_rm.reward_rules]\nbroken = broken_rules\n")
    (tmp_path / "broken_rules.py").write_text("raise RuntimeError('no robot')\n")
    code = "from embodied_rm.rewards.rules import find_rule; find_rule('shaped')"
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "the plugin broken = broken_rules of embodied_rm.reward_rules cannot be imported" in done.stderr
    assert "RuntimeError: no robot" in done.stderr

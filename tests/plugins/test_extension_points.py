"""A package outside the tree adds one of each kind and uses it from the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"


def code_blocks(section: str) -> dict[str, str]:
    """Return the code of a section of the documentation page: language -> block."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"```(python|yaml)\n(.*?)```", text, re.DOTALL))


def write_package(folder: Path) -> None:
    """Write the package of the documentation page, with every example on it."""
    page = PAGE.read_text()
    (folder / "pyproject.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    package = folder / "my_robot"
    package.mkdir()
    sections = ("Reward rule", "Label scheme", "Dataset reader", "Image encoder")
    (package / "__init__.py").write_text("\n".join(code_blocks(section)["python"] for section in sections))
    (package / "count_episodes.py").write_text(code_blocks("Command")["python"])
    (package / "count_episodes.yaml").write_text(code_blocks("Command")["yaml"])
    (folder / "my_robot_task.py").write_text(code_blocks("Task")["python"])


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a process that has the package installed."""
    source, target = tmp_path_factory.mktemp("my_robot"), tmp_path_factory.mktemp("installed")
    write_package(source)
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
    keys = ("data=mine", "encoder=my_encoder", "label_schemes=[slow_start]", "out=reward", *training)
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
    overview = embodied_rm(environment, tmp_path, "--help")
    assert re.search(r"count-episodes +Count the episodes of a dataset", overview)
    script = "import sys; from embodied_rm.cli.main import main; main(['--help']); assert 'my_robot' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], env=environment, cwd=tmp_path, check=True, capture_output=True)
    assert "dataset folder" in embodied_rm(environment, tmp_path, "count-episodes", "--help")
    embodied_rm(environment, tmp_path, "count-episodes", "data=demos/dataset", "out=count")
    assert json.loads((tmp_path / "count" / "metrics.json").read_text()) == {"episodes": 3}


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

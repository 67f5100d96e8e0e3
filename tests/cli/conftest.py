"""The smallest recordings, policies and reward models, which several files of tests only read."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from browsers import browser, page
from shared_folders import build_once
from tiny_runs import RECORD, RECORD_SPLIT, REFINE, TINY

from embodied_rm.cli.main import main
from embodied_rm.command import Command
from embodied_rm.experiments import imagination_benchmark, inferred_actions
from embodied_rm.experiments.pipeline import Pipeline
from embodied_rm.rl.cloning.bc import CloneConfig
from embodied_rm.rl.imagination.dpo import DPOConfig
from embodied_rm.rl.off_policy import hnpg
from embodied_rm.rl.offline import inverse_dynamics

__all__ = ["browser", "page"]


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks learn as long as their published results need; here their parts run for some steps each."""
    run_command = Pipeline.run_command

    def run_briefly(pipeline: Pipeline, name: str, folder: str, command: Command, config: Any) -> dict[str, Any]:
        sizes = {"clone": {"steps": 20}, "refine": {"final_eval_episodes": 2}}
        brief = replace(config, **sizes.get(name, {}))
        return run_command(pipeline, name, folder, command, brief)

    monkeypatch.setattr(Pipeline, "run_command", run_briefly)
    monkeypatch.setattr(imagination_benchmark, "DPOConfig", partial(DPOConfig, steps=20))
    monkeypatch.setattr(inferred_actions, "CloneConfig", partial(CloneConfig, steps=20))
    monkeypatch.setattr(inverse_dynamics, "STEPS", 20)
    monkeypatch.setattr(hnpg, "FIRST_UPDATES", 20)


@pytest.fixture(scope="session")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def build(folder: Path) -> None:
        assert main([*RECORD, f"out={folder}"]) == 0

    return build_once(tmp_path_factory, "demos", build)


@pytest.fixture(scope="session")
def unseen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def build(folder: Path) -> None:
        assert main([*RECORD, "seed=1", "frame_stride=3", f"out={folder}"]) == 0

    return build_once(tmp_path_factory, "unseen", build)


@pytest.fixture(scope="session")
def cloned(tmp_path_factory: pytest.TempPathFactory, demos: Path) -> Path:
    def build(folder: Path) -> None:
        args = ["clone", "task=lift_cube", f"data={demos}", "num_demonstrations=3", "steps=20", "eval_episodes=4"]
        assert main([*args, f"out={folder}", *TINY]) == 0

    return build_once(tmp_path_factory, "cloned", build)


@pytest.fixture(scope="session")
def reward_model(tmp_path_factory: pytest.TempPathFactory, demos: Path) -> Path:
    def build(folder: Path) -> None:
        args = ["train", f"data={demos}", "steps=3", "batch_size=2", "image_size=[32,32]", f"out={folder}"]
        assert main(args) == 0

    return build_once(tmp_path_factory, "reward_model", build)


@pytest.fixture(scope="session")
def refined(tmp_path_factory: pytest.TempPathFactory, cloned: Path, reward_model: Path) -> Path:
    def build(folder: Path) -> None:
        assert main([*REFINE, f"policy={cloned}", f"checkpoint={reward_model}", f"out={folder}"]) == 0

    return build_once(tmp_path_factory, "refined", build)


@pytest.fixture(scope="session")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes of the training split."""

    def build(folder: Path) -> None:
        args = ["collect", "split=seen", "tasks=[press_button,stack_cubes]", f"out={folder}"]
        assert main([*args, *RECORD_SPLIT]) == 0

    return build_once(tmp_path_factory, "seen", build)


@pytest.fixture(scope="session")
def seen_model(tmp_path_factory: pytest.TempPathFactory, seen: Path) -> Path:
    """A reward model trained on the training split."""

    def build(folder: Path) -> None:
        args = ["train", f"data={seen}", "split=seen", "steps=2", "batch_size=2", "image_size=[32,32]"]
        assert main([*args, f"out={folder}"]) == 0

    return build_once(tmp_path_factory, "seen_model", build)

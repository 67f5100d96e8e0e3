"""The demo with train_reward_model=true; tests/test_package.py runs it with the bundled model."""

import json
from pathlib import Path

import pytest

from embodied_rm import paths
from embodied_rm.cli.main import main

SMALL = (
    "tasks=[lift_cube]",
    "benchmark_steps=2",
    "eval_data={num_successes:2,num_failures:2}",
    "task_presets.lift_cube={num_demonstrations:2,rollout_steps:4,iterations:2,log_std_init:-1,gamma:0.98,gae_lambda:0.85}",
    "collect={tasks:[lift_cube],num_successes:3,num_failures:2}",
    "train={steps:2,batch_size:2,image_size:[32,32]}",
    "evaluate.report_episodes=2",
    "clone={steps:10,eval_episodes:2}",
    "refine={critic_warmup_iterations:1,eval_episodes:2,final_eval_episodes:2}",
    *(f"{command}.env.num_envs=2" for command in ("collect", "clone", "refine")),
    *(f"{command}.env.image_size=32" for command in ("collect", "clone", "refine")),
)


def test_a_demo_that_trains_a_model_uses_it(tmp_path: Path) -> None:
    assert main(["demo", "train_reward_model=true", *SMALL, f"out={tmp_path / 'demo'}"]) == 0
    metrics = json.loads((tmp_path / "demo" / "metrics.json").read_text())
    assert metrics["train"]["episodes"] == metrics["collect"]["episodes"] == 5
    for stage in ("evaluation", "lift_cube/refine"):
        config = json.loads((tmp_path / "demo" / stage / "config.json").read_text())["config"]
        assert config["checkpoint"] == str(tmp_path / "demo" / "reward_model")
    assert "learned from 5 recorded episodes" in (tmp_path / "demo" / "report.html").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ["demo"],
        ["score", "data=."],
        ["audit", "data=."],
        ["evaluate", "split=seen"],
        ["bench", "fusion", "data=."],
    ],
)
def test_a_missing_bundled_model_is_an_error_that_says_how_to_build_it(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(paths, "BUNDLED_CHECKPOINT", tmp_path / "checkpoints" / "tabletop")
    assert main([*words, f"out={tmp_path / 'run'}"]) == 2
    error = capsys.readouterr().err
    assert "the bundled model is missing" in error and "`make checkpoint` builds it" in error
    assert error.count("\n") == 1 and not (tmp_path / "run").exists()

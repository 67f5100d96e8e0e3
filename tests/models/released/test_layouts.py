"""Each released model works with `score`, `evaluate`, `audit` and `refine` in its own file layout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from released_baselines import NO_SUCCESS
from released_layouts import LAYOUTS
from sprites import episode, episodes

from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.models.judges.factory import open_judge
from embodied_rm.models.judges.judge_config import JudgeConfig
from embodied_rm.models.reward_model import DescribedRewardModel
from embodied_rm.models.scoring import score_episodes

Layout = Callable[[str], dict[str, Path]]
NAMES = sorted(LAYOUTS)
NAMES_WITHOUT_SUCCESS = {"rewind", *NO_SUCCESS}
EXPECTED_PROGRESS = {"robo_dopamine": 0.3, "vlac": 0.01, "robo_reward": 0.75, "lrm": (1 + 0.4 + 0) / 3}
"""Progress of the first scored frame, from the answer that each model was trained on."""


def judge_args(name: str, layout: Layout) -> list[str]:
    return [f"judge={name}", *(f"judge.{key}={path}" for key, path in layout(name).items())]


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos") / "dataset"
    with DatasetWriter(folder) as writer:
        writer.add(episode(0, length=8))
        writer.add(episode(1, length=8, success=False))
    return folder


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    small = ["env.views=[front]", "env.num_envs=2", "env.image_size=32"]
    record = ["collect", "tasks=[press_button]", "num_successes=2", "num_failures=0", f"out={folder}/videos", *small]
    clone = [
        "clone",
        "task=press_button",
        f"data={folder}/videos",
        "steps=20",
        "eval_episodes=2",
        "num_demonstrations=2",
        f"out={folder}/clone",
        *small,
    ]
    assert main(record) == 0 and main(clone) == 0
    return folder / "clone"


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_independent_and_outputs_are_valid(name: str, layout: Layout) -> None:
    judge = open_judge(JudgeConfig(type=name, **layout(name)))  # type: ignore[arg-type]
    assert isinstance(judge, DescribedRewardModel)
    long, other = episode(0, length=6), episode(1, length=5)
    long_output, other_output = score_episodes(judge, [long, other])
    (single_output,) = score_episodes(judge, [other])
    assert long_output.valid.all() and not judge.capabilities.failures
    assert other_output.progress == pytest.approx(single_output.progress, abs=1e-5), "rows do not depend on each other"
    assert ((long_output.progress >= 0) & (long_output.progress <= 1)).all()
    assert np.isnan(long_output.success[1:]).all() != judge.capabilities.predicts_success
    if name in EXPECTED_PROGRESS:
        assert long_output.progress[1] == pytest.approx(EXPECTED_PROGRESS[name], abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_score(name: str, layout: Layout, videos: Path, tmp_path: Path) -> None:
    code = main(
        ["score", f"data={videos}", f"out={tmp_path}/run", "frame_stride=5", "videos=false", *judge_args(name, layout)]
    )
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())["score"]
    assert code == 0 and metrics["episodes"] == 2 and metrics["invalid"] == 0


@pytest.mark.parametrize("name", NAMES)
def test_evaluate_and_audit(name: str, layout: Layout, videos: Path, tmp_path: Path) -> None:
    assert main(["evaluate", f"data={videos}", f"out={tmp_path}/evaluated", *judge_args(name, layout)]) == 0
    metrics = json.loads((tmp_path / "evaluated" / "metrics.json").read_text())["reward_model"]
    assert "mae_failures" in metrics and ("completion_accuracy" in metrics) == (name not in NAMES_WITHOUT_SUCCESS)
    audit = ["audit", f"data={videos}", f"out={tmp_path}/audited", "episode_indices=[0]", "frame_stride=4"]
    assert main([*audit, "reward.success_patience=1", *judge_args(name, layout)]) == 0
    cases = json.loads((tmp_path / "audited" / "metrics.json").read_text())["cases"]
    assert cases["future"]["value"] == pytest.approx(0, abs=1e-5), "causal"
    skipped = [case for case in cases.values() if "predicts success" in case.get("skipped", "")]
    assert bool(skipped) == (name in NAMES_WITHOUT_SUCCESS)


@pytest.mark.parametrize("name", NAMES)
def test_refine(name: str, layout: Layout, policy: Path, tmp_path: Path) -> None:
    small = ["iterations=1", "critic_warmup_iterations=0", "rollout_steps=6"]
    small += ["final_eval_episodes=2", "eval_episodes=0"]
    env = ["env.views=[front]", "env.num_envs=2", "env.image_size=32", "reward.score_every=3"]
    success_args = ["reward.success_source=simulator"] if name in NAMES_WITHOUT_SUCCESS else []
    refine = ["refine", "task=press_button", f"policy={policy}", f"out={tmp_path}/run", *small, *env, *success_args]
    assert main([*refine, *judge_args(name, layout)]) == 0
    (row,) = [json.loads(line) for line in (tmp_path / "run" / "progress.jsonl").read_text().splitlines()]
    assert row["num_scores"] > 0 and row["invalid_rate"] == 0


def test_refine_rejects_a_judge_without_success_predictions(
    layout: Layout, policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(
        ["refine", "task=press_button", f"policy={policy}", f"out={tmp_path}/run", *judge_args("rewind", layout)]
    )
    assert code == 2 and "success_source=simulator" in capsys.readouterr().err


def test_incomplete_or_contradictory_location_is_rejected(
    tmp_path: Path, videos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for args, message in (
        (["judge=vlac"], "either its files, judge.folder=..., or its endpoint, judge.url=..."),
        (["judge=lrm", f"judge.folder={tmp_path}"], "judge.base_model=..., the folder of the Qwen3-VL"),
        (["judge=vlac", "judge.url=http://localhost/v1", "judge.model=m"], "runs in this process only"),
        (["judge=question", "judge.url=http://localhost/v1"], "judge.model must name the model"),
        (["judge=question", f"judge.folder={tmp_path}", "judge.reasoning_tokens=9"], "no effect with judge.folder="),
        (["judge=question", "judge.url=http://localhost/v1", "judge.dtype=float16"], "no effect with judge.url="),
        (["judge=vlac", f"judge.folder={tmp_path}", "checkpoint=/"], "both select the model"),
    ):
        assert main(["score", f"data={videos}", f"out={tmp_path}/run", *args]) == 2
        assert message in capsys.readouterr().err
    assert len(episodes(1)) == 1

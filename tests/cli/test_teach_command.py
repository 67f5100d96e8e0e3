"""`refine teach=`: the reward model learns from the learner's own episodes, labeled by the simulator or a judge."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_vlm

from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.rl.watch.log_rows import read_rows
from embodied_rm.types import Subtask

TINY = ("env.num_envs=6", "env.image_size=32", "env.views=[front]")
TEACH = ("teach.every=2", "teach.num_envs=6", "teach.frame_stride=2", "teach.steps=2", "teach.batch_size=2")


@pytest.fixture(scope="module")
def cloned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cloned")
    counts = ["num_successes=2", "num_failures=0"]
    assert main(["collect", "tasks=[lift_cube]", *counts, f"out={folder}/demos", *TINY]) == 0
    args = ["clone", "task=lift_cube", f"data={folder}/demos", "num_demonstrations=2", "steps=20", "eval_episodes=2"]
    assert main([*args, f"out={folder}/cloned", *TINY]) == 0
    return folder


def refine(folder: Path, out: Path, *extra: str) -> int:
    args = ["refine", "task=lift_cube", f"policy={folder}/cloned", f"out={out}", "iterations=4", "rollout_steps=80"]
    args += ["final_eval_episodes=2", "eval_episodes=0", "reward.score_every=7"]
    return main([*args, "ppo.num_minibatches=4", "ppo.epochs=1", *TINY, *TEACH, *extra])


def test_the_simulator_labels_what_the_model_learns(cloned: Path, tmp_path: Path) -> None:
    own_data = tmp_path / "own_data"
    with DatasetWriter(own_data) as writer:
        for episode in open_dataset(cloned / "demos" / "dataset"):
            edges = ("reach", 0, 5), ("grasp", 5, 6), ("lift", 6, len(episode))  # frame 5 is no second frame
            subtasks = tuple(Subtask(name=name, start=start, end=end) for name, start, end in edges)
            writer.add(replace(episode, subtasks=subtasks))
    assert refine(cloned, tmp_path / "run", f"teach.data={own_data}") == 0
    round_folder = tmp_path / "run" / "teach" / "1"
    episodes = list(open_dataset(round_folder / "episodes"))
    assert len(episodes) >= 8 and all(episode.success is not None for episode in episodes)
    assert all(episode.progress is not None and set(episode.views) == {"front"} for episode in episodes)
    facts = json.loads((round_folder / "metrics.json").read_text())["teach"]
    assert facts["error_after"] <= facts["error_before"]
    assert facts["attempts"] == len(episodes) and facts["held_out_episodes"] >= len(episodes) // 4
    load_progress_net(round_folder / "taught")
    assert len(read_rows(tmp_path / "run" / "progress.jsonl")) == 4
    assert not (tmp_path / "run" / "teach" / "2").exists(), "a round after the last iteration would be useless"


def test_a_judge_labels_what_the_model_learns(cloned: Path, tmp_path: Path) -> None:
    judge = tiny_vlm.save_model(tmp_path / "judge", answer="<progress>70%</progress>")
    assert refine(cloned, tmp_path / "run", "labeler=question", f"labeler.folder={judge}") == 0
    episodes = list(open_dataset(tmp_path / "run" / "teach" / "1" / "episodes"))
    progress = np.concatenate([episode.progress[1:] for episode in episodes if episode.progress is not None])
    assert progress == pytest.approx(0.7)
    assert not (tmp_path / "run" / "labels").exists(), "the judge is the teacher's"


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["judge=remote", "judge.url=http://127.0.0.1:1"], "trains a checkpoint of this package"),
        (["reward.rule=sparse", "reward.success_source=simulator"], "reward.rule=sparse uses none"),
        (["algorithm=rlpd", "recorded_data=/"], "algorithm=rlpd learns from old ones"),
        (["teach.steps=0"], "teach.steps must be >= 1"),
    ],
)
def test_what_cannot_be_taught_is_an_error(
    cloned: Path, tmp_path: Path, extra: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refine(cloned, tmp_path / "run", *extra) == 2
    assert message in capsys.readouterr().err

"""Scores of a judge become labels of a model: score, then train label_schemes=[distilled], on the same data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_vlm
import torch
from sprites import episode

from embodied_rm.cli.commands.train import with_scores
from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.score_table import ScoreTable
from embodied_rm.errors import DataError
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.scoring import score_episodes
from embodied_rm.rl.learner.policy import load_policy


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos") / "dataset"
    with DatasetWriter(folder) as writer:
        for number in range(6):
            writer.add(episode(number, success=number % 3 > 0, length=15))
    return folder


@pytest.fixture(scope="module")
def labels(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    judge = tiny_vlm.save_model(folder / "judge", answer="<progress>70%</progress>")
    args = ["score", f"data={videos}", f"out={folder}/run", "judge=question", f"judge.folder={judge}", "frame_stride=4"]
    assert main([*args, "videos=false", "plots=false"]) == 0
    return folder / "run"


def test_scores_are_attached_to_their_frames(videos: Path, labels: Path) -> None:
    source = open_dataset(videos)
    for stride in (1, 2, 3):
        read = [source.episode(row, stride=stride) for row in range(len(source))]
        for video in with_scores(source, labels, read, stride):
            assert video.predictions is not None
            frames = [*range(0, 15, stride)] if 14 % stride == 0 else [*range(0, 15, stride), 14]
            assert video.predictions.valid.tolist() == [frame % 4 == 0 or frame == 14 for frame in frames]
            value = video.predictions.progress[video.predictions.valid][1:]
            assert value == pytest.approx(0.7) and video.predictions.progress[0] == 0


def test_a_model_learns_the_scores_of_the_judge(videos: Path, labels: Path, tmp_path: Path) -> None:
    args = [
        "train",
        f"data={videos}",
        f"out={tmp_path}/run",
        "label_schemes=[distilled]",
        f"scores={labels}",
        "image_size=[32,32]",
    ]
    assert main([*args, "steps=150", "batch_size=6", "frames_per_episode=4"]) == 0
    net = load_progress_net(tmp_path / "run" / "checkpoint")
    curves = score_episodes(net, [open_dataset(videos).episode(row, size=(32, 32)) for row in range(3)])
    assert np.mean([curve.progress[2:] for curve in curves]) == pytest.approx(0.7, abs=0.15)


def test_scores_of_other_data_are_rejected(videos: Path, labels: Path, tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "other") as writer:
        writer.add(episode(0, length=9))
    source = open_dataset(tmp_path / "other")
    with pytest.raises(DataError, match="has 9 frames, 15 of them scored"):
        list(with_scores(source, labels, list(source), 1))
    with pytest.raises(DataError, match="not written by embodied-rm score"):
        ScoreTable.read(tmp_path)


def test_scores_in_another_order_of_rows_are_those_of_the_same_frames(
    videos: Path, labels: Path, tmp_path: Path
) -> None:
    reverse = tmp_path / "reverse"
    shutil.copytree(labels, reverse)
    table = pq.read_table(labels / "progress.parquet")
    rising = pa.array(table["frame_index"].to_numpy() / 100)
    table = table.set_column(table.column_names.index("progress_dense"), "progress_dense", rising)
    pq.write_table(table.take(np.arange(len(table))[::-1]), reverse / "progress.parquet")
    source = open_dataset(videos)
    for scored in with_scores(source, reverse, list(source), 1):
        assert scored.predictions is not None
        assert scored.predictions.progress == pytest.approx(np.arange(len(scored)) / 100)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["label_schemes=[distilled]"], "scores=None"),
        (["scores=/"], "got label_schemes=[hops]"),
        (["label_schemes=[distilled]", "scores=/", "time_reversal=true"], "which have no scores"),
    ],
)
def test_distillation_needs_scheme_and_scores(
    videos: Path, tmp_path: Path, args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", f"data={videos}", f"out={tmp_path}/run", *args]) == 2
    assert message in capsys.readouterr().err


def test_labeling_during_refinement_does_not_change_it(tmp_path: Path) -> None:
    tiny = ("env.num_envs=4", "env.image_size=32")
    demos, cloned = tmp_path / "demos", tmp_path / "cloned"
    assert main(["collect", "tasks=[lift_cube]", "num_successes=2", "num_failures=0", f"out={demos}", *tiny]) == 0
    args = ["clone", "task=lift_cube", f"data={demos}", "num_demonstrations=2", "steps=20", "eval_episodes=2"]
    assert main([*args, f"out={cloned}", *tiny]) == 0
    judge = tiny_vlm.save_model(tmp_path / "judge", answer="<progress>70%</progress>")
    args = ["refine", "task=lift_cube", f"policy={cloned}", "iterations=3", "rollout_steps=80", "final_eval_episodes=2"]
    args += ["eval_episodes=0", "reward.score_every=7", "ppo.num_minibatches=4", "ppo.epochs=1", *tiny]
    assert main([*args, f"out={tmp_path}/alone"]) == 0
    labeler = ["labeler=question", f"labeler.folder={judge}", "labeling.num_envs=2", "labeling.episodes_per_dataset=2"]
    labeled_args = [*args, f"out={tmp_path}/evaluated", *labeler, "labeling.frame_stride=20"]
    assert main(labeled_args) == 0
    first_policy, second_policy = (load_policy(tmp_path / name / "policy") for name in ("alone", "evaluated"))
    for first, second in zip(first_policy.parameters(), second_policy.parameters(), strict=True):
        assert torch.equal(first, second)
    metrics = json.loads((tmp_path / "evaluated" / "metrics.json").read_text())["tasks"]["lift_cube"]
    labeled = tmp_path / "evaluated" / "labels"
    videos = open_dataset(labeled / "videos")
    assert len(videos) == metrics["videos_labeled"] >= 4 and metrics["videos_dropped"] == 0
    assert set(videos.views) == {"front", "wrist"}
    args = [
        "train",
        f"data={labeled}/videos",
        "label_schemes=[distilled]",
        f"scores={labeled}",
        f"out={tmp_path}/student",
    ]
    assert main([*args, "image_size=[32,32]", "steps=2", "batch_size=2", "frames_per_episode=3"]) == 0

"""`inspect`, `convert` and `train` on a dataset with invalid episodes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import corruptions
import pytest
from lerobot_v21 import write_v21_dataset

from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.types import Subtask

EPISODES = 6


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Episode 1 lacks a video, found on opening; episode 4 has a NaN, found only by reading it."""
    root = write_v21_dataset(tmp_path / "data", [corruptions.make_episode(i) for i in range(EPISODES)])
    corruptions.video_path(root, 1).unlink()
    corruptions.set_nan(corruptions.table_path(root, 4))
    return root


def test_inspect_lists_every_issue_by_episode_and_file(damaged, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["inspect", f"data={damaged}", f"out={out}"]) == 0
    output = capsys.readouterr().out
    issues = json.loads((out / "issues.json").read_text())["issues"]
    assert [issue["episodes"] for issue in issues] == [["episode_000001"], ["episode_000004"]]
    for issue in issues:
        assert Path(issue["file"]).stem == issue["episodes"][0]
        assert f"left out: {issue['episodes'][0]}: {issue['file']}: {issue['message']}" in output.replace("\n", "")
    counts = json.loads((out / "metrics.json").read_text())["inspect"]
    assert (counts["episodes"], counts["issues"], counts["episodes_with_issues"]) == (EPISODES - 2, 2, 2)
    assert counts["views"] == ["front", "wrist"] and counts["image_size"] == "32x48" and counts["fps"] == 10
    page = (out / "report.html").read_text()
    assert "Issues" in page and "episode_000004" in page and "episode_000000" in page


def test_strict_fails_on_issues_only(damaged, tmp_path, capsys):
    assert main(["inspect", f"data={damaged}", f"out={tmp_path / 'a'}", "strict=true"]) == 3
    assert "2 issues" in capsys.readouterr().err
    valid_root = write_v21_dataset(tmp_path / "whole", [corruptions.make_episode(i) for i in range(2)])
    assert main(["inspect", f"data={valid_root}", f"out={tmp_path / 'b'}", "strict=true"]) == 0
    # decode=false finds only issues that opening the dataset finds.
    assert main(["inspect", f"data={damaged}", f"out={tmp_path / 'c'}", "decode=false"]) == 0
    assert len(json.loads((tmp_path / "c" / "issues.json").read_text())["issues"]) == 1


def test_convert_renames_views_and_skips_unreadable_episodes(damaged, tmp_path, capsys):
    out = tmp_path / "run"
    views = "features.views={front: top, wrist: hand}"
    assert main(["convert", f"data={damaged}", f"out={out}", views, "image_size=[16,24]"]) == 0
    assert "left out: episode_000001" in capsys.readouterr().out
    metrics = json.loads((out / "metrics.json").read_text())["convert"]
    assert metrics["skipped_episodes"] == ["episode_000001", "episode_000004"] and metrics["episodes"] == EPISODES - 2
    written = LeRobotDataset(out / "dataset")
    assert written.views == ("hand", "top") and written.image_size(0) == (16, 24)
    assert [meta.name for meta in written.meta] == [f"episode_{i:06d}" for i in (0, 2, 3, 5)]


def test_drift_is_reported_and_can_be_limited(tmp_path, capsys):
    root = write_v21_dataset(tmp_path / "data", [corruptions.make_episode(i) for i in range(2)])
    corruptions.double_frame_rate(corruptions.video_path(root, 1))
    assert main(["inspect", f"data={root}", f"out={tmp_path / 'any'}"]) == 0
    assert "is up to 0.55 s off 10 frames per second, in 1 of 2 episodes" in capsys.readouterr().out
    assert main(["inspect", f"data={root}", f"out={tmp_path / 'limit'}", "features.max_drift_s=0.5"]) == 0
    issues = json.loads((tmp_path / "limit" / "issues.json").read_text())["issues"]
    assert [issue["episodes"] for issue in issues] == [["episode_000001"]]
    assert "features.max_drift_s is 0.5" in issues[0]["message"]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["features.views={frnt: top}"], "unknown view 'frnt'. Did you mean 'front'?"),
        (["features.views=[front]"], "features.views must be a mapping like {a:1}, got [front]"),
        (["features.state=[nothing]"], "unknown column 'nothing'"),
        (["features.fps=0"], "fps must be from 0.001 to 10000, got 0"),
        (["features.max_drift_s=-1"], "max_drift_s must be >= 0, got -1"),
        (["features.max_drift=1"], "Did you mean 'features.max_drift_s'?"),
        (["image_size=[15,24]"], "image_size must be [height, width], both even"),
        (["instruction=go"], "the dataset has its own instructions"),
        (
            ["features.vews={front: top}"],
            "unknown key of embodied-rm convert 'features.vews'. Did you mean 'features.views'?",
        ),
    ],
)
def test_an_error_is_one_sentence(damaged, tmp_path, capsys, args, sentence):
    assert main(["convert", f"data={damaged}", f"out={tmp_path / 'run'}", *args]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1


def test_training_skips_and_reports_unreadable_episodes(tmp_path, capsys):
    recorded = [corruptions.make_episode(i) for i in range(EPISODES)]
    root = write_v21_dataset(tmp_path / "data", recorded)
    out = tmp_path / "converted"
    assert main(["convert", f"data={root}", f"out={out}"]) == 0
    # Training needs subtasks, which v2.1 cannot store.
    with DatasetWriter(tmp_path / "known", video_file_mb=1e-6) as writer:
        for episode in open_dataset(out / "dataset"):
            steps = (Subtask(name="reach", start=0, end=6), Subtask(name="lift", start=6, end=12))
            writer.add(replace(episode, subtasks=steps, success=True))
    corruptions.corrupt_packet(
        tmp_path / "known" / "videos" / "observation.images.wrist" / "chunk-000" / "file-004.mp4"
    )
    train_args = ["steps=2", "batch_size=2", "frames_per_episode=3", "image_size=[32,48]"]
    capsys.readouterr()
    assert main(["train", f"data={tmp_path / 'known'}", f"out={tmp_path / 'run'}", *train_args]) == 0
    assert "left out: episode_000004" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["train"]["episodes"] == EPISODES - 1

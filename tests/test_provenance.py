"""Training data is recognized independently of its names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.provenance import HASH_DIGITS, dataset_provenance, hash_scene, merge_provenance, provenance
from embodied_rm.types import Episode


def make_episode(number: int, **metadata: str) -> Episode:
    frames = np.random.default_rng(number).integers(0, 256, (4, 8, 8, 3), np.uint8)
    return Episode(name=f"video {number}", views={"front": frames}, instruction="go", fps=10.0, metadata=metadata)


def test_episode_is_identified_by_scene_or_images():
    lists = provenance(
        [
            make_episode(0, scene="here", task="lift", split="seen", seed="3"),
            make_episode(1, task="open"),
            make_episode(1),
        ]
    )
    assert lists["scenes"] == [hash_scene("here")] and lists["tasks"] == ["lift", "open"]
    assert lists["splits"] == ["seen 3"]
    (video_hash,) = lists["video_hashes"]
    assert len(video_hash) == HASH_DIGITS
    renamed = replace(make_episode(1), instruction="stay", name="other")
    assert provenance([renamed])["video_hashes"] == [video_hash]


def test_merged_provenance_is_the_union():
    first = provenance([make_episode(0, scene="here"), make_episode(1)])
    second = provenance([make_episode(2), make_episode(0, scene="there")])
    merged = merge_provenance(first, second)
    assert merged["scenes"] == sorted([hash_scene("here"), hash_scene("there")])
    assert merged["video_hashes"] == sorted([*first["video_hashes"], *second["video_hashes"]])
    assert merge_provenance({}, second) == second and merge_provenance(merged, first) == merged


def test_evaluation_rejects_training_videos_without_scene(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recordings of real robots store no scene; here name and instruction differ too."""
    training = [replace(make_episode(seed, task="t"), progress=np.linspace(0, 1, 4, dtype=np.float32), success=True)
             for seed in range(3)]  # fmt: skip
    renamed = [replace(training[1], name="renamed", instruction="stay")]
    for name, episodes in {
        "training": training,
        "renamed": renamed,
        "fresh": [replace(training[0], views=make_episode(9).views)],
    }.items():
        with DatasetWriter(tmp_path / name, robot_type="none") as writer:
            for episode in episodes:
                writer.add(episode)
    train_overrides = ["steps=1", "batch_size=2", "image_size=[32,32]", f"out={tmp_path / 'model'}"]
    assert main(["train", f"data={tmp_path / 'training'}", *train_overrides]) == 0
    evaluate_command = ["evaluate", f"checkpoint={tmp_path / 'model'}", "report_episodes=1"]
    assert main([*evaluate_command, f"data={tmp_path / 'fresh'}", f"out={tmp_path / 'may'}"]) == 0
    capsys.readouterr()
    assert main([*evaluate_command, f"data={tmp_path / 'renamed'}", f"out={tmp_path / 'no'}"]) == 2
    assert "the model was trained on it" in " ".join(capsys.readouterr().err.split())


def test_only_datasets_of_the_hub_have_a_name_that_others_know() -> None:
    assert dataset_provenance(Path("hub:people/carrying@v3.0")) == {"datasets": ["people/carrying"]}
    assert dataset_provenance(Path("runs/collect/dataset")) == {}

"""What a model was trained on is known again under any other name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.provenance import HASH_DIGITS, hash_scene, merge_provenance, provenance
from embodied_rm.types import Episode


def video(number: int, **meta: str) -> Episode:
    frames = np.random.default_rng(number).integers(0, 256, (4, 8, 8, 3), np.uint8)
    return Episode(name=f"video {number}", views={"front": frames}, instruction="go", fps=10.0, metadata=meta)


def test_an_episode_is_noted_by_its_scene_or_else_by_its_images():
    noted = provenance([video(0, scene="here", task="lift", split="seen", seed="3"), video(1, task="open"), video(1)])
    assert noted["scenes"] == [hash_scene("here")] and noted["tasks"] == ["lift", "open"]
    assert noted["splits"] == ["seen 3"]
    (only,) = noted["video_hashes"]
    assert len(only) == HASH_DIGITS and provenance([replace(video(1), instruction="stay", name="other")])["video_hashes"] == [
        only
    ]


def test_what_was_learned_first_and_what_came_later_are_both_noted():
    first, later = provenance([video(0, scene="here"), video(1)]), provenance([video(2), video(0, scene="there")])
    both = merge_provenance(first, later)
    assert both["scenes"] == sorted([hash_scene("here"), hash_scene("there")])
    assert both["video_hashes"] == sorted([*first["video_hashes"], *later["video_hashes"]])
    assert merge_provenance({}, later) == later and merge_provenance(both, first) == both


def test_videos_that_name_no_scene_are_known_again_by_their_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As recordings of real robots are: under another name and another sentence."""
    known = [replace(video(seed, task="t"), progress=np.linspace(0, 1, 4, dtype=np.float32), success=True)
             for seed in range(3)]  # fmt: skip
    again = [replace(known[1], name="renamed", instruction="stay")]
    for name, videos in {"known": known, "again": again, "fresh": [replace(known[0], views=video(9).views)]}.items():
        with DatasetWriter(tmp_path / name, robot_type="none") as writer:
            for one in videos:
                writer.add(one)
    small = ["steps=1", "batch_size=2", "image_size=[32,32]", f"out={tmp_path / 'model'}"]
    assert main(["train", f"data={tmp_path / 'known'}", *small]) == 0
    judged = ["evaluate", f"checkpoint={tmp_path / 'model'}", "report_episodes=1"]
    assert main([*judged, f"data={tmp_path / 'fresh'}", f"out={tmp_path / 'may'}"]) == 0
    capsys.readouterr()
    assert main([*judged, f"data={tmp_path / 'again'}", f"out={tmp_path / 'no'}"]) == 2
    assert "the model was trained on it" in " ".join(capsys.readouterr().err.split())

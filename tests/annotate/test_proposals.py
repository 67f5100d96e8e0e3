"""Proposed subtasks: change points in indices of all frames, with the given names."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.annotate import proposals
from embodied_rm.annotate.proposals import (
    change_point_proposer,
    downsample_episode,
    equal_progress_edges,
    progress_proposer,
    propose_subtasks,
)
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.source import stride_indices
from embodied_rm.types import Episode, Subtask

EDGES = (0, 30, 70, 120)
SCENES = np.repeat(np.array([[200, 40, 40], [40, 200, 40], [40, 40, 200]], np.uint8), np.diff(EDGES), axis=0)


def make_episode(**changes) -> Episode:
    """Three scenes of one color each, with some noise."""
    noise = np.random.default_rng(0).integers(0, 9, (len(SCENES), 32, 48, 3), dtype=np.uint8)
    views = {"front": SCENES[:, None, None] + noise, "wrist": noise}
    return replace(Episode(name="one", views=views, instruction="go", fps=10), **changes)


def store(folder: Path, episode: Episode):
    with DatasetWriter(folder) as writer:
        writer.add(episode)
    return open_dataset(folder)


def test_subtasks_start_at_image_changes(tmp_path):
    subtasks = propose_subtasks(store(tmp_path / "data", make_episode()), 0, change_point_proposer())
    assert [(subtask.start, subtask.end) for subtask in subtasks] == list(pairwise(EDGES))
    assert [subtask.name for subtask in subtasks] == ["subtask 1", "subtask 2", "subtask 3"]


def test_number_of_names_determines_number_of_subtasks(tmp_path):
    source = store(tmp_path / "data", make_episode())
    for names in (("do it",), ("reach", "put"), ("a", "b", "c"), ("a", "b", "c", "d", "e")):
        subtasks = propose_subtasks(source, 0, change_point_proposer(names))
        assert tuple(subtask.name for subtask in subtasks) == names
        assert subtasks[0].start == 0 and subtasks[-1].end == len(SCENES)
        assert all(a.end == b.start for a, b in pairwise(subtasks))


def test_gripper_changes_split_subtasks_unless_names_are_given(tmp_path):
    gripper = np.zeros((len(SCENES), 2), np.float32)
    gripper[95:, 1] = 1
    source = store(tmp_path / "data", make_episode(action=gripper))
    assert 95 in [subtask.start for subtask in propose_subtasks(source, 0, change_point_proposer())]
    assert [subtask.start for subtask in propose_subtasks(source, 0, change_point_proposer(("a", "b", "c")))] == [
        0,
        30,
        70,
    ]


def test_long_episode_is_downsampled_and_subtasks_use_all_frames(tmp_path, monkeypatch):
    monkeypatch.setattr(proposals, "MAX_FRAMES", 50)
    monkeypatch.setattr(proposals, "MAX_IMAGE_SIDE", 24)
    known = (Subtask(name="x", start=1, end=2),)  # a subtask without any selected frame
    source = store(
        tmp_path / "data", make_episode(subtasks=known, state=np.arange(len(SCENES), dtype=np.float32)[:, None])
    )
    episode, frame_indices = downsample_episode(source, 0)
    assert np.array_equal(frame_indices, stride_indices(len(SCENES), 3)) and len(episode) == len(frame_indices) <= 51
    assert episode.views["front"].shape[1:] == (16, 24, 3) and episode.fps == pytest.approx(10 / 3)
    assert episode.state is not None and np.array_equal(episode.state[:, 0], frame_indices) and episode.subtasks == ()
    scenes = episode.views["front"].mean((1, 2)).argmax(1)
    assert np.array_equal(scenes, SCENES[frame_indices].argmax(1)), "frames match their indices"
    subtasks = propose_subtasks(source, 0, change_point_proposer(("a", "b", "c")))
    assert [(subtask.start, subtask.end) for subtask in subtasks] == [(0, 30), (30, 72), (72, 120)]


def test_any_function_can_propose(tmp_path):
    source = store(tmp_path / "data", make_episode())
    first_half = lambda episode: [Subtask(name=episode.instruction, start=0, end=len(episode) // 2)]  # noqa: E731
    assert propose_subtasks(source, 0, first_half) == (Subtask(name="go", start=0, end=60),)


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=40), st.integers(1, 8))
def test_equal_progress_edges_are_increasing(progress: list[float], count: int) -> None:
    count = min(count, len(progress))
    edges = equal_progress_edges(np.array(progress, np.float32), count)
    assert edges[0] == 0 and edges[-1] == len(progress) and len(edges) == count + 1
    assert all(a < b for a, b in pairwise(edges))


def test_progress_is_split_into_equal_shares_after_the_last_frame_below(tmp_path):
    source = store(tmp_path / "data", make_episode())
    rising = np.linspace(0, 1, len(SCENES), dtype=np.float32)
    subtasks = propose_subtasks(source, 0, progress_proposer(lambda episode: rising, ("a", "b", "c", "d")))
    assert [subtask.start for subtask in subtasks] == [0, 30, 60, 90]
    undone_progress = np.where(np.arange(len(SCENES)) < 100, np.minimum(rising, 0.4), rising)
    undone_progress[70] = 0.9
    subtasks = propose_subtasks(source, 0, progress_proposer(lambda episode: undone_progress, ("a", "b")))
    assert [subtask.start for subtask in subtasks] == [0, 100], "after the last frame below the share"

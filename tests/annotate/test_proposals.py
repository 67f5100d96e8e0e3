"""Proposed steps: where the images change, in terms of all frames, named as one likes."""

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
from embodied_rm.data.stride import stride_indices
from embodied_rm.types import Episode, Subtask

EDGES = (0, 30, 70, 120)
SCENES = np.repeat(np.array([[200, 40, 40], [40, 200, 40], [40, 40, 200]], np.uint8), np.diff(EDGES), axis=0)


def recorded(**changes) -> Episode:
    """Three scenes of one color each, with some noise."""
    noise = np.random.default_rng(0).integers(0, 9, (len(SCENES), 32, 48, 3), dtype=np.uint8)
    views = {"front": SCENES[:, None, None] + noise, "wrist": noise}
    return replace(Episode(name="one", views=views, instruction="go", fps=10), **changes)


def stored(folder: Path, episode: Episode):
    with DatasetWriter(folder) as writer:
        writer.add(episode)
    return open_dataset(folder)


def test_steps_begin_where_the_images_change(tmp_path):
    steps = propose_subtasks(stored(tmp_path / "data", recorded()), 0, change_point_proposer())
    assert [(step.start, step.end) for step in steps] == list(pairwise(EDGES))
    assert [step.name for step in steps] == ["subtask 1", "subtask 2", "subtask 3"]


def test_names_say_how_many(tmp_path):
    source = stored(tmp_path / "data", recorded())
    for names in (("do it",), ("reach", "put"), ("a", "b", "c"), ("a", "b", "c", "d", "e")):
        steps = propose_subtasks(source, 0, change_point_proposer(names))
        assert tuple(step.name for step in steps) == names
        assert steps[0].start == 0 and steps[-1].end == len(SCENES)
        assert all(a.end == b.start for a, b in pairwise(steps))


def test_the_gripper_is_heard_unless_names_say_how_many(tmp_path):
    grip = np.zeros((len(SCENES), 2), np.float32)
    grip[95:, 1] = 1
    source = stored(tmp_path / "data", recorded(action=grip))
    assert 95 in [step.start for step in propose_subtasks(source, 0, change_point_proposer())]
    assert [step.start for step in propose_subtasks(source, 0, change_point_proposer(("a", "b", "c")))] == [0, 30, 70]


def test_of_a_long_episode_some_frames_are_shown_and_steps_are_told_in_all(tmp_path, monkeypatch):
    monkeypatch.setattr(proposals, "MAX_FRAMES", 50)
    monkeypatch.setattr(proposals, "MAX_IMAGE_SIDE", 24)
    known = (Subtask(name="x", start=1, end=2),)  # a step none of whose frames is shown
    source = stored(tmp_path / "data", recorded(subtasks=known, state=np.arange(len(SCENES), dtype=np.float32)[:, None]))
    episode, kept = downsample_episode(source, 0)
    assert np.array_equal(kept, stride_indices(len(SCENES), 3)) and len(episode) == len(kept) <= 51
    assert episode.views["front"].shape[1:] == (16, 24, 3) and episode.fps == pytest.approx(10 / 3)
    assert episode.state is not None and np.array_equal(episode.state[:, 0], kept) and episode.subtasks == ()
    nearest = episode.views["front"].mean((1, 2)).argmax(1)
    assert np.array_equal(nearest, SCENES[kept].argmax(1)), "each shown frame is the one that it is said to be"
    steps = propose_subtasks(source, 0, change_point_proposer(("a", "b", "c")))
    assert [(step.start, step.end) for step in steps] == [(0, 30), (30, 72), (72, 120)]


def test_any_judge_may_propose(tmp_path):
    source = stored(tmp_path / "data", recorded())
    half = lambda episode: [Subtask(name=episode.instruction, start=0, end=len(episode) // 2)]  # noqa: E731
    assert propose_subtasks(source, 0, half) == (Subtask(name="go", start=0, end=60),)


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=40), st.integers(1, 8))
def test_shares_of_any_progress_are_steps_in_order(progress: list[float], count: int) -> None:
    count = min(count, len(progress))
    edges = equal_progress_edges(np.array(progress, np.float32), count)
    assert edges[0] == 0 and edges[-1] == len(progress) and len(edges) == count + 1
    assert all(a < b for a, b in pairwise(edges))


def test_a_judges_progress_is_cut_into_equal_shares_and_what_was_undone_begins_anew(tmp_path):
    source = stored(tmp_path / "data", recorded())
    rising = np.linspace(0, 1, len(SCENES), dtype=np.float32)
    steps = propose_subtasks(source, 0, progress_proposer(lambda episode: rising, ("a", "b", "c", "d")))
    assert [step.start for step in steps] == [0, 30, 60, 90]
    undone = np.where(np.arange(len(SCENES)) < 100, np.minimum(rising, 0.4), rising)
    undone[70] = 0.9
    steps = propose_subtasks(source, 0, progress_proposer(lambda episode: undone, ("a", "b")))
    assert [step.start for step in steps] == [0, 100], "behind the last frame that has not come so far"

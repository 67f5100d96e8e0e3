"""Proposed steps: where the pictures change, in terms of all frames, named as one likes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from embodied_rm.annotate import proposals
from embodied_rm.annotate.proposals import by_change, proposed, thinned
from embodied_rm.data.catalog import open_data
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.stride import kept_frames
from embodied_rm.types import Episode, Step

EDGES = (0, 30, 70, 120)
SCENES = np.repeat(np.array([[200, 40, 40], [40, 200, 40], [40, 40, 200]], np.uint8), np.diff(EDGES), axis=0)


def filmed(**changes) -> Episode:
    """Three scenes of one colour each, with some noise."""
    noise = np.random.default_rng(0).integers(0, 9, (len(SCENES), 32, 48, 3), dtype=np.uint8)
    views = {"front": SCENES[:, None, None] + noise, "wrist": noise}
    return replace(Episode(name="one", views=views, instruction="go", fps=10), **changes)


def stored(folder: Path, episode: Episode):
    with DatasetWriter(folder) as writer:
        writer.add(episode)
    return open_data(folder)


def test_steps_begin_where_the_pictures_change(tmp_path):
    steps = proposed(stored(tmp_path / "data", filmed()), 0, by_change())
    assert [(step.start, step.end) for step in steps] == list(pairwise(EDGES))
    assert [step.name for step in steps] == ["step 1", "step 2", "step 3"]


def test_names_say_how_many(tmp_path):
    source = stored(tmp_path / "data", filmed())
    for names in (("do it",), ("reach", "put"), ("a", "b", "c"), ("a", "b", "c", "d", "e")):
        steps = proposed(source, 0, by_change(names))
        assert tuple(step.name for step in steps) == names
        assert steps[0].start == 0 and steps[-1].end == len(SCENES)
        assert all(a.end == b.start for a, b in pairwise(steps))


def test_the_gripper_is_heard_unless_names_say_how_many(tmp_path):
    grip = np.zeros((len(SCENES), 2), np.float32)
    grip[95:, 1] = 1
    source = stored(tmp_path / "data", filmed(action=grip))
    assert 95 in [step.start for step in proposed(source, 0, by_change())]
    assert [step.start for step in proposed(source, 0, by_change(("a", "b", "c")))] == [0, 30, 70]


def test_of_a_long_episode_some_frames_are_shown_and_steps_are_told_in_all(tmp_path, monkeypatch):
    monkeypatch.setattr(proposals, "FRAMES", 50)
    monkeypatch.setattr(proposals, "SIDE", 24)
    known = (Step(name="x", start=1, end=2),)  # a step none of whose frames is shown
    source = stored(tmp_path / "data", filmed(steps=known, state=np.arange(len(SCENES), dtype=np.float32)[:, None]))
    episode, kept = thinned(source, 0)
    assert np.array_equal(kept, kept_frames(len(SCENES), 3)) and len(episode) == len(kept) <= 51
    assert episode.views["front"].shape[1:] == (16, 24, 3) and episode.fps == pytest.approx(10 / 3)
    assert episode.state is not None and np.array_equal(episode.state[:, 0], kept) and episode.steps == ()
    nearest = episode.views["front"].mean((1, 2)).argmax(1)
    assert np.array_equal(nearest, SCENES[kept].argmax(1)), "each shown frame is the one that it is said to be"
    steps = proposed(source, 0, by_change(("a", "b", "c")))
    assert [(step.start, step.end) for step in steps] == [(0, 30), (30, 72), (72, 120)]


def test_any_judge_may_propose(tmp_path):
    source = stored(tmp_path / "data", filmed())
    half = lambda episode: [Step(name=episode.instruction, start=0, end=len(episode) // 2)]  # noqa: E731
    assert proposed(source, 0, half) == (Step(name="go", start=0, end=60),)

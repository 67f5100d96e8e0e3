"""Frame selection by stride keeps both ends of an episode, and every frame in its subtask."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from embodied_rm.data.lerobot.write import subtask_column
from embodied_rm.data.source import EpisodeMeta, resample_subtasks, stride_indices, subtask_stride
from embodied_rm.errors import DataError
from embodied_rm.types import Subtask


@given(st.integers(1, 500), st.integers(1, 600))
def test_selected_frames_include_both_ends_without_larger_gaps(length, stride):
    frame_indices = stride_indices(length, stride)
    assert frame_indices[0] == 0 and frame_indices[-1] == length - 1
    gaps = np.diff(frame_indices)
    assert (gaps[:-1] == stride).all() and (gaps > 0).all() and (gaps <= stride).all()


@given(st.lists(st.integers(1, 300), min_size=2, max_size=9, unique=True), st.integers(1, 20), st.integers(0, 30))
def test_selected_frames_stay_in_their_subtask(edges, stride, num_trailing):
    edges = sorted(edges)
    length = edges[-1] + num_trailing
    subtasks = [Subtask(name=str(i), start=a, end=b) for i, (a, b) in enumerate(pairwise(edges))]
    frame_indices = stride_indices(length, stride)
    try:
        resampled = resample_subtasks(subtasks, frame_indices)
    except DataError:
        assume(False)
    np.testing.assert_array_equal(
        subtask_column(resampled, len(frame_indices)), subtask_column(subtasks, length)[frame_indices]
    )


@given(st.lists(st.integers(1, 300), min_size=2, max_size=9, unique=True), st.integers(1, 20))
def test_the_stride_of_subtasks_keeps_a_frame_of_each(edges, stride):
    edges = sorted(edges)
    subtasks = tuple(Subtask(name=str(i), start=a, end=b) for i, (a, b) in enumerate(pairwise(edges)))
    meta = EpisodeMeta(name="episode", instruction="", length=edges[-1], subtasks=subtasks)
    kept = subtask_stride(meta, stride)
    assert 1 <= kept <= stride and subtask_stride(replace(meta, subtasks=()), stride) == stride
    assert len(resample_subtasks(subtasks, stride_indices(meta.length, kept))) == len(subtasks)


def test_subtask_without_selected_frame_is_named():
    subtasks = [Subtask(name="reach", start=0, end=11), Subtask(name="grasp", start=11, end=14)]
    with pytest.raises(DataError, match=r"'grasp'.*frame 11 to 13"):
        resample_subtasks(subtasks, stride_indices(30, 10))


def test_stride_below_one_is_rejected():
    with pytest.raises(DataError, match="stride must be >= 1, got 0"):
        stride_indices(10, 0)

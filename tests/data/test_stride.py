"""Thinning an episode keeps its ends, and every kept frame in its step."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from embodied_rm.data.lerobot.write import subtask_column
from embodied_rm.data.stride import resample_subtasks, stride_indices
from embodied_rm.errors import DataError
from embodied_rm.types import Subtask


@given(st.integers(1, 500), st.integers(1, 600))
def test_kept_frames_hold_both_ends_and_no_gap_exceeds_the_stride(length, stride):
    kept = stride_indices(length, stride)
    assert kept[0] == 0 and kept[-1] == length - 1
    gaps = np.diff(kept)
    assert (gaps[:-1] == stride).all() and (gaps > 0).all() and (gaps <= stride).all()


@given(st.lists(st.integers(1, 300), min_size=2, max_size=9, unique=True), st.integers(1, 20), st.integers(0, 30))
def test_every_kept_frame_stays_in_its_step(edges, stride, tail):
    edges = sorted(edges)
    length = edges[-1] + tail
    steps = [Subtask(name=str(i), start=a, end=b) for i, (a, b) in enumerate(pairwise(edges))]
    kept = stride_indices(length, stride)
    try:
        thinned = resample_subtasks(steps, kept)
    except DataError:
        assume(False)
    np.testing.assert_array_equal(subtask_column(thinned, len(kept)), subtask_column(steps, length)[kept])


def test_a_step_that_would_vanish_is_named():
    steps = [Subtask(name="reach", start=0, end=11), Subtask(name="grasp", start=11, end=14)]
    with pytest.raises(DataError, match=r"'grasp'.*frame 11 to 13"):
        resample_subtasks(steps, stride_indices(30, 10))


def test_a_stride_below_one_is_refused():
    with pytest.raises(DataError, match="stride must be >= 1, got 0"):
        stride_indices(10, 0)

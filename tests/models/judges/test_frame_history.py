"""`FrameHistory` keeps a bounded number of evenly spaced frames."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.models.judges.frame_history import FrameHistory, MultiViewFrame


def make_frame(number: int) -> MultiViewFrame:
    return MultiViewFrame(np.full((1, 1, 1, 3), number % 256, np.uint8), np.ones(1, bool))


def make_history(length: int, capacity: int) -> FrameHistory:
    history = FrameHistory(capacity=capacity)
    for number in range(length):
        history = history.append(make_frame(number))
    return history


def frame_numbers(frames: list[MultiViewFrame] | tuple[MultiViewFrame, ...]) -> list[int]:
    return [int(frame.frames[0, 0, 0, 0]) for frame in frames]


@given(st.integers(1, 200), st.integers(1, 20))
def test_first_frame_is_kept_and_spacing_is_even(length: int, capacity: int) -> None:
    numbers = frame_numbers(make_history(length, capacity).frames)
    assert numbers[0] == 0 and len(numbers) <= capacity
    assert len(set(np.diff(numbers).tolist())) <= 1, "equal distances"
    if capacity > 1:
        assert len(numbers) >= min(length, capacity) // 2, "at least half of the capacity is used"


@given(st.integers(1, 40), st.integers(1, 12))
def test_sampling_of_a_short_video_is_even(length: int, max_frames: int) -> None:
    numbers = frame_numbers(make_history(length, 64).sample_evenly(make_frame(length), max_frames))
    expected = np.unique(np.linspace(0, length, min(max_frames, length + 1)).round())
    assert numbers == expected.astype(int).tolist()


@given(st.integers(1, 200), st.integers(2, 16), st.integers(2, 8))
def test_sampling_includes_the_first_and_the_current_frame(length: int, capacity: int, max_frames: int) -> None:
    numbers = frame_numbers(make_history(length, capacity).sample_evenly(make_frame(length), max_frames))
    assert numbers[0] == 0 and numbers[-1] == length
    assert len(numbers) <= max_frames and numbers == sorted(set(numbers))

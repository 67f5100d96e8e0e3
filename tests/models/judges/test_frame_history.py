"""`FrameHistory` keeps a bounded number of evenly spaced frames."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.models.judges.frame_history import FrameHistory, MultiViewFrame, empty_history


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


def linspace_indices(total: int, max_frames: int) -> list[int]:
    """The rule of Robometer's `linspace_subsample_frames`: over all frames of the video so far."""
    if total <= max_frames:
        return list(range(total))
    indices = np.rint(np.linspace(0, total - 1, max_frames)).astype(int).tolist()
    return [0, *indices[1:-1], total - 1]


def make_large_frame(number: int, size: int) -> MultiViewFrame:
    """A frame of `size` x `size` pixels without memory of its own."""
    pixel = np.frombuffer(number.to_bytes(3, "big"), np.uint8)
    return MultiViewFrame(np.broadcast_to(pixel, (1, size, size, 3)), np.ones(1, bool))


def large_frame_number(frame: MultiViewFrame) -> int:
    return int.from_bytes(frame.frames[0, 0, 0].tobytes(), "big")


@pytest.mark.parametrize(("size", "capacity"), [(224, 445), (256, 341), (128, 1365), (640, 64)])
def test_frames_are_those_of_the_whole_video_up_to_the_size_of_the_history(size: int, capacity: int) -> None:
    history = empty_history(64, make_large_frame(0, size))
    assert history.capacity == capacity
    for number in range(capacity + 1):
        current = make_large_frame(number, size)
        for max_frames in (8, 16):
            sampled = history.sample_evenly(current, max_frames)
            assert [large_frame_number(frame) for frame in sampled] == linspace_indices(number + 1, max_frames)
        history = history.append(current)
    assert history.stride == 2, "the next frame exceeds the size"


def test_a_longer_video_is_sampled_within_one_stride() -> None:
    """With a history of 64 frames, 500 frames are thinned to every eighth one."""
    history = empty_history(64, make_large_frame(0, 640))
    for number in range(499):
        history = history.append(make_large_frame(number, 640))
    sampled = [large_frame_number(frame) for frame in history.sample_evenly(make_large_frame(499, 640), 8)]
    distance = np.abs(np.subtract(sampled, linspace_indices(500, 8)))
    assert history.stride == 8 and distance.max() <= 8


def test_a_question_without_a_history_keeps_the_first_frame_only() -> None:
    assert empty_history(1, make_large_frame(0, 8)).capacity == 1


@pytest.mark.parametrize(("length", "expected"), [(1, [1]), (4, [1, 2, 3, 4]), (40, [1, 14, 27, 40])])
def test_the_sampling_can_begin_after_the_first_frame(length: int, expected: list[int]) -> None:
    sampled = empty_history(64, make_frame(0))
    for number in range(length):
        sampled = sampled.append(make_frame(number))
    assert frame_numbers(sampled.sample_evenly(make_frame(length), 4, start=1)) == expected
    assert frame_numbers(FrameHistory(capacity=64).sample_evenly(make_frame(7), 4, start=1)) == [7]

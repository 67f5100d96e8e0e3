"""What is kept of a video: never too much, evenly over its time, and as the past alone decides."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.models.judges.frame_history import FrameHistory, MultiViewFrame


def image(number: int) -> MultiViewFrame:
    return MultiViewFrame(np.full((1, 1, 1, 3), number % 256, np.uint8), np.ones(1, bool))


def video(length: int, room: int) -> FrameHistory:
    made = FrameHistory(capacity=room)
    for number in range(length):
        made = made.append(image(number))
    return made


def numbers(images: list[MultiViewFrame] | tuple[MultiViewFrame, ...]) -> list[int]:
    return [int(one.frames[0, 0, 0, 0]) for one in images]


@given(st.integers(1, 200), st.integers(1, 20))
def test_the_first_frame_stays_and_the_rest_lies_evenly_within_the_room(length: int, room: int) -> None:
    kept = numbers(video(length, room).frames)
    assert kept[0] == 0 and len(kept) <= room
    assert len(set(np.diff(kept).tolist())) <= 1, "one distance between all"
    if room > 1:
        assert len(kept) >= min(length, room) // 2, "half of the room at least is used"


@given(st.integers(1, 40), st.integers(1, 12))
def test_a_video_that_fits_is_sampled_evenly_from_the_first_to_now(length: int, most: int) -> None:
    shown = numbers(video(length, 64).sample_evenly(image(length), most))
    wanted = np.unique(np.linspace(0, length, min(most, length + 1)).round())
    assert shown == wanted.astype(int).tolist()


@given(st.integers(1, 200), st.integers(2, 16), st.integers(2, 8))
def test_first_and_present_are_shown_however_long_it_is(length: int, room: int, most: int) -> None:
    shown = numbers(video(length, room).sample_evenly(image(length), most))
    assert shown[0] == 0 and shown[-1] == length and len(shown) <= most and shown == sorted(set(shown))

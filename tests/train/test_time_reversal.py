"""Laws of videos played backwards: what had been achieved is undone, in the order of the images, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sprites import episode

from embodied_rm.errors import DataError
from embodied_rm.labels.subtasks import goal_of, instructions_of
from embodied_rm.labels.visual_change import frame_changes
from embodied_rm.train.time_reversal import STILL_CHANGE_THRESHOLD, add_time_reversals, reverse_episode, undo_progress
from embodied_rm.types import Episode

STEPS = 2


def carried(number: int = 0, **changed: object) -> Episode:
    """A success, or what `changed` makes of it, whose opposite is known."""
    video = episode(number, length=24)
    return replace(video, metadata={**video.metadata, "opposites": "bring it back | take it back"}, **changed)  # type: ignore[arg-type]


def test_a_success_backwards_undoes_its_last_step_under_the_opposite_instruction():
    video = carried()
    turned = reverse_episode(video, STEPS)
    assert turned is not None and turned.success
    assert instructions_of(turned) == ("bring it back", "take it back")
    assert goal_of(turned) != goal_of(video) and turned.metadata["task"] == video.metadata["task"]
    for name, frames in video.views.items():
        assert (turned.views[name] == frames[: len(turned)][::-1]).all()
    assert turned.progress is not None and video.progress is not None
    assert turned.progress[-1] == 1
    # Done from where the hand is back at the thing, whatever it does then.
    first_step = video.progress[: len(turned)][::-1] <= 1 / STEPS
    assert (turned.progress[first_step] == 1).all() and (turned.progress[~first_step] < 1).all()


def test_the_opposite_of_the_video_is_to_be_undone_by_no_frame_that_only_stands_still():
    """A video that ends in a long rest does not begin with one: nothing would tell such rest from a clock."""
    video = carried()
    rest = {name: np.concatenate([frames, np.repeat(frames[-1:], 9, axis=0)]) for name, frames in video.views.items()}
    assert video.progress is not None
    resting = replace(video, views=rest, progress=np.append(video.progress, np.ones(9, np.float32)))
    turned, of_rest = reverse_episode(video, STEPS), reverse_episode(resting, STEPS)
    assert turned is not None and of_rest is not None
    assert len(turned) == len(of_rest) and (turned.progress == of_rest.progress).all()
    assert frame_changes(turned)[1] > STILL_CHANGE_THRESHOLD


@pytest.mark.parametrize(
    "changed",
    [{"meta": {}}, {"progress": None}, {"progress": np.linspace(0, 0.6, 24).astype(np.float32)}],
    ids=["no opposite", "unknown progress", "hardly achieved"],
)
def test_there_is_nothing_to_undo_where_nothing_was_achieved(changed):
    assert reverse_episode(replace(carried(), **changed), STEPS) is None


@given(
    arrays(np.float32, st.integers(2, 30), elements=st.floats(0, 1, width=32)),
    st.lists(st.floats(0.5, 1.5), min_size=30, max_size=30),
)
@example(np.ones(17, np.float32), [1.0] * 8 + [1.5] * 6 + [1.0] * 16)
def test_what_is_less_undone_has_come_less_far(share, change):
    share[0], share[-1] = 1, 0
    progress = undo_progress(share, np.array(change, np.float32)[: len(share)])
    assert ((progress >= 0) & (progress <= 1)).all() and progress[-1] == 1
    begun = int(np.argmax(share < 0.98))
    assert (np.diff(progress[:begun]) >= -1e-6).all(), "on the way there, images only add up"
    by_share = progress[begun:][np.argsort(-share[begun:])]
    assert (np.diff(by_share) >= -1e-6).all(), "from there on, what is left decides"


def test_episodes_stay_and_what_can_be_turned_is_added():
    shown = [carried(0), carried(1, success=False, progress=np.zeros(24, np.float32)), carried(2)]
    both = add_time_reversals(shown)
    assert both[:3] == shown and [video.name for video in both[3:]] == [f"{shown[i].name} backwards" for i in (0, 2)]


def test_data_that_name_no_opposite_are_refused():
    with pytest.raises(DataError, match="no episode has the column opposites; embodied-rm collect records it"):
        add_time_reversals([episode(0), episode(1)])

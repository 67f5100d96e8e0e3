"""Time-reversed episodes undo the progress of the last subtask."""

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
from embodied_rm.training.time_reversal import (
    STILL_CHANGE_THRESHOLD,
    add_time_reversals,
    reverse_episode,
    undo_progress,
)
from embodied_rm.types import Episode

NUM_SUBTASKS = 2


def reversible_episode(number: int = 0, **changed: object) -> Episode:
    """Return a success with opposite instructions, with some fields changed."""
    video = episode(number, length=24)
    return replace(video, metadata={**video.metadata, "opposites": "bring it back | take it back"}, **changed)  # type: ignore[arg-type]


def test_reversed_success_undoes_its_last_subtask():
    video = reversible_episode()
    reversal = reverse_episode(video, NUM_SUBTASKS)
    assert reversal is not None and reversal.success
    assert instructions_of(reversal) == ("bring it back", "take it back")
    assert goal_of(reversal) != goal_of(video) and reversal.metadata["task"] == video.metadata["task"]
    for name, frames in video.views.items():
        assert (reversal.views[name] == frames[: len(reversal)][::-1]).all()
    assert reversal.progress is not None and video.progress is not None
    assert reversal.progress[-1] == 1
    # Undoing ends where the hand is back at the object.
    first_subtask = video.progress[: len(reversal)][::-1] <= 1 / NUM_SUBTASKS
    assert (reversal.progress[first_subtask] == 1).all() and (reversal.progress[~first_subtask] < 1).all()


def test_final_rest_is_dropped():
    """A final rest would become an initial one, in which progress could only follow time."""
    video = reversible_episode()
    rested = {name: np.concatenate([frames, np.repeat(frames[-1:], 9, axis=0)]) for name, frames in video.views.items()}
    assert video.progress is not None
    resting = replace(video, views=rested, progress=np.append(video.progress, np.ones(9, np.float32)))
    reversal, resting_reversal = reverse_episode(video, NUM_SUBTASKS), reverse_episode(resting, NUM_SUBTASKS)
    assert reversal is not None and resting_reversal is not None
    assert len(reversal) == len(resting_reversal) and (reversal.progress == resting_reversal.progress).all()
    assert frame_changes(reversal)[1] > STILL_CHANGE_THRESHOLD


@pytest.mark.parametrize(
    "changed",
    [{"metadata": {}}, {"progress": None}, {"progress": np.linspace(0, 0.6, 24).astype(np.float32)}],
    ids=["no opposite", "unknown progress", "little progress"],
)
def test_episode_without_progress_to_undo_is_not_reversed(changed):
    assert reverse_episode(replace(reversible_episode(), **changed), NUM_SUBTASKS) is None


@given(
    arrays(np.float32, st.integers(2, 30), elements=st.floats(0, 1, width=32)),
    st.lists(st.floats(0.5, 1.5), min_size=30, max_size=30),
)
@example(np.ones(17, np.float32), [1.0] * 8 + [1.5] * 6 + [1.0] * 16)
def test_undo_progress_is_monotonic_in_the_undone_fraction(fraction, change):
    fraction[0], fraction[-1] = 1, 0
    progress = undo_progress(fraction, np.array(change, np.float32)[: len(fraction)])
    assert ((progress >= 0) & (progress <= 1)).all() and progress[-1] == 1
    start = int(np.argmax(fraction < 0.98))
    assert (np.diff(progress[:start]) >= -1e-6).all(), "image change only adds up during the approach"
    sorted_progress = progress[start:][np.argsort(-fraction[start:])]
    assert (np.diff(sorted_progress) >= -1e-6).all(), "after the approach, progress follows the undone fraction"


def test_reversals_are_appended():
    recorded = [
        reversible_episode(0),
        reversible_episode(1, success=False, progress=np.zeros(24, np.float32)),
        reversible_episode(2),
    ]
    extended = add_time_reversals(recorded)
    assert extended[:3] == recorded
    assert [video.name for video in extended[3:]] == [f"{recorded[i].name} backwards" for i in (0, 2)]


def test_data_without_opposites_are_rejected():
    with pytest.raises(DataError, match="no episode has the column opposites; embodied-rm collect records it"):
        add_time_reversals([episode(0), episode(1)])

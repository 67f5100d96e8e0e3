"""What every labeling scheme keeps to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from annotated import demonstrations, given_up
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.errors import DataError
from embodied_rm.labels.hops import hop, true_progress
from embodied_rm.labels.schemes import LABEL_SCHEMES

shown = st.lists(demonstrations(), min_size=1, max_size=3)
UNAIDED = [name for name, scheme in LABEL_SCHEMES.items() if scheme.supervision != "prediction"]
"""Those that need no judge beside the episodes."""


@pytest.mark.parametrize("name", UNAIDED)
@given(episodes=shown)
def test_what_is_said_of_a_success_never_falls_and_goes_from_0_to_1(name, episodes):
    for one, targets in zip(episodes, LABEL_SCHEMES[name].label(episodes), strict=True):
        said = targets.progress[targets.progress_known]
        assert (np.diff(said) >= -1e-6).all() and said.min() >= 0 and said.max() <= 1
        assert said[-1] == pytest.approx(1) and targets.progress_known[-1]
        assert said[0] == (pytest.approx(1 / len(one)) if name == "rewind" else 0)
        assert hop(said[0], said[-1]) == pytest.approx(1), "from the first frame to the last all of the way is made"
        assert targets.success[-1] and targets.success_known[-1]


@pytest.mark.parametrize("name", ["hops", "pairs", "preferences", "ordinal"])
@given(one=demonstrations())
def test_a_video_played_backwards_is_labeled_backwards(name, one):
    """Of the schemes that are told the true progress; the others know only what leads forward."""
    truth = true_progress(one)
    views = {view: frames[::-1] for view, frames in one.views.items()}
    back = replace(one, views=views, subtasks=(), progress=truth[::-1], success=False)
    ((there,), (said,)) = (LABEL_SCHEMES[name].label([video]) for video in (one, back))
    assert np.array_equal(said.progress, there.progress[::-1])
    assert said.success_known[-1] and not said.success[-1]


@pytest.mark.parametrize("name", ["hops", "pairs", "preferences", "ordinal"])
@given(one=demonstrations(), data=st.data())
def test_a_video_that_is_cut_short_is_labeled_as_far_as_it_goes(name, one, data):
    end = data.draw(st.integers(1, len(one) - 1))
    views = {view: frames[:end] for view, frames in one.views.items()}
    cut = replace(one, views=views, subtasks=(), progress=true_progress(one)[:end], success=False)
    ((whole,), (said,)) = (LABEL_SCHEMES[name].label([video]) for video in (one, cut))
    assert np.array_equal(said.progress, whole.progress[:end])


@given(one=demonstrations())
def test_the_recorded_outcome_decides_at_the_last_frame(one):
    """What has only just come true when a failure ends is no success."""
    (failed,) = LABEL_SCHEMES["hops"].label([replace(one, progress=true_progress(one), success=False)])
    assert failed.progress[-1] == 1 and failed.success_known[-1] and not failed.success[-1]


@pytest.mark.parametrize("name", UNAIDED)
@given(episode=demonstrations())
def test_a_failure_is_done_nowhere_that_is_taught(name, episode):
    try:
        _, failed = LABEL_SCHEMES[name].label([episode, given_up(episode)])
    except DataError as refused:
        assert "progress is unknown" in str(refused)
        return
    assert not (failed.success & failed.success_known).any() and failed.success_known[-1]

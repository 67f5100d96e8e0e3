"""Properties of all labeling schemes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from annotated_episodes import abandoned, demonstrations
from annotated_episodes import episode as make_episode
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.errors import DataError
from embodied_rm.labels.hops import hop
from embodied_rm.labels.schemes import LABEL_SCHEMES
from embodied_rm.labels.true_progress import true_progress

demonstration_lists = st.lists(demonstrations(), min_size=1, max_size=3)
WITHOUT_PREDICTIONS = [
    name for name, scheme in LABEL_SCHEMES.items() if scheme.supervision not in ("prediction", "comparison")
]
"""Schemes that need no predictions of another model."""


@pytest.mark.parametrize("name", WITHOUT_PREDICTIONS)
@given(episodes=demonstration_lists)
def test_known_progress_of_a_success_rises_from_0_to_1(name, episodes):
    for episode, targets in zip(episodes, LABEL_SCHEMES[name].label(episodes), strict=True):
        known = targets.progress[targets.progress_known]
        assert (np.diff(known) >= -1e-6).all() and known.min() >= 0 and known.max() <= 1
        assert known[-1] == pytest.approx(1) and targets.progress_known[-1]
        assert known[0] == (pytest.approx(1 / len(episode)) if name == "rewind" else 0)
        assert hop(known[0], known[-1]) == pytest.approx(1), "the hop from the first frame to the last is complete"
        assert targets.success[-1] and targets.success_known[-1]


@pytest.mark.parametrize("name", ["hops", "pairwise", "preferences", "ordinal"])
@given(episode=demonstrations())
def test_reversed_video_has_reversed_labels(name, episode):
    """Holds for schemes that use the true progress."""
    truth = true_progress(episode)
    views = {view: frames[::-1] for view, frames in episode.views.items()}
    reversal = replace(episode, views=views, subtasks=(), progress=truth[::-1], success=False)
    ((forward,), (backward,)) = (LABEL_SCHEMES[name].label([video]) for video in (episode, reversal))
    assert np.array_equal(backward.progress, forward.progress[::-1])
    assert backward.success_known[-1] and not backward.success[-1]


@pytest.mark.parametrize("name", ["hops", "pairwise", "preferences", "ordinal"])
@given(episode=demonstrations(), data=st.data())
def test_truncated_video_has_truncated_labels(name, episode, data):
    end = data.draw(st.integers(1, len(episode) - 1))
    views = {view: frames[:end] for view, frames in episode.views.items()}
    prefix = replace(episode, views=views, subtasks=(), progress=true_progress(episode)[:end], success=False)
    ((full,), (truncated,)) = (LABEL_SCHEMES[name].label([video]) for video in (episode, prefix))
    assert np.array_equal(truncated.progress, full.progress[:end])


@given(episode=demonstrations())
def test_recorded_outcome_decides_at_the_last_frame(episode):
    """Progress of 1 in the last frame of a failure is no success."""
    (failed,) = LABEL_SCHEMES["hops"].label([replace(episode, progress=true_progress(episode), success=False)])
    assert failed.progress[-1] == 1 and failed.success_known[-1] and not failed.success[-1]


@pytest.mark.parametrize("name", WITHOUT_PREDICTIONS)
@given(episode=demonstrations())
def test_failure_has_no_positive_success_target(name, episode):
    try:
        _, failed = LABEL_SCHEMES[name].label([episode, abandoned(episode)])
    except DataError as error:
        assert "progress is unknown" in str(error)
        return
    assert not (failed.success & failed.success_known).any() and failed.success_known[-1]


@pytest.mark.parametrize("scheme", ["hops", "pairwise", "preferences", "ordinal", "stages", "visual_change"])
def test_episode_without_annotation_counts_for_its_outcome_only(scheme):
    annotated = make_episode([0, 5, 10], 10)
    for outcome in (True, False, None):
        unknown = replace(annotated, name="unknown", progress=None, subtasks=(), success=outcome)
        known, targets = LABEL_SCHEMES[scheme].label([annotated, unknown])
        assert np.array_equal(known.progress, LABEL_SCHEMES[scheme].label([annotated])[0].progress)
        assert not targets.progress_known.any() and (targets.subtask == -1).all()
        assert targets.success_known[-1] == (outcome is not None) and targets.success[-1] == bool(outcome)

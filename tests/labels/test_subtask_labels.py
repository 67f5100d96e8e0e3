"""SARM labels: duration fractions, unknown progress in unfinished subtasks, required data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from annotated_episodes import NAMES, abandoned, demonstrations, episode
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.errors import DataError
from embodied_rm.labels.hops import hop
from embodied_rm.labels.schemes import LABEL_SCHEMES
from embodied_rm.labels.subtask_labels import label, mean_duration_fractions
from embodied_rm.types import Subtask


def test_progress_of_two_demonstrations():
    """The first subtask takes a quarter of one demonstration and three quarters of the other: half on average."""
    short, long = episode([0, 2, 8], 8), episode([0, 6, 8], 8)
    assert mean_duration_fractions([short, long], NAMES[:2]).tolist() == [0.5, 0.5]
    first, second = label([short, long])
    assert np.allclose(first.progress, [0, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1])
    assert np.allclose(second.progress, [0, 1 / 12, 2 / 12, 3 / 12, 4 / 12, 5 / 12, 0.5, 1])
    assert first.subtask.tolist() == [0] * 2 + [1] * 6


@given(st.lists(demonstrations(), min_size=1, max_size=4))
def test_duration_fractions_sum_to_one(episodes):
    fractions = mean_duration_fractions(episodes, NAMES)
    assert fractions is not None and (fractions >= 0).all() and fractions.sum() == pytest.approx(1)


@given(st.lists(demonstrations(), min_size=1, max_size=4))
def test_progress_of_a_success_rises_from_0_to_1_and_reversal_negates_hops(episodes):
    for success, targets in zip(episodes, label(episodes), strict=True):
        assert (np.diff(targets.progress) >= -1e-7).all() and targets.progress_known.all()
        assert targets.progress[-1] == 1 and targets.success[-1] and targets.success_known[-1]
        assert targets.progress[success.subtasks[0].start] == 0 or len(success) - 1 == success.subtasks[0].start
        forward = hop(targets.progress[:-1], targets.progress[1:])
        backward = hop(targets.progress[::-1][:-1], targets.progress[::-1][1:])[::-1]
        assert (forward >= 0).all() and (backward <= 0).all() and ((forward > 0) == (backward < 0)).all()


@given(demonstrations())
def test_progress_in_an_unfinished_subtask_is_unknown(demonstration):
    success, failure = label([demonstration, abandoned(demonstration)])
    last = demonstration.subtasks[-1]
    assert failure.progress_known[: last.start].all() and not failure.progress_known[last.start :].any()
    assert (failure.progress[: last.start] == success.progress[: last.start]).all()
    assert not failure.success.any() and failure.success_known.all()


def test_undone_subtask_has_no_progress_target():
    runs = [("reach", 0, 3), ("grasp", 3, 5), ("reach", 5, 8), ("grasp", 8, 10)]
    subtasks = tuple(Subtask(name=name, start=a, end=b) for name, a, b in runs)
    undone = replace(episode([0, 5, 10], 10), subtasks=subtasks)
    targets = label([episode([0, 5, 10], 10), undone])[1]
    assert targets.progress_known.tolist() == [True] * 3 + [False] * 2 + [True] * 5
    assert targets.progress[5] == 0 and targets.progress[-1] == 1


@pytest.mark.parametrize("scheme", ["stages", "visual_change"])
def test_missing_annotation_is_rejected(scheme):
    unannotated = replace(episode([0, 5], 10), subtasks=())
    with pytest.raises(DataError, match=f"'{scheme}' needs annotated subtasks.*no demonstration.*embodied-rm annotate"):
        LABEL_SCHEMES[scheme].label([unannotated])
    with pytest.raises(DataError, match="column success is false in all 1 episodes"):
        LABEL_SCHEMES[scheme].label([abandoned(episode([0, 5], 10))])


@pytest.mark.parametrize("scheme", ["stages", "visual_change"])
def test_unknown_subtasks_are_rejected(scheme):
    usual, odd = episode([0, 5, 10], 10), episode([0, 10], 10, names=("fly",), name="odd")
    with pytest.raises(DataError, match=r"odd: none of its subtasks \(fly\) belongs to its task \(reach, grasp\)"):
        LABEL_SCHEMES[scheme].label([usual, odd])
    assert len(LABEL_SCHEMES[scheme].label([usual, abandoned(odd)])) == 2, "a failure may have any subtask"

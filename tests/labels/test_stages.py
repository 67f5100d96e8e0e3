"""Laws of SARM's labels: shares of steps, what is known inside an unfinished step, what the data must have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from annotated import NAMES, demonstrations, episode, given_up
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.errors import DataError
from embodied_rm.labels.hops import hop
from embodied_rm.labels.schemes import LABEL_SCHEMES
from embodied_rm.labels.subtask_labels import label, mean_duration_fractions
from embodied_rm.types import Subtask


def test_known_answer_of_two_demonstrations():
    """The first step takes a quarter of one and three quarters of the other: half, on average."""
    short, long = episode([0, 2, 8], 8), episode([0, 6, 8], 8)
    assert mean_duration_fractions([short, long], NAMES[:2]).tolist() == [0.5, 0.5]
    first, second = label([short, long])
    assert np.allclose(first.progress, [0, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1])
    assert np.allclose(second.progress, [0, 1 / 12, 2 / 12, 3 / 12, 4 / 12, 5 / 12, 0.5, 1])
    assert first.subtask.tolist() == [0] * 2 + [1] * 6


@given(st.lists(demonstrations(), min_size=1, max_size=4))
def test_shares_of_steps_sum_to_one(shown):
    shares = mean_duration_fractions(shown, NAMES)
    assert shares is not None and (shares >= 0).all() and shares.sum() == pytest.approx(1)


@given(st.lists(demonstrations(), min_size=1, max_size=4))
def test_a_success_never_falls_and_goes_from_0_to_1_and_time_reversal_inverts_its_hops(shown):
    for one, targets in zip(shown, label(shown), strict=True):
        assert (np.diff(targets.progress) >= -1e-7).all() and targets.progress_known.all()
        assert targets.progress[-1] == 1 and targets.success[-1] and targets.success_known[-1]
        assert targets.progress[one.steps[0].start] == 0 or len(one) - 1 == one.steps[0].start
        there = hop(targets.progress[:-1], targets.progress[1:])
        back = hop(targets.progress[::-1][:-1], targets.progress[::-1][1:])[::-1]
        assert (there >= 0).all() and (back <= 0).all() and ((there > 0) == (back < 0)).all()


@given(demonstrations())
def test_how_far_an_unfinished_step_had_come_is_unknown_and_the_failure_is_nowhere_done(shown):
    success, failure = label([shown, given_up(shown)])
    last = shown.steps[-1]
    assert failure.progress_known[: last.start].all() and not failure.progress_known[last.start :].any()
    assert (failure.progress[: last.start] == success.progress[: last.start]).all()
    assert not failure.success.any() and failure.success_known.all()


def test_a_step_that_was_undone_teaches_nothing():
    runs = [("reach", 0, 3), ("grasp", 3, 5), ("reach", 5, 8), ("grasp", 8, 10)]
    steps = tuple(Subtask(name=name, start=a, end=b) for name, a, b in runs)
    undone = replace(episode([0, 5, 10], 10), subtasks=steps)
    targets = label([episode([0, 5, 10], 10), undone])[1]
    assert targets.progress_known.tolist() == [True] * 3 + [False] * 2 + [True] * 5
    assert targets.progress[5] == 0 and targets.progress[-1] == 1


@pytest.mark.parametrize("scheme", ["stages", "visual_change"])
def test_what_the_data_lack_is_named_with_the_command_that_records_it(scheme):
    bare = replace(episode([0, 5], 10), subtasks=())
    with pytest.raises(DataError, match=f"trial: the column steps is missing.*'{scheme}'.*embodied-rm collect"):
        LABEL_SCHEMES[scheme].label([bare])
    with pytest.raises(DataError, match="column success is false in all 1 episodes"):
        LABEL_SCHEMES[scheme].label([given_up(episode([0, 5], 10))])


@pytest.mark.parametrize("scheme", ["stages", "visual_change"])
def test_steps_that_are_none_of_the_task_are_named(scheme):
    usual, odd = episode([0, 5, 10], 10), episode([0, 10], 10, names=("fly",), name="odd")
    with pytest.raises(DataError, match=r"odd: none of its steps \(fly\) is one of its task \(reach, grasp\)"):
        LABEL_SCHEMES[scheme].label([usual, odd])
    assert len(LABEL_SCHEMES[scheme].label([usual, given_up(odd)])) == 2, "a failure may do anything"

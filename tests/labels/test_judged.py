"""What another judge said is taught as it said it: where it was asked and answered, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sprites import episode

from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.distilled import label
from embodied_rm.types import Episode, RewardOutput


def said(video: Episode, *, success: float = np.nan, valid: object = True) -> Episode:
    length = len(video)
    values = np.linspace(0, 1, length, dtype=np.float32)
    judged = RewardOutput(
        progress=values,
        valid=np.broadcast_to(np.asarray(valid, bool), length).copy(),
        subtask=np.full(length, -1, np.int64),
        success=np.where(values >= 0.9, success, 1 - success).astype(np.float32),
        uncertainty=np.zeros(length, np.float32),
    )
    return replace(video, predictions=judged)


def test_progress_is_what_was_said_where_it_was_scored() -> None:
    asked = np.arange(12) % 3 == 0
    (target,) = label([said(episode(0, length=12), success=0.9, valid=asked)])
    assert np.array_equal(target.progress_known, asked)
    assert target.progress == pytest.approx(np.linspace(0, 1, 12))
    assert (target.subtask == -1).all()


def test_done_is_what_the_judge_says_where_it_was_asked_and_says_so() -> None:
    (target,) = label([said(episode(0, length=12), success=0.9, valid=np.arange(12) != 11)])
    assert target.success[:11].tolist() == [False] * 10 + [True]
    assert target.success_known.tolist() == [False, *[True] * 10, False], "the first frame opens an episode, unjudged"


@pytest.mark.parametrize("success", [True, False])
def test_a_judge_that_does_not_say_when_a_task_is_done_leaves_that_to_how_it_ended(success: bool) -> None:
    (target,) = label([said(episode(0, length=20, success=success))])
    assert target.success_known.tolist() == [False] * 19 + [True] and target.success[-1] == success


def test_what_nobody_says_is_refused_by_name() -> None:
    with pytest.raises(DataError, match="sprite_000_carry: labels 'judged' are what a judge said"):
        label([episode(0)])
    with pytest.raises(DataError, match="nobody would say what done is"):
        label([replace(said(episode(0)), success=None)])
    with pytest.raises(UserError, match="judged has 5 rows, the views have 12 frames"):
        replace(episode(0, length=12), predictions=said(episode(0, length=5)).predictions)

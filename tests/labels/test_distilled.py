"""Targets from predictions of another reward model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sprites import episode

from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.distilled import label
from embodied_rm.types import Episode, RewardOutput


def with_predictions(video: Episode, *, success: float = np.nan, valid: object = True) -> Episode:
    length = len(video)
    values = np.linspace(0, 1, length, dtype=np.float32)
    predictions = RewardOutput(
        progress=values,
        valid=np.broadcast_to(np.asarray(valid, bool), length).copy(),
        subtask=np.full(length, -1, np.int64),
        success=np.where(values >= 0.9, success, 1 - success).astype(np.float32),
        uncertainty=np.zeros(length, np.float32),
    )
    return replace(video, predictions=predictions)


def test_progress_is_the_prediction_at_scored_frames() -> None:
    scored = np.arange(12) % 3 == 0
    (target,) = label([with_predictions(episode(0, length=12), success=0.9, valid=scored)])
    assert np.array_equal(target.progress_known, scored)
    assert target.progress == pytest.approx(np.linspace(0, 1, 12))
    assert (target.subtask == -1).all()


def test_success_is_the_prediction_at_scored_frames() -> None:
    (target,) = label([with_predictions(episode(0, length=12), success=0.9, valid=np.arange(12) != 11)])
    assert target.success[:11].tolist() == [False] * 10 + [True]
    assert target.success_known.tolist() == [False, *[True] * 10, False], (
        "the first frame is the reference, not a prediction"
    )


@pytest.mark.parametrize("success", [True, False])
def test_without_predicted_success_the_outcome_is_the_target(success: bool) -> None:
    (target,) = label([with_predictions(episode(0, length=20, success=success))])
    assert target.success_known.tolist() == [False] * 19 + [True] and target.success[-1] == success


def test_missing_predictions_are_rejected() -> None:
    with pytest.raises(DataError, match="sprite_000_carry: label scheme 'distilled' needs scores"):
        label([episode(0)])
    with pytest.raises(DataError, match="nothing would define success"):
        label([replace(with_predictions(episode(0)), success=None)])
    with pytest.raises(UserError, match="predictions has 5 rows, the views have 12 frames"):
        replace(episode(0, length=12), predictions=with_predictions(episode(0, length=5)).predictions)

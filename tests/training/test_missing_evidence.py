"""Covered halves and hidden views: what is black, for how long, and which successes remain targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embodied_rm.labels.labeled_episode import label
from embodied_rm.training.augment import AugmentConfig
from embodied_rm.training.batches import LabeledBatch, LabeledBatchSampler
from embodied_rm.training.missing_evidence import HIDDEN_VIEW_SUCCESS_FRACTION, cover_halves, discount_success
from embodied_rm.types import BoolArray, Episode

WIDTH = 6


@pytest.fixture
def batch() -> LabeledBatch:
    """A batch of white successes of two goals."""
    progress = np.linspace(0, 1, 12, dtype=np.float32)
    white = {view: np.full((12, 4, WIDTH, 3), 255, np.uint8) for view in ("front", "side")}
    episodes = [
        Episode(
            name=text, views=white, instruction=text, fps=10.0, success=True, progress=progress,
            metadata={"task": "move", "goal": text},
        )
        for text in ("go", "stop")
    ]  # fmt: skip
    return LabeledBatchSampler(label(episodes), ("front", "side")).sample(300, 5, np.random.default_rng(0))


def cover(batch: LabeledBatch, probability: float) -> LabeledBatch:
    return cover_halves(batch, AugmentConfig(half_cover_prob=probability), torch.Generator().manual_seed(0))


def black_columns(batch: LabeledBatch) -> BoolArray:
    """Return the black columns bool [B, M, W]; a column is black in all views, at full height, or white."""
    black = batch.frames == 0
    assert (black == black[:, :, :1, :1, :, :1]).all()
    return black[:, :, 0, 0, :, 0]


def test_one_half_is_black_to_the_end(batch: LabeledBatch) -> None:
    black = black_columns(cover(batch, 0.5))
    halves = black.reshape(300, -1, 2, WIDTH // 2)
    assert (halves == halves[..., :1]).all() and not halves.all(axis=2).any(), "one half, or none"
    assert not black[:, -1].any(), "goal images stay whole"
    covered = halves.any(axis=(2, 3))[:, :-1]
    assert 0.4 < covered[:, 1].mean() < 0.6, "frame 1 is the last one"
    order = np.argsort(batch.frame_indices, axis=1)
    assert (np.diff(np.take_along_axis(covered, order, axis=1).astype(int), axis=1) >= 0).all()
    sides = halves[:, 1, :, 0]
    assert sides.any(axis=0).all() and (covered[:, 0] < covered[:, 1]).any()


def test_nothing_is_a_success_under_a_cover(batch: LabeledBatch) -> None:
    covered_batch = cover(batch, 0.5)
    covered = black_columns(covered_batch).any(axis=2)[:, :-1]
    before, after = batch.targets["hops"], covered_batch.targets["hops"]
    np.testing.assert_array_equal(after.success, before.success & ~covered)
    assert before.success[covered].any() and after.success.any()
    np.testing.assert_array_equal(after.progress, before.progress)
    assert batch.negatives_known.any()
    np.testing.assert_array_equal(covered_batch.negatives_known, batch.negatives_known & ~covered[:, 1])


def test_probability_zero_draws_no_random_numbers(batch: LabeledBatch) -> None:
    generator = torch.Generator().manual_seed(0)
    assert cover_halves(batch, AugmentConfig(), generator) is batch
    assert torch.equal(torch.rand(3, generator=generator), torch.rand(3, generator=torch.Generator().manual_seed(0)))


def test_successes_are_rare_targets_only_where_a_view_is_hidden(batch: LabeledBatch) -> None:
    visible = batch.present.copy()
    visible[:100, :, 0] = False
    visible[100:, -1, 0] = False  # of the goal image only
    before, after = batch.targets["hops"], discount_success(batch, visible, np.random.default_rng(0)).targets["hops"]
    np.testing.assert_array_equal(after.success_known[100:], before.success_known[100:])
    np.testing.assert_array_equal(after.success_known[~before.success], before.success_known[~before.success])
    np.testing.assert_array_equal(after.success, before.success)
    known = after.success_known[:100][before.success[:100] & before.success_known[:100]]
    assert known.mean() == pytest.approx(HIDDEN_VIEW_SUCCESS_FRACTION, abs=0.1)

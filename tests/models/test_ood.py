"""The out-of-distribution score: what is usual stays below 1, what is not exceeds it, whatever the units."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.ood import (
    LIMIT_QUANTILE,
    MAX_UNCERTAINTY_FACTOR,
    MIN_SAMPLES,
    EmbeddingDistribution,
    inflate_uncertainty,
    ood_score,
)
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.types import Episode, RewardOutput, Views

WIDTH = 6


def drawn(count: int, seed: int) -> torch.Tensor:
    """Correlated states around a mean far from 0; the last dimension never differs."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(9))
    states = torch.randn(count, WIDTH, generator=generator) @ mix + 5
    states[:, -1] = 3.0
    return states


FITTED = EmbeddingDistribution.fit(drawn(4000, 0), drawn(4000, 1))


def test_of_new_states_of_the_same_kind_one_in_a_hundred_exceeds_1():
    assert (FITTED(drawn(20000, 2)) <= 1).float().mean() == pytest.approx(LIMIT_QUANTILE, abs=0.005)


def test_it_grows_along_every_line_away_from_the_mean_and_is_0_there():
    away = torch.randn(50, WIDTH, generator=torch.Generator().manual_seed(3))
    scores = torch.stack([FITTED(FITTED.mean + reach * away) for reach in (0.0, 1.0, 2.0, 8.0)])
    torch.testing.assert_close(scores[0], torch.zeros(50))
    assert (scores.diff(dim=0) > 0).all()
    torch.testing.assert_close(scores[3], 4 * scores[2])


def test_a_step_counts_by_how_far_states_differ_in_its_direction():
    _, axes = torch.linalg.eigh(torch.cov(drawn(4000, 0).T))
    steps = torch.cat([2 * axes[:, -1:].T, 2 * axes[:, 1:2].T])
    along, across = FITTED(FITTED.mean + steps)
    assert along < 0.5 * across


def test_the_units_of_the_states_do_not_matter():
    rescaled = EmbeddingDistribution.fit(10 * drawn(4000, 0) - 7, 10 * drawn(4000, 1) - 7)
    torch.testing.assert_close(rescaled(10 * drawn(9, 5) - 7), FITTED(drawn(9, 5)), rtol=1e-3, atol=1e-3)


def test_who_knows_no_distribution_tells_nan():
    assert ood_score(None, drawn(3, 0)).isnan().all()
    judged = RewardOutput(
        progress=np.zeros(2, np.float32),
        valid=np.ones(2, bool),
        subtask=np.zeros(2, np.int64),
        success=np.zeros(2, np.float32),
        uncertainty=np.zeros(2, np.float32),
    )
    assert np.isnan(judged.ood).all() and judged.ood.shape == (2,)


def test_doubt_grows_only_where_states_are_unusual_never_shrinks_and_is_never_more_than_everything():
    scores = np.float32([0.0, 0.3, 0.6, 0.9, 1.2, 2.4, 60.0, np.nan])
    spread = np.full(8, 0.01, np.float32)
    grown = inflate_uncertainty(spread, scores, typical_score=0.6)
    np.testing.assert_allclose(
        grown, 0.01 * np.float32([1, 1, 1, 2.25, 4, MAX_UNCERTAINTY_FACTOR, MAX_UNCERTAINTY_FACTOR, 1]), rtol=1e-5
    )
    assert (inflate_uncertainty(100 * spread, scores, typical_score=0.6) == 1).all()
    np.testing.assert_array_equal(inflate_uncertainty(spread, scores, typical_score=None), spread)


def test_a_calibrated_net_tells_it_of_the_frames_it_scores_and_judges_as_before():
    torch.manual_seed(0)
    net = ProgressNet(NetConfig(views=("front",), encoder=small_encoder_config("stride_tower_tiny", (32, 32)))).eval()
    pixels = np.random.default_rng(0).integers(0, 256, (2 * MIN_SAMPLES, 32, 32, 3), np.uint8)
    video = Episode(name="noise", views={"front": pixels}, instruction="lift it", fps=10.0)
    states = net.embed_episode(video)
    after = net.with_calibration(EmbeddingDistribution.fit(states[::2], states[1::2]), 0.8, 1.5)
    assert net.heads.distribution is None and after.config.median_ood == 0.8 and after.capabilities.interval_scale == 1.5
    views = Views(names=("front",), frames=pixels[:3, None], present=np.array([[True], [True], [False]]))
    told = [one.step(one.reset(views, ["lift it"] * 3), views)[0] for one in (net, after)]
    for name in ("progress", "valid", "subtask", "success"):
        np.testing.assert_array_equal(getattr(told[0], name), getattr(told[1], name))
    assert np.isnan(told[0].ood).all() and np.isnan(told[1].ood[2])
    np.testing.assert_allclose(
        told[1].uncertainty, inflate_uncertainty(told[0].uncertainty, told[1].ood, 0.8), rtol=1e-6
    )
    np.testing.assert_allclose(told[1].ood[:2], ood_score(after.heads.distribution, states[:2]), rtol=1e-5)

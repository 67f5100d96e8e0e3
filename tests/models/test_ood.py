"""The OOD score: its limit, its geometry, and its effect on the uncertainty."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.heads import Heads
from embodied_rm.models.ood import (
    LIMIT_QUANTILE,
    MAX_UNCERTAINTY_FACTOR,
    MIN_SAMPLES,
    EmbeddingDistribution,
    inflate_uncertainty,
)
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.types import Episode, RewardOutput, Views

WIDTH = 6


def sample_embeddings(count: int, seed: int) -> torch.Tensor:
    """Correlated embeddings with a mean far from 0; the last dimension is constant."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(9))
    embeddings = torch.randn(count, WIDTH, generator=generator) @ mix + 5
    embeddings[:, -1] = 3.0
    return embeddings


DISTRIBUTION = EmbeddingDistribution.fit(sample_embeddings(4000, 0), sample_embeddings(4000, 1))


def test_one_in_a_hundred_similar_embeddings_exceeds_1():
    assert (DISTRIBUTION(sample_embeddings(20000, 2)) <= 1).float().mean() == pytest.approx(LIMIT_QUANTILE, abs=0.005)


def test_score_is_0_at_the_mean_and_grows_with_distance():
    directions = torch.randn(50, WIDTH, generator=torch.Generator().manual_seed(3))
    scores = torch.stack([DISTRIBUTION(DISTRIBUTION.mean + scale * directions) for scale in (0.0, 1.0, 2.0, 8.0)])
    torch.testing.assert_close(scores[0], torch.zeros(50))
    assert (scores.diff(dim=0) > 0).all()
    torch.testing.assert_close(scores[3], 4 * scores[2])


def test_score_is_scaled_by_the_variance_of_each_direction():
    _, axes = torch.linalg.eigh(torch.cov(sample_embeddings(4000, 0).T))
    offsets = torch.cat([2 * axes[:, -1:].T, 2 * axes[:, 1:2].T])
    along, across = DISTRIBUTION(DISTRIBUTION.mean + offsets)
    assert along < 0.5 * across


def test_score_is_invariant_to_units():
    rescaled = EmbeddingDistribution.fit(10 * sample_embeddings(4000, 0) - 7, 10 * sample_embeddings(4000, 1) - 7)
    torch.testing.assert_close(
        rescaled(10 * sample_embeddings(9, 5) - 7), DISTRIBUTION(sample_embeddings(9, 5)), rtol=1e-3, atol=1e-3
    )


def test_score_is_nan_without_a_distribution():
    heads = Heads(DISTRIBUTION.mean.numel(), max_subtasks=1)
    embeddings = sample_embeddings(3, 0)
    assert heads(torch.stack([embeddings, embeddings]), embeddings).ood.isnan().all()
    output = RewardOutput(
        progress=np.zeros(2, np.float32),
        valid=np.ones(2, bool),
        subtask=np.zeros(2, np.int64),
        success=np.zeros(2, np.float32),
        uncertainty=np.zeros(2, np.float32),
    )
    assert np.isnan(output.ood).all() and output.ood.shape == (2,)


def test_uncertainty_grows_for_unusual_embeddings_up_to_1():
    scores = np.float32([0.0, 0.3, 0.6, 0.9, 1.2, 2.4, 60.0, np.nan])
    uncertainty = np.full(8, 0.01, np.float32)
    inflated = inflate_uncertainty(uncertainty, scores, typical_score=0.6)
    np.testing.assert_allclose(
        inflated, 0.01 * np.float32([1, 1, 1, 2.25, 4, MAX_UNCERTAINTY_FACTOR, MAX_UNCERTAINTY_FACTOR, 1]), rtol=1e-5
    )
    assert (inflate_uncertainty(100 * uncertainty, scores, typical_score=0.6) == 1).all()
    np.testing.assert_array_equal(inflate_uncertainty(uncertainty, scores, typical_score=None), uncertainty)


def test_calibration_adds_ood_scores_and_keeps_predictions():
    torch.manual_seed(0)
    net = ProgressNet(NetConfig(views=("front",), encoder=small_encoder_config("stride_tower_tiny", (32, 32)))).eval()
    pixels = np.random.default_rng(0).integers(0, 256, (2 * MIN_SAMPLES, 32, 32, 3), np.uint8)
    video = Episode(name="noise", views={"front": pixels}, instruction="lift it", fps=10.0)
    embeddings = net.embed_episode(video)
    calibrated = net.with_calibration(EmbeddingDistribution.fit(embeddings[::2], embeddings[1::2]), 0.8, 1.5)
    assert (
        net.heads.distribution is None
        and calibrated.config.median_ood == 0.8
        and calibrated.capabilities.interval_scale == 1.5
    )
    views = Views(names=("front",), frames=pixels[:3, None], present=np.array([[True], [True], [False]]))
    outputs = [one.step(one.reset(views, ["lift it"] * 3), views)[0] for one in (net, calibrated)]
    for name in ("progress", "valid", "subtask", "success"):
        np.testing.assert_array_equal(getattr(outputs[0], name), getattr(outputs[1], name))
    assert np.isnan(outputs[0].ood).all() and np.isnan(outputs[1].ood[2])
    np.testing.assert_allclose(
        outputs[1].uncertainty, inflate_uncertainty(outputs[0].uncertainty, outputs[1].ood, 0.8), rtol=1e-6
    )
    np.testing.assert_allclose(outputs[1].ood[:2], calibrated.heads.distribution(embeddings[:2]), rtol=1e-5)

"""Labelers that run a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sprites import episodes

from embodied_rm.errors import UserError
from embodied_rm.labels import change_points
from embodied_rm.labels.labeled_episode import label
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.make_encoder import make_encoder
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.scoring import score_episodes
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.training import TrainConfig, train
from embodied_rm.training.labelers import extract_features, feature_labeler, preference_labeler

EPISODES = episodes(3)


@pytest.fixture
def reward_model(tmp_path: Path) -> tuple[Path, ProgressNet]:
    """Checkpoint folder and net with random weights, for one of the two views."""
    torch.manual_seed(0)
    net = ProgressNet(NetConfig(views=("top",), encoder=small_encoder_config("stride_tower_tiny", (32, 32)))).eval()
    save_progress_net(tmp_path / "model", net, {})
    return tmp_path / "model", net


def test_change_points_use_features_of_a_frozen_tower() -> None:
    torch.manual_seed(0)
    encoder = make_encoder("stride_tower_tiny", (32, 32), trainable=False).eval()
    features = [extract_features(encoder, episode) for episode in EPISODES]
    assert all(f.shape == (len(episode), 2 * 64) for f, episode in zip(features, EPISODES, strict=True))
    expected = change_points.label(EPISODES, features)
    torch.manual_seed(0)
    labeled = label(EPISODES, ["change_points"], {"change_points": feature_labeler("stride_tower_tiny", (32, 32))})
    for episode, targets in zip(labeled, expected, strict=True):
        assert np.array_equal(episode.targets["change_points"].progress, targets.progress)


def test_preferences_use_the_progress_of_the_reward_model(reward_model: tuple[Path, ProgressNet]) -> None:
    folder, net = reward_model
    labeled = label(EPISODES, ["preferences", "hops"], {"preferences": preference_labeler(folder)})
    top_views = [replace(e, views={"top": e.views["top"]}) for e in EPISODES]
    for actual, curve, episode in zip(labeled, score_episodes(net, top_views), EPISODES, strict=True):
        assert np.allclose(actual.targets["preferences"].progress, curve.progress, atol=1e-6)
        known = actual.targets["preferences"].success_known
        assert known.tolist() == [False] * (len(known) - 1) + [True], "success comes from the outcome only"
        assert np.array_equal(actual.targets["hops"].progress, episode.progress), "other schemes are unchanged"


def test_training_uses_both_labelers_and_rejects_unused_ones(
    reward_model: tuple[Path, ProgressNet], tmp_path: Path
) -> None:
    config = TrainConfig(
        label_schemes=("change_points", "preferences"),
        change_point_encoder="stride_tower_tiny",
        preference_model=reward_model[0],
        image_size=(32, 32),
        steps=2,
        batch_size=2,
        frames_per_episode=4,
    )
    configs = [config, replace(config, change_point_encoder=None), replace(config, preference_model=None)]
    nets = [train(EPISODES, c, RunFolder.open(tmp_path / str(k)), NullReporter()) for k, c in enumerate(configs)]
    both, *without = (torch.cat([p.flatten() for p in net.parameters()]) for net in nets)
    assert torch.isfinite(both).all() and not any(torch.equal(both, weights) for weights in without)
    for key, scheme in (("change_point_encoder", "change_points"), ("preference_model", "preferences")):
        with pytest.raises(UserError, match=rf"{key} needs label_schemes=\[{scheme}\], got label_schemes=\[hops\]"):
            TrainConfig(**{key: "somewhere"})

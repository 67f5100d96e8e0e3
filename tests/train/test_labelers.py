"""Labels that ask a model: of what they are told, the schemes make what they would make of it themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sprites import episodes

from embodied_rm.errors import UserError
from embodied_rm.labels import change_point_subtasks
from embodied_rm.labels.labeled_episode import label
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.pretrained import make_encoder
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.scoring import score_episodes
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.train import TrainConfig, train
from embodied_rm.train.labelers import extract_features, feature_labeler, preference_labeler

SHOWN = episodes(3)


@pytest.fixture
def judge(tmp_path: Path) -> tuple[Path, ProgressNet]:
    """A reward model of random weights, for one of the two views."""
    torch.manual_seed(0)
    net = ProgressNet(NetConfig(views=("top",), encoder=small_encoder_config("stride_tower_tiny", (32, 32)))).eval()
    save_progress_net(tmp_path / "judge", net, {})
    return tmp_path / "judge", net


def test_steps_are_found_in_what_a_frozen_tower_sees() -> None:
    torch.manual_seed(0)
    encoder = make_encoder("stride_tower_tiny", (32, 32), trainable=False).eval()
    seen = [extract_features(encoder, episode) for episode in SHOWN]
    assert all(one.shape == (len(episode), 2 * 64) for one, episode in zip(seen, SHOWN, strict=True))
    expected = change_point_subtasks.label(SHOWN, seen)
    torch.manual_seed(0)
    told = label(SHOWN, ["discovered"], {"discovered": feature_labeler("stride_tower_tiny", (32, 32))})
    pairs = list(zip(told, expected, strict=True))
    assert all(np.array_equal(one.targets["discovered"].progress, other.progress) for one, other in pairs)


def test_what_is_preferred_is_what_the_judge_sees_make_progress(judge: tuple[Path, ProgressNet]) -> None:
    folder, net = judge
    told = label(SHOWN, ["preferences", "hops"], {"preferences": preference_labeler(folder)})
    only = [type(e)(**{**vars(e), "views": {"top": e.views["top"]}}) for e in SHOWN]
    for one, curve, episode in zip(told, score_episodes(net, only), SHOWN, strict=True):
        assert np.allclose(one.targets["preferences"].progress, curve.progress, atol=1e-6)
        known = one.targets["preferences"].success_known
        assert known.tolist() == [False] * (len(known) - 1) + [True], "a judge does not say when it is done"
        assert np.array_equal(one.targets["hops"].progress, episode.progress), "the other schemes are as they were"


def test_training_takes_both_by_name_and_refuses_one_that_nobody_asks(
    judge: tuple[Path, ProgressNet], tmp_path: Path
) -> None:
    config = TrainConfig(
        label_schemes=("discovered", "preferences"),
        change_point_tower="stride_tower_tiny",
        preference_model=judge[0],
        image_size=(32, 32),
        steps=2,
        batch_size=2,
        frames_per_episode=4,
    )
    every = [config, *(TrainConfig(**{**vars(config), key: None}) for key in ("label_tower", "label_judge"))]
    nets = [train(SHOWN, one, RunFolder.open(tmp_path / str(k)), NullReporter()) for k, one in enumerate(every)]
    both, *without = (torch.cat([p.flatten() for p in net.parameters()]) for net in nets)
    assert torch.isfinite(both).all() and not any(torch.equal(both, other) for other in without)
    for key, scheme in (("label_tower", "discovered"), ("label_judge", "preferences")):
        with pytest.raises(UserError, match=rf"{key} is for labels=\[{scheme}\], got labels=\[hops\]"):
            TrainConfig(**{key: "somewhere"})

"""Adaptation to one demonstration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sprites import episode, episodes

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.distributed import SINGLE_PROCESS
from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.true_progress import true_progress
from embodied_rm.metrics import voc
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.ood import EmbeddingDistribution
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.scoring import score_episodes
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.training import CHECKPOINT_DIR, HELD_OUT_FILE, HeldOut, HeldOutConfig, TrainConfig, fit, make_net
from embodied_rm.training.adaptation import AdaptConfig, Replay, adapt
from embodied_rm.training.held_out import HeldOutCurve
from embodied_rm.training.run_training import warm_start
from embodied_rm.types import Episode, Subtask

CONFIG = AdaptConfig(image_size=(32, 32), max_seconds=None, steps=60, batch_size=4, frames_per_episode=6)


def annotated(number: int, **fields) -> Episode:
    """Return a success whose progress is known from its subtasks only."""
    return replace(episode(number, length=40), **{"progress": None, "success": None, **fields})


def test_one_demonstration_is_enough_to_order_another(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    net = adapt([annotated(0)], CONFIG, run, NullReporter())
    unseen = annotated(2)
    prediction = score_episodes(net, [unseen])[0]
    assert voc(prediction.progress) > 0.9
    assert np.abs(prediction.progress - true_progress(unseen)).mean() < 0.2
    assert load_progress_net(run.path / CHECKPOINT_DIR).config == net.config


def make_init_net() -> ProgressNet:
    return make_net(episodes(2), TrainConfig(image_size=(32, 32))).eval()


def test_views_and_subtasks_are_added_without_changing_the_init_net(tmp_path):
    init_net = make_init_net()
    weights = {name: tensor.clone() for name, tensor in init_net.state_dict().items()}
    demonstration = annotated(0)
    subtasks = tuple(Subtask(name=f"s{i}", start=4 * i, end=4 * i + 4) for i in range(9))
    views = {"wrist": demonstration.views["top"], "front": demonstration.views["front"]}
    changed = replace(demonstration, views=views, subtasks=subtasks)
    net = adapt([changed], replace(CONFIG, steps=2), RunFolder.open(tmp_path / "run"), NullReporter(), init_net)
    assert net.config.views == ("front", "top", "wrist") and net.config.max_subtasks == 9
    assert net.config.encoder == init_net.config.encoder
    assert all(torch.equal(tensor, weights[name]) for name, tensor in init_net.state_dict().items())
    assert score_episodes(net, [changed])[0].valid.all()


def test_warm_start_drops_the_calibration():
    init_net = make_init_net()
    states = torch.randn(2, 200, init_net.config.width)
    calibrated = init_net.with_calibration(EmbeddingDistribution.fit(*states), 0.8, 2.0, 0.7)
    net = warm_start(calibrated, init_net)
    assert calibrated.capabilities.success_threshold == 0.7 and net.capabilities.success_threshold is None
    assert net.capabilities.interval_scale is None and net.config.median_ood is None and net.heads.distribution is None


def test_warm_start_keeps_predictions_for_known_views():
    init_net = make_init_net()
    extended = make_net(
        [replace(episode(1), views={"wrist": episode(1).views["top"]})], TrainConfig(image_size=(32, 32))
    )
    data = episodes(3)
    outputs = zip(
        score_episodes(init_net, data), score_episodes(warm_start(init_net, extended).eval(), data), strict=True
    )
    for expected, actual in outputs:
        np.testing.assert_allclose(actual.progress, expected.progress, atol=1e-6)
        np.testing.assert_array_equal(actual.subtask, expected.subtask)


def test_failed_or_unannotated_demonstration_is_rejected(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    with pytest.raises(UserError, match="must succeed"):
        adapt([episode(1, success=False)], CONFIG, run, NullReporter())
    with pytest.raises(DataError, match="neither annotated subtasks nor progress"):
        adapt([annotated(0, subtasks=())], CONFIG, run, NullReporter())


def test_replay_reduces_forgetting(tmp_path):
    """The model learns reversed videos of its task, with and without replay of the original ones."""
    old = [episode(i) for i in range(8)]
    init_net = make_net(old, TrainConfig(image_size=(32, 32)))
    fit(init_net, old, replace(CONFIG, steps=60), RunFolder.open(tmp_path / "init_net"), NullReporter())
    demonstration = annotated(3, instruction="put the square back", metadata={"task": "return"})
    new = replace(demonstration, views={name: frames[::-1].copy() for name, frames in demonstration.views.items()})
    unseen, errors = episode(20), {}
    for name, replayed in (("without", []), ("replay", old)):
        net = adapt([new], CONFIG, RunFolder.open(tmp_path / name), NullReporter(), init_net, Replay(episodes=replayed))
        errors[name] = np.abs(score_episodes(net, [unseen])[0].progress - unseen.progress).mean()
    assert errors["replay"] < errors["without"]


def test_image_encoder_may_stay_frozen(tmp_path):
    init_net, config = make_init_net(), replace(CONFIG, steps=2, train_encoder=False, train_text_encoder=True)
    reworded = replace(annotated(0), instruction="carry it")
    net = adapt([annotated(0), reworded], config, RunFolder.open(tmp_path / "run"), NullReporter(), init_net)
    weights = init_net.state_dict()
    changed = {name for name, tensor in net.state_dict().items() if not tensor.equal(weights[name])}
    encoder_names = {name for name in weights if name.startswith(("encoder.clip.visual", "view_token"))}
    assert encoder_names and not encoder_names & changed and any(name.startswith("heads") for name in changed)
    assert read_manifest(tmp_path / "run" / CHECKPOINT_DIR)["facts"]["episodes"] == 1


def test_the_weights_that_score_held_out_attempts_best_are_kept(tmp_path):
    attempts = [annotated(2), annotated(4), replace(episode(1, success=False), progress=None, subtasks=())]
    held_out = HeldOut(episodes=attempts, config=HeldOutConfig(eval_percent=25))
    run = RunFolder.open(tmp_path / "run")
    net = adapt([annotated(0)], replace(CONFIG, steps=40), run, NullReporter(), held_out=held_out)
    summary = run.read_json(HELD_OUT_FILE)
    rows = summary["curve"]
    assert [row["step"] for row in rows] == [0, 10, 20, 30, 40]
    best = min(rows, key=lambda row: row["error"])
    assert best["step"] == summary["best_step"] > 0
    curve = HeldOutCurve(net, held_out, NullReporter())
    measured = curve.evaluate(40, 1.0, SINGLE_PROCESS)
    assert {name: measured[name] for name in ("error", "voc", "mae")} == pytest.approx(
        {name: best[name] for name in ("error", "voc", "mae")}
    )
    saved = load_progress_net(run.path / CHECKPOINT_DIR).state_dict()
    assert all(torch.equal(saved[name], weights) for name, weights in net.state_dict().items())


@pytest.mark.parametrize("replayed", [False, True])
def test_a_held_out_attempt_must_not_be_learned_from(replayed, tmp_path):
    held_out = HeldOut(episodes=[episode(2, length=40)], config=HeldOutConfig(eval_percent=0))
    demonstrations = [annotated(0)] if replayed else [annotated(2)]
    replay = Replay(episodes=[annotated(2)] if replayed else [])
    with pytest.raises(DataError, match="held out, but the same episode is trained on"):
        adapt(demonstrations, CONFIG, RunFolder.open(tmp_path), NullReporter(), replay=replay, held_out=held_out)

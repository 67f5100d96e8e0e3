"""Training on a toy environment: accuracy, resuming, precision and rejected input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from killing_reporter import KilledError, KillingReporter
from objectives import objective
from sprites import episode, episodes

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.errors import CheckpointError, DataError, UserError
from embodied_rm.evaluate import evaluate
from embodied_rm.labels.labeled_episode import label
from embodied_rm.labels.schemes import select_schemes
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.scoring import score_episodes
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.training import CHECKPOINT_DIR, TRAIN_STATE_DIR, HeldOut, TrainConfig, make_net, prepare_batch, train
from embodied_rm.training.augment import AugmentConfig
from embodied_rm.training.batches import LabeledBatchSampler
from embodied_rm.training.forward import training_forward
from embodied_rm.training.loop import learning_rate_factor
from embodied_rm.training.train_state import TrainState

QUICK = TrainConfig(
    image_size=(32, 32),
    steps=6,
    batch_size=4,
    frames_per_episode=4,
    augment=AugmentConfig(view_dropout_prob=0.3),
    checkpoint_seconds=1e-9,
)
TRAINED = TrainConfig(
    image_size=(32, 32), steps=150, batch_size=8, frames_per_episode=6, augment=AugmentConfig(color_jitter=0.05)
)


@pytest.fixture(scope="module")
def trained_net(tmp_path_factory) -> ProgressNet:
    torch.set_num_threads(1)
    data = episodes(30) + episodes(30, start=100, task="return")
    return train(data, TRAINED, RunFolder.open(tmp_path_factory.mktemp("run") / "r"), NullReporter())


def test_order_error_success_and_subtask_of_unseen_episodes(trained_net):
    unseen = episodes(12, start=500) + episodes(12, start=600, task="return")
    result = evaluate(trained_net, unseen, NullReporter())
    model, baseline = result["reward_model"], result["baselines"]["time"]
    assert model["voc"] > 0.95 and model["voc_reversed"] < -0.9, model
    assert model["mae_failures"] < baseline["mae_failures"] / 2, (model, baseline)
    assert model["success_auc"] > 0.95 and model["subtask_accuracy"] > 0.8, model


def test_instruction_determines_progress(trained_net):
    data = [episode(700 + i, task="carry") for i in range(6)]
    swapped = [replace(e, instruction=episode(i, task="return").instruction) for i, e in enumerate(data)]
    own, other = score_episodes(trained_net, data), score_episodes(trained_net, swapped)
    assert np.mean([curve.progress[-1] for curve in own]) > np.mean([curve.progress[-1] for curve in other]) + 0.2
    assert np.mean([curve.success[-1] for curve in own]) > 2 * np.mean([curve.success[-1] for curve in other])


def test_goal_image_is_accepted(trained_net):
    unseen, goal = episode(802), episode(804)
    assert unseen.progress is not None
    prediction = score_episodes(trained_net, [unseen], [goal])[0]
    assert np.abs(prediction.progress - unseen.progress).mean() < 0.15


def test_checkpoint_equals_the_trained_net(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    net = train(episodes(4), QUICK, run, NullReporter())
    assert not net.training and not (run.path / TRAIN_STATE_DIR).exists()
    loaded = load_progress_net(run.path / CHECKPOINT_DIR)
    assert loaded.config == net.config and loaded.config.views == ("front", "top") and loaded.config.max_subtasks == 2
    assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in net.state_dict().items())


def test_training_continues_from_a_net(trained_net, tmp_path):
    weights = {name: tensor.clone() for name, tensor in trained_net.state_dict().items()}
    small_steps = replace(QUICK, steps=2, learning_rate=1e-6, image_size=(48, 48))
    run = RunFolder.open(tmp_path / "run")
    after = train(
        episodes(4), small_steps, run, NullReporter(), init_net=trained_net, init_metadata={"tasks": ["earlier"]}
    ).state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in trained_net.state_dict().items())
    largest_change = max(float((after[name] - tensor).abs().max()) for name, tensor in weights.items())
    assert 0 < largest_change < 1e-5
    assert load_progress_net(run.path / CHECKPOINT_DIR).config.encoder == trained_net.config.encoder
    assert "earlier" in read_manifest(run.path / CHECKPOINT_DIR)["facts"]["tasks"]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_resumed_run_equals_an_uninterrupted_one(tmp_path, precision):
    data, config = episodes(4), replace(QUICK, precision=precision)
    uninterrupted = train(data, config, RunFolder.open(tmp_path / "uninterrupted"), NullReporter())
    with pytest.raises(KilledError):
        train(data, config, RunFolder.open(tmp_path / "interrupted"), KillingReporter(50))
    run = RunFolder.open(tmp_path / "interrupted", resume=True)
    assert (run.path / TRAIN_STATE_DIR).exists() and not (run.path / CHECKPOINT_DIR).exists()
    with pytest.raises(CheckpointError, match="another configuration: learning_rate"):
        train(data, replace(config, learning_rate=1e-4), run, NullReporter())
    with pytest.raises(CheckpointError, match="another configuration: data"):
        train(episodes(4, start=50), config, run, NullReporter())
    with pytest.raises(CheckpointError, match="another configuration: init_from"):
        train(data, config, run, NullReporter(), init_net=uninterrupted)
    resumed = train(data, config, run, NullReporter())
    for name, tensor in uninterrupted.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_bfloat16_training_is_accurate_and_saves_float32(trained_net, tmp_path):
    """Further training at half precision keeps the error on unseen episodes."""
    run = RunFolder.open(tmp_path / "run")
    config = replace(TRAINED, steps=25, precision="bfloat16")
    train(episodes(30) + episodes(30, start=100, task="return"), config, run, NullReporter(), init_net=trained_net)
    net = load_progress_net(run.path / CHECKPOINT_DIR)
    assert {tensor.dtype for tensor in net.state_dict().values()} == {torch.float32}
    unseen = episodes(12, start=500) + episodes(12, start=600, task="return")
    half, full = (evaluate(model, unseen, NullReporter())["reward_model"] for model in (net, trained_net))
    assert half["voc"] > 0.95 and half["success_auc"] > 0.95, half
    assert abs(half["mae"] - full["mae"]) < 0.02, (half, full)


def first_losses(config: TrainConfig, num_steps: int) -> list[float]:
    """Return the losses of the first steps of a new net."""
    data = episodes(8) + episodes(4, start=100, task="return")
    net = make_net(data, config).train()
    sampler = LabeledBatchSampler(label(data), net.config.views)
    train_state = TrainState(net, weight_decay=config.weight_decay)
    values = []
    for step in range(num_steps):
        batch, images = prepare_batch(net.encoder, sampler, config, step)
        outputs = training_forward(net, batch, images, config.precision)
        assert all(value.dtype == torch.float32 for value in vars(outputs).values())
        loss = objective(outputs, batch, select_schemes(config.label_schemes), np.random.default_rng(step))
        values.append(float(loss.detach()))
        train_state.update([loss], 1e-3)
        assert all(p.grad.dtype == p.dtype == torch.float32 for p in net.parameters() if p.grad is not None)
    return values


def test_bfloat16_losses_are_close_to_float32_and_different():
    full, half = (np.array(first_losses(replace(QUICK, precision=p), 20)) for p in ("float32", "bfloat16"))
    assert np.allclose(half, full, rtol=0.05), np.abs(half / full - 1).max()
    assert (half != full).all(), "bfloat16 is not used"


def test_frozen_tower_trained_in_bfloat16_predicts_like_its_checkpoint(tmp_path):
    config = replace(QUICK, train_encoder=False, steps=2, precision="bfloat16")
    run = RunFolder.open(tmp_path / "run")
    net, unseen = train(episodes(4), config, run, NullReporter()), episodes(2, start=500)
    loaded = load_progress_net(run.path / CHECKPOINT_DIR)
    for expected, actual in zip(score_episodes(net, unseen), score_episodes(loaded, unseen), strict=True):
        assert np.array_equal(actual.progress, expected.progress)


def test_nan_loss_ends_training_without_a_checkpoint(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    with pytest.raises(UserError, match=r"the loss became nan at step \d+; learning_rate"):
        train(episodes(4), replace(QUICK, steps=50, learning_rate=1e30, checkpoint_seconds=60), run, NullReporter())
    assert not (run.path / CHECKPOINT_DIR).exists()


def test_seed_determines_the_net(tmp_path):
    nets = [
        train(episodes(4), replace(QUICK, steps=2, seed=seed), RunFolder.open(tmp_path / str(i)), NullReporter())
        for i, seed in enumerate((0, 0, 1))
    ]
    first, same_seed, other_seed = (net.heads.state_dict()["_hop.mlp.0.weight"] for net in nets)
    assert torch.equal(first, same_seed) and not torch.equal(first, other_seed)


def test_time_budget_determines_the_schedule(tmp_path):
    percents: list[int] = []

    class RecordingReporter(NullReporter):
        def track(self, items: Iterable, description: str, total: int | None = None) -> Iterator:
            for percent in items:
                percents.append(percent)
                yield percent

    config = replace(QUICK, max_seconds=1.5, steps=1, checkpoint_seconds=60)
    train(episodes(4), config, RunFolder.open(tmp_path / "run"), RecordingReporter())
    assert percents == list(range(1, 101)) or percents[-1] >= 100


def test_learning_rate_warms_up_and_decays_to_0():
    rates = np.array([learning_rate_factor(fraction) for fraction in np.linspace(0, 1, 101)])
    assert rates.max() <= 1 and rates[0] > 0 and rates[-1] == pytest.approx(0, abs=1e-9)
    assert (np.diff(rates[:5]) > 0).all() and (np.diff(rates[6:]) < 0).all()


@pytest.mark.parametrize(
    ("data", "held_out", "message"),
    [
        ([], [], "no episodes to train on"),
        ([episode(1)], [replace(episode(1), name="x")], "x: held out, but the same episode is trained on"),
        ([replace(episode(1), progress=None, subtasks=())], [], "neither annotated subtasks nor progress"),
        ([replace(episode(1), name="x", instruction="go; then stop")], [], "x: its instruction .* has 2 subgoals"),
    ],
)
def test_unusable_data_are_rejected(tmp_path, data, held_out, message):
    unseen = HeldOut(episodes=held_out) if held_out else None
    with pytest.raises(DataError, match=message):
        train(data, QUICK, RunFolder.open(tmp_path / "run"), NullReporter(), unseen)


@pytest.mark.parametrize(
    "fields",
    [{"steps": 0}, {"batch_size": 0}, {"frames_per_episode": 2}, {"learning_rate": -1.0}, {"max_seconds": 0.0}],
)
def test_invalid_configuration_names_the_key(fields):
    with pytest.raises(UserError, match=next(iter(fields))):
        TrainConfig(**fields)

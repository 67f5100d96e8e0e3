"""Training: a toy environment is learned in seconds, an interrupted run ends as one that was not, leaks are refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
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
from embodied_rm.train import (
    CHECKPOINT_DIR,
    TRAIN_STATE_DIR,
    TrainConfig,
    learning_rate_factor,
    make_net,
    prepare_batch,
    train,
)
from embodied_rm.train.augment import AugmentConfig
from embodied_rm.train.batches import LabeledBatchSampler
from embodied_rm.train.forward import training_forward
from embodied_rm.train.objective import objective
from embodied_rm.train.train_state import TrainState

QUICK = TrainConfig(
    image_size=(32, 32),
    steps=6,
    batch_size=4,
    frames_per_episode=4,
    augment=AugmentConfig(view_dropout_prob=0.3),
    checkpoint_seconds=1e-9,
)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def learned(tmp_path_factory) -> ProgressNet:
    torch.set_num_threads(1)
    config = TrainConfig(
        image_size=(32, 32), steps=150, batch_size=8, frames_per_episode=6, augment=AugmentConfig(color_jitter=0.05)
    )
    data = episodes(30) + episodes(30, start=100, task="return")
    return train(data, config, RunFolder.open(tmp_path_factory.mktemp("run") / "r"), NullReporter())


def test_it_learns_order_error_success_and_step_of_unseen_episodes(learned):
    unseen = episodes(12, start=500) + episodes(12, start=600, task="return")
    result = evaluate(learned, unseen, NullReporter())
    model, clock = result["reward_model"], result["baselines"]["time"]
    assert model["voc"] > 0.95 and model["voc_reversed"] < -0.9, model
    assert model["mae_failures"] < clock["mae_failures"] / 2, (model, clock)
    assert model["success_auc"] > 0.95 and model["subtask_accuracy"] > 0.8, model


def test_the_instruction_decides_what_counts_as_progress(learned):
    shown = [episode(700 + i, task="carry") for i in range(6)]
    swapped = [replace(e, instruction=episode(i, task="return").instruction) for i, e in enumerate(shown)]
    right, wrong = score_episodes(learned, shown), score_episodes(learned, swapped)
    assert np.mean([curve.progress[-1] for curve in right]) > np.mean([curve.progress[-1] for curve in wrong]) + 0.2
    assert np.mean([curve.success[-1] for curve in right]) > 2 * np.mean([curve.success[-1] for curve in wrong])


def test_a_goal_image_may_be_given(learned):
    tried, goal = episode(802), episode(804)
    assert tried.progress is not None
    judged = score_episodes(learned, [tried], [goal])[0]
    assert np.abs(judged.progress - tried.progress).mean() < 0.15


def test_what_is_saved_is_what_was_trained(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    net = train(episodes(4), QUICK, run, NullReporter())
    assert not net.training and not (run.path / TRAIN_STATE_DIR).exists()
    again = load_progress_net(run.path / CHECKPOINT_DIR)
    assert again.config == net.config and again.config.views == ("front", "top") and again.config.max_subtasks == 2
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in net.state_dict().items())


def test_a_model_learns_on_from_what_it_knows(learned, tmp_path):
    before = {name: tensor.clone() for name, tensor in learned.state_dict().items()}
    hardly = replace(QUICK, steps=2, learning_rate=1e-6, image_size=(48, 48))
    run = RunFolder.open(tmp_path / "run")
    after = train(
        episodes(4), hardly, run, NullReporter(), init_net=learned, init_metadata={"tasks": ["before"]}
    ).state_dict()
    assert all(torch.equal(tensor, before[name]) for name, tensor in learned.state_dict().items())
    moved = max(float((after[name] - tensor).abs().max()) for name, tensor in before.items())
    assert 0 < moved < 1e-5
    assert load_progress_net(run.path / CHECKPOINT_DIR).config.encoder == learned.config.encoder
    assert "before" in read_manifest(run.path / CHECKPOINT_DIR)["facts"]["tasks"]


class KilledError(Exception):
    """The power fails."""


class KillingReporter(NullReporter):
    """Ends the process after half of the training."""

    def track(self, items: Iterable, description: str, total: int | None = None) -> Iterator:
        for percent in items:
            yield percent
            if percent >= 50:
                raise KilledError


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_interrupted_run_ends_as_one_that_was_not(tmp_path, precision):
    data, config = episodes(4), replace(QUICK, precision=precision)
    straight = train(data, config, RunFolder.open(tmp_path / "straight"), NullReporter())
    with pytest.raises(KilledError):
        train(data, config, RunFolder.open(tmp_path / "broken"), KillingReporter())
    run = RunFolder.open(tmp_path / "broken", resume=True)
    assert (run.path / TRAIN_STATE_DIR).exists() and not (run.path / CHECKPOINT_DIR).exists()
    with pytest.raises(CheckpointError, match="another configuration: learning_rate"):
        train(data, replace(config, learning_rate=1e-4), run, NullReporter())
    resumed = train(data, config, run, NullReporter())
    for name, tensor in straight.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_half_precision_learns_the_same_and_its_checkpoint_is_in_full(learned, tmp_path):
    """Of the same toy environment, by the same batches: progress of unseen episodes nearly as in full precision."""
    config = TrainConfig(
        image_size=(32, 32),
        steps=150,
        batch_size=8,
        frames_per_episode=6,
        augment=AugmentConfig(color_jitter=0.05),
        precision="bfloat16",
    )
    run = RunFolder.open(tmp_path / "run")
    train(episodes(30) + episodes(30, start=100, task="return"), config, run, NullReporter())
    net = load_progress_net(run.path / CHECKPOINT_DIR)
    assert {tensor.dtype for tensor in net.state_dict().values()} == {torch.float32}
    unseen = episodes(12, start=500) + episodes(12, start=600, task="return")
    half, full = (evaluate(model, unseen, NullReporter())["reward_model"] for model in (net, learned))
    assert half["voc"] > 0.95 and half["success_auc"] > 0.95, half
    assert abs(half["mae"] - full["mae"]) < 0.02, (half, full)


def losses_of(config: TrainConfig, updates: int) -> list[float]:
    """What a fresh net loses in each of its first updates."""
    known = episodes(8) + episodes(4, start=100, task="return")
    net = make_net(known, config).train()
    batches, learner = (
        LabeledBatchSampler(label(known), net.config.views),
        TrainState(net, weight_decay=config.weight_decay),
    )
    told = []
    for update in range(updates):
        batch, images = prepare_batch(net.encoder, batches, config, update)
        outputs = training_forward(net, batch, images, config.precision)
        assert all(value.dtype == torch.float32 for value in vars(outputs).values())
        loss = objective(outputs, batch, select_schemes(config.label_schemes), np.random.default_rng(update))
        told.append(float(loss.detach()))
        learner.update([loss], 1e-3)
        assert all(p.grad.dtype == p.dtype == torch.float32 for p in net.parameters() if p.grad is not None)
    return told


def test_half_precision_is_half_precision_and_follows_the_losses_of_full():
    full, half = (np.array(losses_of(replace(QUICK, precision=p), 20)) for p in ("float32", "bfloat16"))
    assert np.allclose(half, full, rtol=0.05), np.abs(half / full - 1).max()
    assert (half != full).all(), "nothing was rounded"


def test_what_a_frozen_tower_read_in_half_precision_is_judged_by_in_full(tmp_path):
    config = replace(QUICK, train_tower=False, steps=2, precision="bfloat16")
    run = RunFolder.open(tmp_path / "run")
    net, shown = train(episodes(4), config, run, NullReporter()), episodes(2, start=500)
    for mine, stored in zip(
        score_episodes(net, shown), score_episodes(load_progress_net(run.path / CHECKPOINT_DIR), shown), strict=True
    ):
        assert np.array_equal(mine.progress, stored.progress)


def test_a_loss_that_is_not_a_number_ends_training_and_saves_nothing_broken(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    with pytest.raises(UserError, match=r"the loss became nan at update \d+; learning_rate"):
        train(episodes(4), replace(QUICK, steps=50, learning_rate=1e30, checkpoint_seconds=60), run, NullReporter())
    assert not (run.path / CHECKPOINT_DIR).exists()


def test_the_same_seed_gives_the_same_net_and_another_seed_another(tmp_path):
    nets = [
        train(episodes(4), replace(QUICK, steps=2, seed=seed), RunFolder.open(tmp_path / str(i)), NullReporter())
        for i, seed in enumerate((0, 0, 1))
    ]
    first, same, other = (net.heads.state_dict()["_hop.mlp.0.weight"] for net in nets)
    assert torch.equal(first, same) and not torch.equal(first, other)


def test_a_time_budget_is_kept_and_the_schedule_follows_it(tmp_path):
    seen: list[int] = []

    class Watch(NullReporter):
        def track(self, items: Iterable, description: str, total: int | None = None) -> Iterator:
            for percent in items:
                seen.append(percent)
                yield percent

    config = replace(QUICK, max_seconds=1.5, steps=1, checkpoint_seconds=60)
    train(episodes(4), config, RunFolder.open(tmp_path / "run"), Watch())
    assert seen == list(range(1, 101)) or seen[-1] >= 100


def test_the_learning_rate_rises_then_falls_to_nothing():
    shares = np.linspace(0, 1, 101)
    rates = np.array([learning_rate_factor(share) for share in shares])
    assert rates.max() <= 1 and rates[0] > 0 and rates[-1] == pytest.approx(0, abs=1e-9)
    assert (np.diff(rates[:5]) > 0).all() and (np.diff(rates[6:]) < 0).all()


@pytest.mark.parametrize(
    ("data", "held_out", "message"),
    [
        ([], [], "no episodes to train on"),
        ([episode(1)], [replace(episode(1), name="x")], "x: held out, but the same episode is trained on"),
        ([replace(episode(1), progress=None, subtasks=())], [], "neither annotated steps nor progress"),
        ([replace(episode(1), name="x", instruction="go; then stop")], [], "x: its instruction .* names 2 wishes"),
    ],
)
def test_data_that_cannot_be_used_is_refused(tmp_path, data, held_out, message):
    with pytest.raises(DataError, match=message):
        train(data, QUICK, RunFolder.open(tmp_path / "run"), NullReporter(), held_out)


@pytest.mark.parametrize(
    "wrong", [{"updates": 0}, {"batch": 0}, {"moments": 2}, {"learning_rate": -1.0}, {"max_seconds": 0.0}]
)
def test_a_configuration_that_makes_no_sense_names_the_key(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        TrainConfig(**wrong)

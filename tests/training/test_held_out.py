"""A training keeps the weights that score its held-out episodes best, stops by its patience, and resumes exactly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from curves import read_scalars
from killing_reporter import KilledError, KillingReporter
from sprites import episode, episodes

from embodied_rm.distributed import SINGLE_PROCESS
from embodied_rm.errors import CheckpointError, DataError, UserError
from embodied_rm.labels.labeled_episode import label_ground_truth
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.encoders import resize_episode
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.reward_model import make_plain_output
from embodied_rm.models.scoring import score_episodes
from embodied_rm.report.training_report import training_report
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.training import (
    CHECKPOINT_DIR,
    HELD_OUT_FILE,
    Execution,
    HeldOut,
    HeldOutConfig,
    TrainConfig,
    make_net,
    train,
)
from embodied_rm.training.held_out import HeldOutCurve, held_out_metrics
from embodied_rm.types import Episode, RewardOutput

QUICK = TrainConfig(image_size=(32, 32), steps=6, batch_size=4, frames_per_episode=4, checkpoint_seconds=1e-9)
DATA, UNSEEN = episodes(4), episodes(3, start=500)


def held_out(eval_percent: float = 30, patience: int = 0) -> HeldOut:
    return HeldOut(episodes=UNSEEN, config=HeldOutConfig(eval_percent=eval_percent, patience=patience))


def train_quick(folder: Path, unseen: HeldOut | None, **config: object) -> ProgressNet:
    return train(DATA, replace(QUICK, **config), RunFolder.open(folder), NullReporter(), unseen)


def predict(trial: Episode, progress: np.ndarray, success: np.ndarray) -> RewardOutput:
    values = (np.asarray(column, np.float32) for column in (progress, success))
    curve, done = (np.broadcast_to(column, len(trial)) for column in values)
    return make_plain_output(curve, np.ones(len(trial), bool), done)


def test_error_is_0_for_the_truth_and_combines_order_scale_and_outcome() -> None:
    trials = [episode(1), episode(3, success=False)]
    labels = label_ground_truth(trials)
    truth = [predict(e, e.progress, e.progress >= 1) for e in trials]
    assert held_out_metrics(truth, labels) == pytest.approx({"error": 0, "voc": 1, "mae": 0, "success_auc": 1})
    constant = held_out_metrics([predict(e, 0.5, 0.5) for e in trials], labels)
    assert constant["voc"] == 0 and constant["success_auc"] == 0.5, "it orders and separates nothing"
    assert constant["error"] == pytest.approx((0.5 + constant["mae"] + 0.5) / 3)
    wrong = held_out_metrics([predict(e, 1 - e.progress, e.progress < 1) for e in trials], labels)
    assert wrong["voc"] == pytest.approx(-1) and wrong["success_auc"] == 0 and wrong["error"] > constant["error"]


def test_only_what_the_annotations_define_is_measured() -> None:
    outcomes = [replace(episode(1), progress=None, subtasks=()), replace(episode(2), progress=None, subtasks=())]
    outcomes[1] = replace(outcomes[1], success=False)
    labels = label_ground_truth(outcomes)
    predictions = [predict(e, np.linspace(0, 1, len(e)), i == 0) for i, e in enumerate(outcomes)]
    assert set(held_out_metrics(predictions, labels)) == {"error", "voc", "success_auc"}
    success = episode(1)
    metrics = held_out_metrics([predict(success, success.progress, 0)], label_ground_truth([success]))
    assert set(metrics) == {"error", "voc", "mae"}, "one outcome has no AUC"


def test_the_checkpoint_has_the_best_weights_of_the_curve(tmp_path: Path) -> None:
    net = train_quick(tmp_path, held_out())
    summary = RunFolder(tmp_path).read_json(HELD_OUT_FILE)
    assert [row["step"] for row in summary["curve"]] == [0, 2, 4, 6], "at the start, every 30 %, and at the end"
    best = min(summary["curve"], key=lambda row: row["error"])
    assert summary["best_step"] == best["step"] and not summary["stopped_early"]
    labels = label_ground_truth(UNSEEN)
    for kept in (net, load_progress_net(tmp_path / CHECKPOINT_DIR)):
        metrics = held_out_metrics(score_episodes(kept, UNSEEN), labels)
        assert metrics == {name: best[name] for name in metrics}
    report = training_report(summary, "a", "b")
    assert [row[-1] for row in report.tables[0].rows].count("yes") == 1 and f"step {best['step']}," in report.subtitle


def test_evaluations_do_not_change_the_training(tmp_path: Path) -> None:
    for name, percent in (("with", 30), ("without", 0)):
        train_quick(tmp_path / name, held_out(percent))
    with_curve, without = (read_scalars(tmp_path / name) for name in ("with", "without"))
    assert with_curve["loss/total"] == without["loss/total"] and "held_out/error" not in without
    assert [step for step, _ in with_curve["held_out/error"]] == [0, 2, 4, 6]
    assert not (tmp_path / "without" / HELD_OUT_FILE).exists()


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best weights are those of the start, which the interrupted run must have kept."""
    measure = HeldOutCurve._measure
    monkeypatch.setattr(HeldOutCurve, "_measure", lambda self: {**measure(self), "error": 0.1 * (1 + len(self.rows))})
    uninterrupted = train_quick(tmp_path / "uninterrupted", held_out())
    with pytest.raises(KilledError):
        train(DATA, QUICK, RunFolder.open(tmp_path / "interrupted"), KillingReporter(66), held_out())
    run = RunFolder.open(tmp_path / "interrupted", resume=True)
    others = HeldOut(episodes=episodes(3, start=600), config=HeldOutConfig(eval_percent=30))
    for changed, key in ((others, "held_out"), (held_out(patience=3), "patience"), (held_out(20), "eval_percent")):
        with pytest.raises(CheckpointError, match=f"another configuration: {key}"):
            train(DATA, QUICK, run, NullReporter(), changed)
    resumed = train(DATA, QUICK, run, NullReporter(), held_out())
    curves = [RunFolder(tmp_path / name).read_json(HELD_OUT_FILE) for name in ("uninterrupted", "interrupted")]
    assert curves[0] == curves[1] and curves[0]["best_step"] == 0 and len(curves[0]["curve"]) == 4
    assert all(torch.equal(tensor, resumed.state_dict()[name]) for name, tensor in uninterrupted.state_dict().items())


def test_patience_stops_after_so_many_evaluations_without_a_new_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors, weights = [0.5, 0.3, 0.3, 0.4, 0.1, 0.1], []

    def measure(curve: HeldOutCurve) -> dict[str, float]:
        weights.append({name: tensor.clone() for name, tensor in curve._net.state_dict().items()})
        return {"error": errors[len(curve.rows)]}

    monkeypatch.setattr(HeldOutCurve, "_measure", measure)
    net = train_quick(tmp_path, held_out(20, patience=2), steps=10)
    summary = RunFolder(tmp_path).read_json(HELD_OUT_FILE)
    assert [row["step"] for row in summary["curve"]] == [0, 2, 4, 6], "an equal error is no new best"
    assert summary["best_step"] == 2 and summary["stopped_early"]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in net.state_dict().items())


def test_frozen_weights_are_not_copied() -> None:
    net = make_net(DATA, replace(QUICK, train_encoder=False))
    curve = HeldOutCurve(net, held_out(), NullReporter())
    curve.evaluate(0, 0.0, SINGLE_PROCESS)
    frozen = {name for name, parameter in net.named_parameters() if not parameter.requires_grad}
    assert frozen and curve.best_weights.keys() == net.state_dict().keys() - frozen
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with torch.no_grad():
        net.view_embedding.zero_()
    curve.load_best_weights()
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


def test_the_best_weights_contain_low_rank_updates(tmp_path: Path) -> None:
    fields = {"encoder": "test_vit", "image_size": (160, 160), "train_encoder": False, "lora_rank": 2, "steps": 2}
    net = train_quick(tmp_path, held_out(100), **fields)
    best = min(row["error"] for row in RunFolder(tmp_path).read_json(HELD_OUT_FILE)["curve"])
    unseen = [resize_episode(e, ("front", "top"), (160, 160)) for e in UNSEEN]
    metrics = held_out_metrics(score_episodes(net, unseen), label_ground_truth(unseen))
    assert metrics["error"] == pytest.approx(best, abs=1e-5), "the updates are merged into the weights"


def test_a_time_budget_bounds_the_evaluations_too(tmp_path: Path) -> None:
    train_quick(tmp_path, held_out(10), max_seconds=1.0)
    percents = [row["percent"] for row in RunFolder(tmp_path).read_json(HELD_OUT_FILE)["curve"]]
    assert percents[0] < 1 and percents[-1] >= 100 and len(percents) <= 11
    assert (np.diff([int(percent / 10) for percent in percents]) > 0).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"eval_percent": -1}, "eval_percent must be in"),
        ({"eval_percent": 101}, "eval_percent must be in"),
        ({"patience": -1}, "patience must be >= 0"),
        ({"patience": 2, "eval_percent": 0}, "patience=2 counts evaluations, and eval_percent=0 makes none"),
    ],
)
def test_invalid_settings_name_the_key(fields: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        HeldOutConfig(**fields)


def test_patience_needs_held_out_episodes() -> None:
    with pytest.raises(UserError, match="patience=2 counts evaluations of held_out, and there is none"):
        HeldOutConfig(patience=2).check_episodes(has_episodes=False)


def test_episodes_of_which_nothing_is_known_are_refused(tmp_path: Path) -> None:
    unknown = [replace(episode(500), progress=None, subtasks=(), success=None)]
    with pytest.raises(DataError, match="held_out: neither progress nor outcome is known in all 1 episodes"):
        train_quick(tmp_path, HeldOut(episodes=unknown))


def test_a_fusion_that_needs_goal_images_is_refused_before_the_first_step(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"held_out: fusion=backward needs a goal image.*; eval_percent=0 only checks"):
        train_quick(tmp_path, held_out(), fusion="backward")


def test_sharded_towers_have_no_curve(tmp_path: Path) -> None:
    run = RunFolder.open(tmp_path)
    with pytest.raises(UserError, match="set eval_percent=0 or fsdp=false"):
        train(DATA, QUICK, run, NullReporter(), held_out(), execution=Execution(fsdp=True))

"""Metrics of `evaluate` for reward models with known values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from embodied_rm.errors import DataError
from embodied_rm.evaluate import PredictionSet, concat_predictions, evaluate, predict_episodes, reverse_episode
from embodied_rm.evaluate.evaluation import oracle, predict_baseline
from embodied_rm.evaluate.goal_images import assign_goal_rows
from embodied_rm.evaluate.progress_metrics import actor_tau, ordered_pairs
from embodied_rm.evaluate.success_metrics import fit_episode_threshold
from embodied_rm.experiments.fusion_benchmark import iter_view_subsets
from embodied_rm.labels.labeled_episode import label, label_ground_truth
from embodied_rm.models.reward_model import Capabilities
from embodied_rm.run_folder import NullReporter
from embodied_rm.types import Episode, RewardOutput, Subtask, Views

SUBTASKS = ("a", "b", "c", "d")


@dataclass
class EmptyState:
    """The state of a model without state."""

    length: int

    def __len__(self) -> int:
        return self.length

    def take(self, rows) -> EmptyState:
        return EmptyState(len(rows))

    def put(self, rows, other) -> EmptyState:
        return self

    def potential(self) -> np.ndarray:
        return np.zeros(self.length, np.float32)


class PixelModel:
    """Reads the true progress from the first pixel, and returns it transformed by `distort`."""

    capabilities = Capabilities()

    def __init__(self, distort=lambda truth: truth) -> None:
        self.distort = distort

    def reset(self, views: Views, instructions: Sequence[str], goal: Views | None = None) -> EmptyState:
        return EmptyState(len(views))

    def step(self, state: EmptyState, views: Views) -> tuple[RewardOutput, EmptyState]:
        truth = views.frames[:, 0, 0, 0, 0].astype(np.float32) / 200
        progress = np.clip(self.distort(truth), 0, 1).astype(np.float32)
        return (
            RewardOutput(
                progress=progress,
                valid=np.ones(len(progress), bool),
                subtask=np.minimum((truth * 4).astype(np.int64), 3),
                success=(progress > 0.99).astype(np.float32),
                uncertainty=np.zeros(len(progress), np.float32),
            ),
            state,
        )


def episode(name: str, percent: list[int]) -> Episode:
    """Return an episode whose pixels show its progress in half percents."""
    progress = np.array(percent, np.float32) / 200
    frames = np.broadcast_to(np.array(percent, np.uint8)[:, None, None, None], (len(percent), 4, 4, 3))
    subtask_indices = np.minimum((progress * 4).astype(int), 3)
    subtasks = tuple(Subtask(name=SUBTASKS[k], start=i, end=i + 1) for i, k in enumerate(subtask_indices))
    return Episode(
        name=name,
        views={"front": np.ascontiguousarray(frames)},
        instruction="go",
        fps=10.0,
        subtasks=subtasks,
        success=percent[-1] == 200,
        progress=progress,
        metadata={"task": "go"},
    )


GOOD = [episode(f"good{i}", [*range(0, 200, 8 + i), 200, 200, 200]) for i in range(3)]
BAD = [episode("stall", [*range(0, 100, 5), *[100] * 20]), episode("undo", [*range(0, 160, 5), *range(160, -1, -5)])]


def test_true_progress_gets_the_best_values():
    result = evaluate(PixelModel(), GOOD + BAD, NullReporter())
    table = dict(result["reward_model"])
    assert table.pop("seconds_per_frame") > 0
    assert table.pop("resolution") == pytest.approx(result["baselines"]["oracle"]["resolution"])
    assert table == pytest.approx(
        {
            "voc": 1,
            "voc_reversed": -1,
            "voc_f1": 1,
            "mae": 0,
            "mae_successes": 0,
            "mae_failures": 0,
            "preference_accuracy": 1,
            "preference_accuracy_short": 1,
            "preference_accuracy_middle": 1,
            "preference_accuracy_long": 1,
            "epic": 0,
            "starc": 0,
            "success_auc": 1,
            "mcc": 1,
            "completion_accuracy": 1,
            "ece": 0,
            "success_precision": 1,
            "success_recall": 1,
            "subtask_accuracy": 1,
            "segmentation_f1": 1,
        },
        abs=1e-6,
    )
    assert result["baselines"]["oracle"]["voc"] == pytest.approx(1)
    assert result["episodes"] == {"successes": 3, "failures": 2}


def test_time_baseline_is_ordered_but_wrong_about_failures():
    table = evaluate(PixelModel(), GOOD + BAD, NullReporter())["baselines"]["time"]
    assert table["voc"] == pytest.approx(1)
    stall, undo = (np.linspace(0, 1, len(e)) - e.progress for e in BAD)
    assert table["mae_failures"] == pytest.approx((abs(stall).mean() + abs(undo).mean()) / 2)


def test_inverted_progress_inverts_the_metrics():
    result = evaluate(PixelModel(lambda truth: 1 - truth), GOOD + BAD, NullReporter())["reward_model"]
    assert result["voc"] < -0.7 and result["voc_reversed"] == pytest.approx(1)
    # "undo" ends where the opposite of the truth is success.
    assert result["success_auc"] == pytest.approx(0.25)
    assert result["voc_f1"] == 0
    assert result["epic"] == pytest.approx(1, abs=1e-3) and result["starc"] == pytest.approx(1, abs=1e-3)
    assert result["mcc"] < 0 and result["preference_accuracy"] < 0.5


def test_affine_error_affects_the_mae_only():
    result = evaluate(PixelModel(lambda truth: 0.1 + 0.8 * truth), [GOOD[0]], NullReporter())["reward_model"]
    truth = GOOD[0].progress
    assert truth is not None
    expected = np.abs(0.1 - 0.2 * truth)
    expected[0] = 0.0  # the first frame's potential is 0 by contract
    assert result["mae_successes"] == pytest.approx(expected.mean(), abs=1e-6)
    assert result["voc"] == pytest.approx(1)
    assert result["epic"] == pytest.approx(0, abs=1e-3), "EPIC ignores scale and offset"


def test_baselines_get_chance_values():
    baselines = evaluate(PixelModel(), GOOD + BAD, NullReporter())["baselines"]
    assert baselines["constant"]["preference_accuracy"] == 0.5
    assert baselines["constant"]["starc"] == pytest.approx(0.5, abs=1e-12) and "epic" not in baselines["constant"]
    assert baselines["constant"]["resolution"] == 1
    assert 0.1 < baselines["time"]["epic"] < 0.7
    assert baselines["time"]["preference_accuracy"] == 0.5, "it ends at 1 in every episode"
    assert baselines["time"]["success_auc"] == baselines["constant"]["success_auc"] == 0.5
    assert baselines["time"]["voc_reversed"] == pytest.approx(1), "it also increases in reversed episodes"
    assert baselines["oracle"]["voc_reversed"] == pytest.approx(-1, abs=0.05)
    perfect = {
        "success_auc": 1,
        "completion_accuracy": 1,
        "mcc": 1,
        "success_precision": 1,
        "success_recall": 1,
        "ece": 0,
    }
    assert {name: baselines["oracle"][name] for name in perfect} == perfect
    assert not {"subtask_accuracy", "uncertainty_correlation", "interval_coverage", "seconds_per_frame"} & {
        key for table in baselines.values() for key in table
    }


def test_reversed_oracle_equals_the_true_progress_of_reversed_episodes():
    labels = label(GOOD)
    model_outputs = predict_episodes(PixelModel(), GOOD).reversed_predictions
    oracle_outputs = predict_baseline(oracle, labels).reversed_predictions
    for model_output, oracle_output in zip(model_outputs, oracle_outputs, strict=True):
        assert np.allclose(model_output.progress[1:], oracle_output.progress[1:], atol=1e-6)


def test_undefined_metrics_are_left_out_and_undefined_voc_is_counted():
    result = evaluate(PixelModel(lambda truth: 0 * truth), [replace(e, subtasks=()) for e in GOOD], NullReporter())
    assert set(result["reward_model"]) == {
        "mae",
        "mae_successes",
        "voc_undefined",
        "success_recall",
        "completion_accuracy",
        "ece",
        "resolution",
        "starc",
        "seconds_per_frame",
    }
    assert result["reward_model"]["voc_undefined"] == len(GOOD)
    assert result["reward_model"]["success_recall"] == 0, "no success was predicted, so precision is undefined"
    assert "voc" not in result["baselines"]["constant"]


def test_reversed_episode_starts_with_the_first_frame_and_goes_back_from_success():
    success = episode("e", [0, 50, 100, 200, 200, 200])
    pixels = reverse_episode(success, label([success])[0]).views["front"][:, 0, 0, 0]
    assert pixels.tolist() == [0, 200, 100, 50, 0]


def test_one_episode_of_unknown_progress_changes_no_metric_of_the_others():
    unknown = replace(BAD[0], name="unknown", progress=None, subtasks=(), success=None)
    alone = evaluate(PixelModel(), GOOD + BAD, NullReporter())
    with_unknown = evaluate(PixelModel(), [*GOOD, *BAD, unknown], NullReporter())
    assert with_unknown["episodes"] == alone["episodes"] | {"unknown_outcome": 1, "unknown_progress": 1}
    for metrics in (alone, with_unknown):
        metrics["reward_model"].pop("seconds_per_frame")
    assert with_unknown["reward_model"] == alone["reward_model"]
    assert with_unknown["baselines"].keys() == {"constant", "time"}, "there is no oracle of unknown progress"


def test_outcomes_alone_give_the_order_of_successes_and_the_metrics_of_success():
    episodes = [replace(e, progress=None, subtasks=(), success=e in GOOD, metadata={}) for e in (*GOOD, *BAD)]
    result = evaluate(PixelModel(), episodes, NullReporter())
    metrics = result["reward_model"]
    assert result["episodes"] == {"successes": 3, "failures": 2, "unknown_progress": 5}
    assert metrics["voc"] > 0.99 and metrics["voc_reversed"] < -0.99, "ties while the end is held"
    assert metrics["success_auc"] == metrics["completion_accuracy"] == metrics["preference_accuracy"] == 1
    assert metrics.keys().isdisjoint({"mae", "epic", "starc", "actor_tau", "uncertainty_correlation"})


def test_two_failures_of_unknown_progress_are_not_ranked():
    unknown_failure = replace(BAD[0], progress=None, subtasks=(), success=False)
    labels = label_ground_truth([GOOD[0], BAD[0], unknown_failure])
    task = {e.task for e in labels}
    assert len(task) == 1 and ordered_pairs(labels).tolist() == [[0, 1], [0, 2]]


def test_nothing_known_is_an_error_with_a_remedy():
    unknown = replace(BAD[0], progress=None, subtasks=(), success=None)
    with pytest.raises(DataError, match=r"neither progress nor outcome is known.*embodied-rm annotate"):
        evaluate(PixelModel(), [unknown], NullReporter())


def test_actor_tau_ranks_actors_by_final_progress():
    labels, outcomes = label(GOOD + BAD), ["expert"] * 3 + ["stall", "undo"]
    truths = [e.progress for e in labels]
    assert actor_tau(truths, labels, outcomes) == 1
    assert actor_tau([1 - truth for truth in truths], labels, outcomes) == -1
    assert actor_tau([np.full_like(truth, 0.5) for truth in truths], labels, outcomes) == 0
    # The expert is first, but stall and undo are exchanged: 2 pairs are right, 1 is wrong.
    assert actor_tau([*truths[:3], truths[4], truths[3]], labels, outcomes) == pytest.approx(1 / 3)
    assert np.isnan(actor_tau(truths, labels, [None] * 5))


def with_subtasks(prediction_set: PredictionSet, index: int) -> PredictionSet:
    """Replace all predicted subtasks by one index."""
    predictions = tuple(replace(p, subtask=np.full_like(p.subtask, index)) for p in prediction_set.predictions)
    return replace(prediction_set, predictions=predictions)


def test_segmentation_f1():
    model = PixelModel()
    prediction_set = predict_episodes(model, GOOD)
    assert evaluate(model, GOOD, NullReporter(), prediction_set)["reward_model"]["segmentation_f1"] == 1
    # One predicted segment per episode, which covers a quarter: no match, three false and twelve missed segments.
    constant = with_subtasks(prediction_set, 0)
    assert evaluate(model, GOOD, NullReporter(), constant)["reward_model"]["segmentation_f1"] == 0
    table = evaluate(model, GOOD, NullReporter(), with_subtasks(prediction_set, -1))["reward_model"]
    assert "segmentation_f1" not in table and "subtask_accuracy" not in table, "a model without subtasks"


def test_concatenated_predictions_give_the_same_metrics():
    model = PixelModel(lambda truth: truth**2)
    joint = predict_episodes(model, GOOD + BAD)
    concatenated = concat_predictions(predict_episodes(model, [e]) for e in GOOD + BAD)
    assert concatenated.num_frames == joint.num_frames
    assert [output is not None for output in joint.reversed_predictions] == [True] * 3 + [False] * 2
    tables = [evaluate(model, GOOD + BAD, NullReporter(), p)["reward_model"] for p in (joint, concatenated)]
    assert all(table.pop("seconds_per_frame") > 0 for table in tables)
    assert tables[0] == tables[1]


def test_take_gives_the_metrics_of_the_selected_episodes():
    model, rows = PixelModel(lambda truth: truth**2), [3, 1]
    selected = [(GOOD + BAD)[row] for row in rows]
    prediction_set = predict_episodes(model, GOOD + BAD).take(rows)
    table = evaluate(model, selected, NullReporter(), prediction_set)["reward_model"]
    expected = evaluate(model, selected, NullReporter())["reward_model"]
    assert table.pop("seconds_per_frame") > 0 and expected.pop("seconds_per_frame") > 0
    assert table == expected and "voc_reversed" in table


def test_other_predictions_are_added_to_the_baselines():
    reverse = predict_episodes(PixelModel(lambda truth: 1 - truth), GOOD)
    result = evaluate(PixelModel(), GOOD, NullReporter(), other_predictions={"reverse": reverse})
    assert set(result["baselines"]) == {"constant", "time", "oracle", "reverse"}
    assert result["baselines"]["reverse"]["voc"] < -0.7 and result["reward_model"]["voc"] == pytest.approx(1)


def test_goal_images_come_from_another_success_with_the_same_goal():
    red = [replace(e, metadata={"task": "go", "goal": "red"}) for e in (*GOOD[:2], BAD[0])]
    blue = [replace(e, metadata={"task": "go", "goal": "blue"}) for e in (GOOD[2], BAD[1])]
    assert assign_goal_rows(label([*red, *blue])) == [1, 0, 0, None, 3]
    assert assign_goal_rows(label(GOOD)) == [1, 2, 0]


def test_iter_view_subsets_yields_every_subset_once():
    assert list(iter_view_subsets(("a", "b"))) == [("a", "b"), ("a",), ("b",)]
    assert len(set(iter_view_subsets("abc"))) == 7


def test_episodes_outside_rows_determine_the_order_of_subtasks():
    reordered = replace(
        BAD[1], subtasks=tuple(replace(s, name=SUBTASKS[3 - SUBTASKS.index(s.name)]) for s in BAD[1].subtasks)
    )
    single = evaluate(PixelModel(), [reordered], NullReporter())["reward_model"]
    with_other = evaluate(PixelModel(), [reordered, GOOD[0]], NullReporter(), rows=[0])
    assert with_other["episodes"] == {"successes": 0, "failures": 1}
    assert single["subtask_accuracy"] != with_other["reward_model"]["subtask_accuracy"]


def test_every_metric_is_documented():
    page = (Path(__file__).resolve().parent.parent / "docs" / "metrics.md").read_text(encoding="utf-8")
    documented = {
        key for cell in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for key in re.findall(r"`(\w+)`", cell)
    }
    outcomes = ["expert"] * 3 + ["stall", "undo"]
    episodes = [replace(e, metadata={**e.metadata, "outcome": o}) for e, o in zip(GOOD + BAD, outcomes, strict=True)]
    result = evaluate(PixelModel(), episodes, NullReporter())
    zero_result = evaluate(PixelModel(lambda truth: 0 * truth), episodes, NullReporter())
    prediction_set = predict_episodes(PixelModel(), GOOD + BAD)
    noisy_predictions = replace(prediction_set, predictions=tuple(map(add_noise, prediction_set.predictions)))
    noisy_result = evaluate(PixelModel(), episodes, NullReporter(), noisy_predictions)
    metrics = {key for table in (result, zero_result, noisy_result) for key in table["reward_model"]}
    assert metrics | set(result["baselines"]) == documented - {"similarity"}


def add_noise(output: RewardOutput) -> RewardOutput:
    """Add errors to progress, with the same uncertainty; every second frame is out of distribution."""
    noise = np.random.default_rng(0).normal(0, 0.1, len(output))
    progress = np.clip(output.progress + noise, 0, 1).astype(np.float32)
    ood = np.float32(0.5 + np.arange(len(output)) % 2)
    ood[0] = np.nan  # the first frame is not scored
    return replace(output, progress=progress, uncertainty=np.abs(progress - output.progress), ood=ood)


def test_uncertainty_correlation_detects_a_correct_uncertainty():
    prediction_set = predict_episodes(PixelModel(), GOOD + BAD)
    correct = tuple(map(add_noise, prediction_set.predictions))
    table = evaluate(PixelModel(), GOOD + BAD, NullReporter(), replace(prediction_set, predictions=correct))[
        "reward_model"
    ]
    assert table["uncertainty_correlation"] == pytest.approx(1) and 0.8 < table["interval_coverage"] <= 1
    ood = np.concatenate([output.ood[1:] for output in correct])
    assert table["ood_rate"] == pytest.approx(np.mean(ood > 1)) and 0.4 < table["ood_rate"] < 0.6
    inverted = tuple(replace(output, uncertainty=1 - output.uncertainty) for output in correct)
    table = evaluate(PixelModel(), GOOD + BAD, NullReporter(), replace(prediction_set, predictions=inverted))[
        "reward_model"
    ]
    assert table["uncertainty_correlation"] == pytest.approx(-1, abs=1e-3)


def test_the_threshold_of_episodes_believes_as_many_as_succeed():
    """A failure that looks done for one frame would end the episode of a learner."""
    probabilities = {"done": [0.1, 0.2, 0.9], "failure": [0.1, 0.6, 0.05], "other failure": [0.1, 0.1, 0.2]}
    episodes = [replace(episode(name, [0, 50, 100]), success=name == "done") for name in probabilities]
    columns = {"valid": np.ones(3, bool), "subtask": np.zeros(3, np.int64), "uncertainty": np.zeros(3, np.float32)}
    outputs = [
        RewardOutput(progress=np.zeros(3, np.float32), success=np.array(values, np.float32), **columns)
        for values in probabilities.values()
    ]
    assert fit_episode_threshold(outputs, label_ground_truth(episodes)) == pytest.approx(0.75)
    assert fit_episode_threshold(outputs, label_ground_truth(episodes), patience=2) == pytest.approx(0.15)
    assert fit_episode_threshold(outputs[1:], label_ground_truth(episodes[1:])) == pytest.approx(0.8), "no success"
    unknown = [replace(episode, success=None, progress=None, subtasks=()) for episode in episodes]
    assert fit_episode_threshold(outputs, label_ground_truth(unknown)) is None

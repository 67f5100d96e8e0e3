"""`evaluate`: metrics of a reward model and of baselines against annotations."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from embodied_rm.errors import DataError
from embodied_rm.evaluate.predictions import PredictionSet, predict_episodes
from embodied_rm.evaluate.progress_metrics import Metrics, actor_tau, frames_until_success, nanmean, progress_table
from embodied_rm.evaluate.success_metrics import prediction_table
from embodied_rm.labels.labeled_episode import LabeledEpisode, label_ground_truth
from embodied_rm.metrics import voc, voc_f1
from embodied_rm.models.reward_model import RewardModel
from embodied_rm.run_folder import Reporter
from embodied_rm.types import Array, BoolArray, Episode, RewardOutput

Baseline = Callable[[Array, BoolArray], tuple[Array, Array]]
"""(true progress [T], success bool [T]) -> (progress, success probability), float32 [T] each."""


def constant(true_progress: Array, done: BoolArray) -> tuple[Array, Array]:
    """One half at every frame."""
    half = np.full_like(true_progress, 0.5)
    return half, half


def elapsed_time(true_progress: Array, done: BoolArray) -> tuple[Array, Array]:
    """t / T: perfect order on every success, the same on failures. Not causal: it uses the episode's length."""
    time = np.linspace(0, 1, len(true_progress), dtype=np.float32)
    return time, time


def oracle(true_progress: Array, done: BoolArray) -> tuple[Array, Array]:
    """The true values: the best score that each metric permits."""
    return true_progress, done.astype(np.float32)


BASELINES: Mapping[str, Baseline] = {"constant": constant, "time": elapsed_time, "oracle": oracle}


def evaluate(
    model: RewardModel,
    episodes: Iterable[Episode],
    reporter: Reporter,
    predictions: PredictionSet | None = None,
    other_predictions: Mapping[str, PredictionSet] | None = None,
    rows: Sequence[int] | None = None,
) -> dict[str, object]:
    """Compute the metrics of a reward model and of the baselines; `docs/metrics.md` defines them.

    Metrics that cannot be computed (no failures, no subtasks) are left out. An episode of unknown progress counts only
    where its outcome suffices.

    Args:
        predictions: Predictions of the model, if already computed.
        other_predictions: Name -> predictions of another model, which is added to the baselines.
        rows: Indices of the evaluated episodes, default all. The others only determine the order of subtasks.

    Returns:
        `{"reward_model": {metric: value}, "baselines": {name: {metric: value}}, "episodes": {...}}`.

    Raises:
        DataError: Neither the progress nor the outcome of any episode is known.
    """
    all_episodes = list(episodes)
    selected_rows, all_truths = range(len(all_episodes)) if rows is None else rows, ground_truths(all_episodes)
    truths = [all_truths[row] for row in selected_rows]
    counts = count_outcomes(truths)
    reporter.log(f"scoring {len(truths)} episodes")
    if predictions is None:
        predictions = predict_episodes(model, [all_episodes[row] for row in selected_rows])
    other_tables = {name: model_table(other, truths) for name, other in (other_predictions or {}).items()}
    return {
        "reward_model": model_table(predictions, truths),
        "baselines": {**baseline_tables(truths), **other_tables},
        "episodes": counts,
    }


@dataclass(frozen=True, kw_only=True)
class GroundTruth:
    """Annotations of an episode."""

    label: LabeledEpisode
    outcome: str | None  # The recorded outcome, which identifies the actor. None: not recorded.


def ground_truths(episodes: Sequence[Episode]) -> list[GroundTruth]:
    """Return the annotations of each episode; raise `DataError` if nothing is known of any."""
    outcomes = [episode.metadata.get("outcome") for episode in episodes]
    pairs = zip(label_ground_truth(episodes), outcomes, strict=True)
    truths = [GroundTruth(label=labeled, outcome=outcome) for labeled, outcome in pairs]
    if all(truth.label.outcome is None for truth in truths):
        raise DataError(
            f"neither progress nor outcome is known in all {len(truths)} episodes; embodied-rm annotate marks subtasks "
            "and outcomes"
        )
    return truths


def count_outcomes(truths: Sequence[GroundTruth]) -> dict[str, int]:
    """Return the number of successes and failures, and of episodes with unknown annotations where there are some."""
    outcomes = [truth.label.outcome for truth in truths]
    unknown = {
        "unknown_outcome": outcomes.count(None),
        "unknown_progress": sum(not truth.label.is_progress_known for truth in truths),
    }
    counts = {"successes": outcomes.count(True), "failures": outcomes.count(False)}
    return counts | {name: count for name, count in unknown.items() if count}


def model_table(predictions: PredictionSet, episode_truths: Sequence[GroundTruth]) -> Metrics:
    """Compute all metrics of a model's predictions; undefined ones are left out."""
    labels, outcomes = [truth.label for truth in episode_truths], [truth.outcome for truth in episode_truths]
    curves = [prediction.progress for prediction in predictions.predictions]
    table = {**progress_table(curves, labels), "actor_tau": actor_tau(curves, labels, outcomes)}
    successes = [(curve, labeled) for curve, labeled in zip(curves, labels, strict=True) if labeled.outcome]
    num_undefined = sum(np.isnan(voc(curve[: frames_until_success(labeled)])) for curve, labeled in successes)
    table["voc_undefined"] = float(num_undefined or "nan")
    reversed_curves = [output.progress for output in predictions.reversed_predictions if output is not None]
    table["voc_reversed"] = nanmean(voc(curve[1:]) for curve in reversed_curves)
    table["voc_f1"] = voc_f1(table["voc"], -table["voc_reversed"])
    table |= prediction_table(
        predictions.predictions, labels, predictions.success_threshold, predictions.interval_scale
    )
    table["seconds_per_frame"] = predictions.seconds_per_frame
    return {name: value for name, value in table.items() if not np.isnan(value)}


def predict_baseline(baseline: Baseline, labels: Sequence[LabeledEpisode]) -> PredictionSet:
    """Return a baseline's predictions of episodes, and of the reversed successes.

    They have no subtasks and uncertainty 0, and take no time.
    """

    def predict(truth: Array, done: BoolArray) -> RewardOutput:
        progress, success = baseline(truth, done)
        valid, subtask = np.ones(len(progress), bool), np.full(len(progress), -1)
        uncertainty = np.zeros(len(progress), np.float32)
        return RewardOutput(progress=progress, valid=valid, subtask=subtask, success=success, uncertainty=uncertainty)

    def predict_reversed(episode: LabeledEpisode) -> RewardOutput | None:
        if not episode.outcome:
            return None
        # The order of `reverse_episode`.
        frame_indices = np.append(0, np.arange(frames_until_success(episode) - 1, -1, -1))
        return predict(episode.progress[frame_indices], episode.success[frame_indices])

    return PredictionSet(
        predictions=tuple(predict(episode.progress, episode.success) for episode in labels),
        reversed_predictions=tuple(map(predict_reversed, labels)),
        seconds=0.0,
        num_frames=0,
    )


def baseline_tables(episode_truths: Sequence[GroundTruth]) -> dict[str, Metrics]:
    """Compute all metrics of the baselines. Returns name -> metrics; there is no oracle of unknown progress."""
    labels = [truth.label for truth in episode_truths]
    is_known = all(labeled.is_progress_known for labeled in labels)
    baselines = {name: baseline for name, baseline in BASELINES.items() if is_known or name != "oracle"}
    predictions = {name: predict_baseline(baseline, labels) for name, baseline in baselines.items()}
    return {name: model_table(prediction_set, episode_truths) for name, prediction_set in predictions.items()}

"""Metrics of progress curves."""

from collections.abc import Iterable, Sequence

import numpy as np

from embodied_rm.labels.labeled_episode import LabeledEpisode
from embodied_rm.metrics import (
    effective_resolution,
    epic_of_state_rewards,
    kendall_tau_a,
    mae,
    preference_credit,
    preferred_pairs,
    starc_of_transitions,
    terciles,
    voc,
)
from embodied_rm.types import Array, IntArray

Metrics = dict[str, float]
NUM_PROGRESS_BINS = 20
"""Bins of true progress in [0, 1) that are the states of a task in the STARC distance; progress 1 is another state."""
STARC_DISCOUNT = 0.99  # Discount per frame in the STARC distance. The EPIC distance does not depend on it.


def progress_table(curves: Sequence[Array], labels: Sequence[LabeledEpisode]) -> Metrics:
    """Compute the metrics of progress curves, float32 [T] in [0, 1] per episode, as defined in `docs/metrics.md`."""
    pairs = list(zip(curves, labels, strict=True))
    curves_until_success = [curve[: frames_until_success(episode)] for curve, episode in pairs if episode.outcome]
    known = [(curve, episode) for curve, episode in pairs if episode.is_progress_known]
    return {
        "voc": nanmean(map(voc, curves_until_success)),
        "mae": nanmean(mae(curve, episode.progress) for curve, episode in known),
        "mae_successes": nanmean(mae(curve, episode.progress) for curve, episode in known if episode.outcome),
        "mae_failures": nanmean(mae(curve, episode.progress) for curve, episode in known if not episode.outcome),
        "resolution": nanmean(map(effective_resolution, curves_until_success)),
        **preference_table(curves, labels),
        **reward_distance_table(curves, labels),
    }


def preference_table(curves: Sequence[Array], labels: Sequence[LabeledEpisode]) -> Metrics:
    """Compute the preference accuracy of all pairs, and of the shortest, middle and longest third of the pairs.

    A pair is two episodes of a task with different true progress at the end, ranked by the predicted final progress.
    """
    pairs = ordered_pairs(labels)
    credit = preference_credit([curve[-1] for curve in curves], pairs)
    pair_lengths = np.array([len(episode) for episode in labels])[pairs].sum(axis=1) if len(pairs) else np.zeros(0)
    length_tercile = terciles(pair_lengths) if len(pairs) else pair_lengths
    table = {"preference_accuracy": nanmean(credit)}
    for tercile, name in enumerate(("short", "middle", "long")):
        table[f"preference_accuracy_{name}"] = nanmean(credit[length_tercile == tercile])
    return table


def ordered_pairs(labels: Sequence[LabeledEpisode]) -> IntArray:
    """Return the (better, worse) pairs, int64 [P, 2]. Where progress is unknown, a success is better than a failure."""
    final = [episode.progress[-1] if episode.is_progress_known else bool(episode.outcome) for episode in labels]
    pairs = preferred_pairs(final, [episode.task for episode in labels])
    known = np.array([episode.is_progress_known for episode in labels], bool)[pairs].all(axis=1)
    outcomes = np.array([(episode.outcome is True, episode.outcome is False) for episode in labels], bool)
    return pairs[known | (outcomes[pairs[:, 0], 0] & outcomes[pairs[:, 1], 1])]


def reward_distance_table(curves: Sequence[Array], labels: Sequence[LabeledEpisode]) -> Metrics:
    """Compute the EPIC and STARC distance to the true progress over all frames of a task, averaged over tasks."""
    epic_distances, starc_distances = [], []
    known = [(curve, episode) for curve, episode in zip(curves, labels, strict=True) if episode.is_progress_known]
    for task in dict.fromkeys(episode.task for _, episode in known):
        curve_pairs = [(curve, episode.progress) for curve, episode in known if episode.task == task]
        predicted, true_progress = (np.concatenate([pair[column][1:] for pair in curve_pairs]) for column in (0, 1))
        start_bins = np.concatenate([progress_bin(truth[:-1]) for _, truth in curve_pairs])
        end_bins = progress_bin(true_progress)
        epic_distances.append(epic_of_state_rewards(predicted, true_progress))
        starc_distances.append(starc_of_transitions(predicted, true_progress, start_bins, end_bins, STARC_DISCOUNT))
    return {"epic": nanmean(epic_distances), "starc": nanmean(starc_distances)}


def actor_tau(curves: Sequence[Array], labels: Sequence[LabeledEpisode], outcomes: Sequence[str | None]) -> float:
    """Compute Kendall's tau_a between the predicted and true ranking of the actors of a task, averaged over tasks.

    An actor is all episodes with the same recorded outcome (the expert, or one kind of failure). It is ranked by its
    mean final progress. nan: no task has two actors.
    """
    taus = []
    for task in dict.fromkeys(episode.task for episode in labels):
        final_progress: dict[str, list[tuple[float, float]]] = {}
        for curve, episode, outcome in zip(curves, labels, outcomes, strict=True):
            if episode.task == task and outcome is not None and episode.is_progress_known:
                final_progress.setdefault(outcome, []).append((curve[-1], episode.progress[-1]))
        mean_progress = np.array([np.mean(pairs, axis=0) for pairs in final_progress.values()]).reshape(-1, 2)
        taus.append(kendall_tau_a(mean_progress[:, 0], mean_progress[:, 1]))
    return nanmean(taus)


def progress_bin(progress: Array) -> np.ndarray:
    """Return the bin of true progress of each frame, int64 [T]."""
    return np.floor(np.clip(progress, 0, 1) * NUM_PROGRESS_BINS).astype(np.int64)


def frames_until_success(episode: LabeledEpisode) -> int:
    """Return the number of frames up to and including the first success; all frames if there is none."""
    return int(episode.success.argmax()) + 1 if episode.success.any() else len(episode)


def nanmean(values: Iterable[float]) -> float:
    """Return the mean of all values but nan; nan if there are none."""
    defined = [float(value) for value in values if not np.isnan(value)]
    return float(np.mean(defined)) if defined else float("nan")

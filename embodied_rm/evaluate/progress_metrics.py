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
from embodied_rm.types import Array

Metrics = dict[str, float]
NUM_PROGRESS_BINS = 20
"""Bins of true progress in [0, 1) that are the states of a task in the STARC distance; progress 1 is another state."""
STARC_DISCOUNT = 0.99  # Discount per frame in the STARC distance. The EPIC distance does not depend on it.


def progress_table(curves: Sequence[Array], labels: Sequence[LabeledEpisode]) -> Metrics:
    """Compute the metrics of progress curves, float32 [T] in [0, 1] per episode, as defined in `docs/metrics.md`."""
    pairs = list(zip(curves, labels, strict=True))
    successes = [(curve, episode) for curve, episode in pairs if episode.success[-1]]
    failures = [(curve, episode) for curve, episode in pairs if not episode.success[-1]]
    curves_until_success = [curve[: frames_until_success(episode)] for curve, episode in successes]
    return {
        "voc": nanmean(map(voc, curves_until_success)),
        "mae": nanmean(mae(curve, episode.progress) for curve, episode in pairs),
        "mae_successes": nanmean(mae(curve, episode.progress) for curve, episode in successes),
        "mae_failures": nanmean(mae(curve, episode.progress) for curve, episode in failures),
        "resolution": nanmean(map(effective_resolution, curves_until_success)),
        **preference_table(curves, labels),
        **reward_distance_table(curves, labels),
    }


def preference_table(curves: Sequence[Array], labels: Sequence[LabeledEpisode]) -> Metrics:
    """Compute the preference accuracy of all pairs, and of the shortest, middle and longest third of the pairs.

    A pair is two episodes of a task with different true progress at the end, ranked by the predicted final progress.
    """
    pairs = preferred_pairs([episode.progress[-1] for episode in labels], [episode.task for episode in labels])
    credit = preference_credit([curve[-1] for curve in curves], pairs)
    pair_lengths = np.array([len(episode) for episode in labels])[pairs].sum(axis=1) if len(pairs) else np.zeros(0)
    length_tercile = terciles(pair_lengths) if len(pairs) else pair_lengths
    table = {"preference_accuracy": nanmean(credit)}
    for tercile, name in enumerate(("short", "middle", "long")):
        table[f"preference_accuracy_{name}"] = nanmean(credit[length_tercile == tercile])
    return table


def reward_distance_table(curves: Sequence[Array], labels: Sequence[LabeledEpisode]) -> Metrics:
    """Compute the EPIC and STARC distance to the true progress over all frames of a task, averaged over tasks."""
    epic_distances, starc_distances = [], []
    for task in dict.fromkeys(episode.task for episode in labels):
        curve_pairs = [(c, e.progress) for c, e in zip(curves, labels, strict=True) if e.task == task]
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
            if episode.task == task and outcome is not None:
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

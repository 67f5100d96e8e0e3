"""What a progress curve alone is judged by, whoever drew it: a model, a clock, the truth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from embodied_rm.labels.labelled import LabelledEpisode
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

Table = dict[str, float]
CELLS = 20
"""Equal cells of true progress that stand for the states of a task in its STARC distance; 1 is one more."""
GAMMA = 0.99
"""Discount of a frame in the STARC distance. EPIC's does not depend on it."""


def progress_table(curves: Sequence[Array], labels: Sequence[LabelledEpisode]) -> Table:
    """The metrics of the progress curves alone, each float32 [T] in [0, 1]; `docs/metrics.md` says what they are."""
    pairs = list(zip(curves, labels, strict=True))
    successes = [(curve, episode) for curve, episode in pairs if episode.done[-1]]
    failures = [(curve, episode) for curve, episode in pairs if not episode.done[-1]]
    return {
        "voc": mean(voc(curve[: finish(episode)]) for curve, episode in successes),
        "mae": mean(mae(curve, episode.progress) for curve, episode in pairs),
        "mae_successes": mean(mae(curve, episode.progress) for curve, episode in successes),
        "mae_failures": mean(mae(curve, episode.progress) for curve, episode in failures),
        "resolution": mean(effective_resolution(curve[: finish(episode)]) for curve, episode in successes),
        **preferences(curves, labels),
        **reward_distances(curves, labels),
    }


def preferences(curves: Sequence[Array], labels: Sequence[LabelledEpisode]) -> Table:
    """Which of two episodes of a task came further, told by the progress at their ends: of all pairs, and of the
    shortest, middle and longest third of them.

    The last progress is what an episode earned: all gains together.
    """
    pairs = preferred_pairs([e.progress[-1] for e in labels], [e.task for e in labels])
    credit = preference_credit([curve[-1] for curve in curves], pairs)
    third = terciles(np.array([len(e) for e in labels])[pairs].sum(axis=1)) if len(pairs) else np.zeros(0)
    by_length = {name: mean(credit[third == k]) for k, name in enumerate(("short", "middle", "long"))}
    return {
        "preference_accuracy": mean(credit),
        **{f"preference_accuracy_{name}": value for name, value in by_length.items()},
    }


def reward_distances(curves: Sequence[Array], labels: Sequence[LabelledEpisode]) -> Table:
    """EPIC and STARC distance to the true progress, over all frames reached in a task, mean over tasks."""
    epic, starc = [], []
    for task in dict.fromkeys(episode.task for episode in labels):
        known = [(c, e.progress) for c, e in zip(curves, labels, strict=True) if e.task == task]
        said, true = (np.concatenate([pair[k][1:] for pair in known]) for k in (0, 1))
        start = np.concatenate([cell(truth[:-1]) for _, truth in known])
        epic.append(epic_of_state_rewards(said, true))
        starc.append(starc_of_transitions(said, true, start, cell(true), GAMMA))
    return {"epic": mean(epic), "starc": mean(starc)}


def actor_tau(curves: Sequence[Array], labels: Sequence[LabelledEpisode], outcomes: Sequence[str | None]) -> float:
    """Kendall's tau_a of the actors of a task (episodes that share the recorded outcome: the expert, each way to
    fail), ranked by mean progress at the end, with their true ranking; mean over tasks.

    `nan` without a task of two actors.
    """
    rankings = []
    for task in dict.fromkeys(episode.task for episode in labels):
        ends: dict[str, list[tuple[float, float]]] = {}
        for curve, episode, outcome in zip(curves, labels, outcomes, strict=True):
            if episode.task == task and outcome is not None:
                ends.setdefault(outcome, []).append((curve[-1], episode.progress[-1]))
        means = np.array([np.mean(pairs, axis=0) for pairs in ends.values()]).reshape(-1, 2)
        rankings.append(kendall_tau_a(means[:, 0], means[:, 1]))
    return mean(rankings)


def cell(progress: Array) -> np.ndarray:
    """Which cell of true progress each frame is in, int64 [T]."""
    return np.floor(np.clip(progress, 0, 1) * CELLS).astype(np.int64)


def finish(episode: LabelledEpisode) -> int:
    """Number of frames up to the first at which the task is done, that one included."""
    return int(episode.done.argmax()) + 1 if episode.done.any() else len(episode)


def mean(values: Iterable[float]) -> float:
    """The mean of what is defined; nan of nothing."""
    defined = [float(value) for value in values if not np.isnan(value)]
    return float(np.mean(defined)) if defined else float("nan")

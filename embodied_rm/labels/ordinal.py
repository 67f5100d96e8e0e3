"""Scores from 1 to 5 of the final state of a clip; a reward is (score - 1) / 4 (RoboReward).

Every prefix of an episode is a clip with its own score. A clip under a negative instruction scores 1 (the loss term
`negative_hop`). The true progress is the rater. Values between two scores are not taught.
"""

from collections.abc import Sequence

import numpy as np

from embodied_rm.labels.targets import Targets, require_outcome, targets_with_final_outcome
from embodied_rm.labels.true_progress import label_true_progress, require_true_progress
from embodied_rm.types import Array, Episode, IntArray

RUBRIC = {1: "nothing achieved", 2: "begun", 3: "partly done", 4: "nearly done", 5: "done"}


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """Return the targets per episode: at each frame the reward of the clip that ends there.

    `DataError` if no episode has an outcome, or the true progress of every one is unknown.
    """
    require_outcome(episodes, "ordinal")
    require_true_progress(episodes, "ordinal")

    def targets_of(episode: Episode, progress: Array, subtask: IntArray | None) -> Targets:
        return targets_with_final_outcome(episode, score_to_reward(rubric_score(progress)))

    return label_true_progress(episodes, targets_of)


def rubric_score(progress: Array) -> IntArray:
    """Return the score of clips that end at this progress, int64 in 1..5: one point per full quarter, 5 only for 1."""
    return 1 + np.floor(4 * np.clip(progress, 0, 1)).astype(np.int64)


def score_to_reward(score: IntArray) -> Array:
    """Convert scores in 1..5 to rewards, float32 in [0, 1]."""
    return ((score - 1) / (len(RUBRIC) - 1)).astype(np.float32)

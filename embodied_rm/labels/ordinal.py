"""Scores from 1 to 5 for what a clip ends in.

Source: RoboReward: the rubric, of which a reward is (score - 1) / 4; temporal clipping (every beginning of an episode
is a clip with a score of its own); counterfactual relabelling (the same video under an instruction that wants something
else: 1, which the term `foreign` of the objective teaches). The rater is the true progress. What lies between two
scores is not taught.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.labels.hops import true_progress
from embodied_rm.labels.targets import Targets, require_outcome, targets_with_final_outcome
from embodied_rm.types import Array, Episode, IntArray

RUBRIC = {1: "nothing achieved", 2: "begun", 3: "partly done", 4: "nearly done", 5: "done"}


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """The targets of every episode: at a frame the reward of the clip that ends there.

    Raises `DataError` without outcomes, and naming an episode whose true progress is unknown.
    """
    require_outcome(episodes, "ordinal")
    return [
        targets_with_final_outcome(episode, score_to_reward(rubric_score(true_progress(episode))))
        for episode in episodes
    ]


def rubric_score(progress: Array) -> IntArray:
    """int64 in 1..5 of clips that end at this progress: a point for every full quarter; 5 only when all is done."""
    return 1 + np.floor(4 * np.clip(progress, 0, 1)).astype(np.int64)


def score_to_reward(score: IntArray) -> Array:
    """float32 in [0, 1] of scores in 1..5."""
    return ((score - 1) / (len(RUBRIC) - 1)).astype(np.float32)

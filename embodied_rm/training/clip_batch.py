"""Comparisons of clips whose episodes are both in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from embodied_rm.labels.comparisons import ClipComparison
from embodied_rm.labels.labeled_episode import LabeledEpisode
from embodied_rm.types import BoolArray, IntArray


@dataclass(frozen=True, kw_only=True)
class BatchComparisons:
    """K comparisons between clips of rows of a batch of M frames per row."""

    rows: IntArray  # row of the first and of the second clip, int64 [K, 2]
    is_inside: BoolArray  # which sampled frames are part of the clip, bool [K, 2, M]; at least one per clip
    first_is_better: BoolArray  # bool [K]


class ComparisonIndex:
    """The comparisons of episodes, by the episodes that they compare."""

    def __init__(self, comparisons: Sequence[ClipComparison], episodes: Sequence[LabeledEpisode]) -> None:
        indices = {episode.name: index for index, episode in enumerate(episodes)}
        names = [(comparison.first.episode, comparison.second.episode) for comparison in comparisons]
        self._episodes = np.array([[indices[name] for name in pair] for pair in names], np.int64).reshape(-1, 2)
        clips = [(comparison.first, comparison.second) for comparison in comparisons]
        self._edges = np.array([[(clip.start, clip.end) for clip in pair] for pair in clips]).reshape(-1, 2, 2)
        self._first_is_better = np.array([comparison.answer == "first" for comparison in comparisons], bool)
        self._last_frames = np.array([max(len(episode) - 1, 1) for episode in episodes])

    def select(self, episode_rows: IntArray, frame_indices: IntArray) -> BatchComparisons:
        """Return the comparisons of a batch.

        Args:
            episode_rows: Index of the episode of each row, int64 [B]. Of a repeated episode, the first row counts.
            frame_indices: Sampled frames of each row, int64 [B, M].
        """
        own = np.flatnonzero(episode_rows < len(self._last_frames))[::-1]  # the others are replayed
        row_of_episode = np.full(len(self._last_frames), -1)
        row_of_episode[episode_rows[own]] = own
        rows = row_of_episode[self._episodes]
        times = frame_indices[rows] / self._last_frames[self._episodes][..., None]
        is_inside = (times >= self._edges[..., :1]) & (times <= self._edges[..., 1:])
        complete = (rows >= 0).all(1) & is_inside.any(-1).all(-1)
        return BatchComparisons(
            rows=rows[complete], is_inside=is_inside[complete], first_is_better=self._first_is_better[complete]
        )

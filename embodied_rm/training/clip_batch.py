"""Comparisons of clips in batches: a part of each batch is drawn from the table, with frames inside the clips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from embodied_rm.labels.comparisons import ClipComparison
from embodied_rm.labels.labeled_episode import LabeledEpisode
from embodied_rm.types import BoolArray, IntArray

FRAMES_PER_CLIP = 2  # frames of a batch that are drawn from a clip; others may be inside by chance
FIRST_CLIP_COLUMN = 2  # the columns before it are the first and the last frame of the episode


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
        self._num_episodes = len(episodes)
        clips = [(comparison.first, comparison.second) for comparison in comparisons]
        self._episodes = np.array([[indices[clip.episode] for clip in pair] for pair in clips], np.int64).reshape(-1, 2)
        frames = [[clip.frames(len(episodes[indices[clip.episode]])) for clip in pair] for pair in clips]
        edges = [[(clip.start, clip.stop) for clip in pair] for pair in frames]
        self._edges = np.array(edges, np.int64).reshape(-1, 2, 2)  # first frame, and end of the frames, excluded
        self._first_is_better = np.array([comparison.answer == "first" for comparison in comparisons], bool)

    def draw(self, num_rows: int, rng: np.random.Generator) -> IntArray:
        """Draw comparisons for half of the rows of a batch; int64 [K], of which each takes two rows."""
        if not len(self._episodes):
            return np.zeros(0, np.int64)
        return rng.integers(len(self._episodes), size=num_rows // 4)

    def episode_rows(self, drawn: IntArray) -> IntArray:
        """Return the episodes of drawn comparisons, int64 [2 K]."""
        return self._episodes[drawn].ravel()

    def place_frames(self, drawn: IntArray, frame_indices: Sequence[IntArray], rng: np.random.Generator) -> None:
        """Replace some sampled frames [M] of the first 2 K rows by frames of their clips, in place."""
        for (start, stop), indices in zip(self._edges[drawn].reshape(-1, 2), frame_indices, strict=False):
            columns = slice(FIRST_CLIP_COLUMN, FIRST_CLIP_COLUMN + FRAMES_PER_CLIP)
            indices[columns] = rng.integers(start, stop, size=len(indices[columns]))

    def select(self, episode_rows: IntArray, frame_indices: IntArray) -> BatchComparisons:
        """Return all comparisons between the rows of a batch.

        Args:
            episode_rows: Index of the episode of each row, int64 [B]. Of a repeated episode, the first row counts.
            frame_indices: Sampled frames of each row, int64 [B, M].
        """
        own = np.flatnonzero(episode_rows < self._num_episodes)[::-1]  # the others are replayed
        row_of_episode = np.full(self._num_episodes, -1)
        row_of_episode[episode_rows[own]] = own
        rows = row_of_episode[self._episodes]
        frames = frame_indices[rows]
        is_inside = (frames >= self._edges[..., :1]) & (frames < self._edges[..., 1:])
        complete = (rows >= 0).all(1) & is_inside.any(-1).all(-1)
        return BatchComparisons(
            rows=rows[complete], is_inside=is_inside[complete], first_is_better=self._first_is_better[complete]
        )

"""Videos in memory while they are learned from: a window over a dataset that is larger than memory.

Videos enter in a seeded order, read in a thread before they are wanted, and leave in that order. Which are there depends
on the seed and the number of the update alone: a run that goes on has the same batches as one that was never away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

import numpy as np

from embodied_rm.data.block_reader import PREFETCH_COUNT, prefetch
from embodied_rm.data.fingerprint import IndexedEpisode, fingerprint, hash_last_frame
from embodied_rm.distributed import SINGLE_PROCESS, DistContext
from embodied_rm.errors import UserError
from embodied_rm.types import Episode, Frames, IntArray

MEAN_DRAWS_PER_EPISODE = 8
"""How often a video is drawn, on average, before it leaves."""
BYTES_PER_GB = 10**9


class LazyFrames:
    """The images of one view, uint8 [T, H, W, 3]: there while the window is at their video."""

    dtype, ndim = np.dtype(np.uint8), 4

    def __init__(
        self, cache: Mapping[int, Mapping[str, Frames]], episode: int, view: str, shape: tuple[int, ...]
    ) -> None:
        self._cache, self._episode, self._view, self.shape = cache, episode, view, shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, frame_indices: Any) -> Frames:
        return self._cache[self._episode][self._view][frame_indices]


class StreamingEpisodes:
    """So many bytes of images at once. First every video is glimpsed, then the window begins to move."""

    def __init__(self, read_episode: Callable[[int], Episode], frame_cache_gb: float) -> None:
        """`read` gives the video of a row as it is learned from, whoever asks and from whichever thread."""
        if not frame_cache_gb > 0:
            raise UserError(f"memory_gb must be > 0 or null, got {frame_cache_gb}")
        self._read_episode, self.frame_cache_gb, self._budget_bytes = (
            read_episode,
            frame_cache_gb,
            int(frame_cache_gb * BYTES_PER_GB),
        )
        self._dataset_indices: list[int] = []
        self._episode_bytes: list[int] = []
        self._cache: dict[int, Mapping[str, Frames]] = {}

    def index_episode(self, dataset_index: int) -> IndexedEpisode:
        """Look at a video once: what is known of it, without its images. Raises `DataError` as reading does."""
        episode, position = self._read_episode(dataset_index), len(self._dataset_indices)
        self._dataset_indices.append(dataset_index)
        self._episode_bytes.append(sum(frames.nbytes for frames in episode.views.values()))
        if self.fits_in_memory:
            self._cache[position] = episode.views
        else:
            self._cache.clear()
        lazy_views: dict[str, Any] = {
            v: LazyFrames(self._cache, position, v, field.shape) for v, field in episode.views.items()
        }
        values = {field.name: getattr(episode, field.name) for field in fields(Episode)} | {
            "state": None,
            "action": None,
        }
        return IndexedEpisode(
            **{**values, "views": lazy_views},
            fingerprint=fingerprint(episode),
            last_frame_hash=hash_last_frame(episode),
        )

    @property
    def fits_in_memory(self) -> bool:
        """Whether it need not move: each of a group then holds all videos."""
        return sum(self._episode_bytes) <= self._budget_bytes

    def settings(self, dist_context: DistContext) -> dict[str, Any]:
        """What batches depend on, if it moves."""
        return {} if self.fits_in_memory else {"memory_gb": self.frame_cache_gb, "processes": dist_context.world_size}

    def start(self, seed: int, batch_size: int, dist_context: DistContext = SINGLE_PROCESS) -> None:
        """Get ready to move over the videos glimpsed. Each of a group has its own lane, of every so-manieth video, in
        which it draws its share of every batch. Raises `UserError` when the window may hold less than such a share."""
        self._seed, self._dist_context, self._local_batch_size = (
            seed,
            dist_context,
            dist_context.local_count(batch_size, "batch"),
        )
        self._episode_sizes = np.array(self._episode_bytes)
        self._epoch_order = lru_cache(64)(
            lambda epoch: np.random.default_rng([seed, epoch, 2]).permutation(len(self._dataset_indices))
        )
        self._ref_counts: Counter[int] = Counter()
        self._prefetched: Generator[tuple[int, Mapping[str, Frames]]] | None = None
        required_bytes = (self._local_batch_size + PREFETCH_COUNT) * int(self._episode_sizes.max())
        if not self.fits_in_memory and required_bytes > self._budget_bytes:
            raise UserError(
                f"memory_gb={self.frame_cache_gb:g} may hold fewer videos than the {self._local_batch_size} that a process draws for "
                f"batch={batch_size}, beside {PREFETCH_COUNT} that are read ahead: set memory_gb={required_bytes / BYTES_PER_GB:.3g} or more"
            )

    def rank_pools(self, step: int) -> list[IntArray] | None:
        """The videos that each process may draw in an update; None: all of them. Those of this process are there
        when this returns. To be asked update by update."""
        if self.fits_in_memory:
            return None
        self._move_to(self._resident_range(self._dist_context.rank, step))
        return [
            np.unique(self._episodes_at(rank, self._resident_range(rank, step)))
            for rank in range(self._dist_context.world_size)
        ]

    def close(self) -> None:
        """Read no further."""
        if self._prefetched is not None:
            self._prefetched.close()

    def _resident_range(self, rank: int, step: int) -> range:
        """Which videos of a lane, by their places in it, are in the window: with those read ahead they fit."""
        max_episodes = self._budget_bytes // int(self._episode_sizes.min()) + 1
        first = self._count_fitting(self._episodes_at(rank, range(max_episodes))) - PREFETCH_COUNT
        stop = first + step * self._local_batch_size // MEAN_DRAWS_PER_EPISODE
        episodes = self._episodes_at(rank, range(max(0, stop + PREFETCH_COUNT - max_episodes), stop + PREFETCH_COUNT))
        return range(stop + PREFETCH_COUNT - self._count_fitting(episodes[::-1]), stop)

    def _count_fitting(self, episodes: IntArray) -> int:
        """How many of these videos, from the first on, fit."""
        return int(np.searchsorted(np.cumsum(self._episode_sizes[episodes]), self._budget_bytes, side="right"))

    def _episodes_at(self, rank: int, positions: range) -> IntArray:
        """The videos at these places of a lane."""
        indices = np.arange(positions.start, positions.stop) * self._dist_context.world_size + rank
        if not len(indices):
            return indices
        first_epoch, last_epoch = indices[[0, -1]] // len(self._dataset_indices)
        order = np.concatenate([self._epoch_order(epoch) for epoch in range(first_epoch, last_epoch + 1)])
        return order[indices - first_epoch * len(self._dataset_indices)]

    def _move_to(self, resident: range) -> None:
        """Let videos go and take others in, until those of the span are there."""
        if self._prefetched is None:
            self._resident = range(resident.start, resident.start)
            self._prefetched = prefetch(self._read_from(resident.start))
        self._evict(range(self._resident.start, resident.start))
        for _ in range(self._resident.stop, resident.stop):
            episode, views = next(self._prefetched)
            self._cache[episode] = views
            self._ref_counts[episode] += 1
        self._resident = resident

    def _evict(self, positions: range) -> None:
        for episode in self._episodes_at(self._dist_context.rank, positions).tolist():
            self._ref_counts[episode] -= 1
            if not self._ref_counts[episode]:
                del self._cache[episode]

    def _read_from(self, position: int) -> Iterator[tuple[int, Mapping[str, Frames]]]:
        """The videos of this process's lane from a place on, without end."""
        while True:
            (episode,) = self._episodes_at(self._dist_context.rank, range(position, position + 1)).tolist()
            yield episode, self._read_episode(self._dataset_indices[episode]).views
            position += 1

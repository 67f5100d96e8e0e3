"""Train on datasets larger than memory: a window of episodes stays in memory and moves over the dataset.

Episodes enter in a seeded order, are prefetched in a thread, and leave in the same order. The window depends only on
the seed and the training step, so a resumed run draws the same batches as an uninterrupted one.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

import numpy as np

from embodied_rm.data.block_reader import PREFETCH_COUNT, prefetch
from embodied_rm.data.degenerate_views import find_degenerate_views
from embodied_rm.data.fingerprint import IndexedEpisode, fingerprint, hash_last_frame
from embodied_rm.distributed import SINGLE_PROCESS, DistContext
from embodied_rm.errors import UserError
from embodied_rm.types import Episode, Frames, IntArray

MEAN_DRAWS_PER_EPISODE = 8  # average number of draws per episode while it is in the window
BYTES_PER_GB = 10**9


class LazyFrames:
    """The frames of one view, uint8 [T, H, W, 3], available while the episode is in the window."""

    dtype = np.dtype(np.uint8)
    ndim = 4

    def __init__(
        self, cache: Mapping[int, Mapping[str, Frames]], episode: int, view: str, shape: tuple[int, ...]
    ) -> None:
        self._cache, self._episode, self._view, self.shape = cache, episode, view, shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, frame_indices: Any) -> Frames:
        return self._cache[self._episode][self._view][frame_indices]


class StreamingEpisodes:
    """A window of episodes with a limited number of bytes. Index every episode first, then call `start`."""

    def __init__(self, read_episode: Callable[[int], Episode], frame_cache_gb: float) -> None:
        """Create an empty window; `read_episode` reads the episode of a dataset index, in several threads."""
        if not frame_cache_gb > 0:
            raise UserError(f"frame_cache_gb must be > 0 or null, got {frame_cache_gb}")
        self._read_episode = read_episode
        self.frame_cache_gb = frame_cache_gb
        self._budget_bytes = int(frame_cache_gb * BYTES_PER_GB)
        self._dataset_indices: list[int] = []
        self._episode_bytes: list[int] = []
        self._cache: dict[int, Mapping[str, Frames]] = {}

    def index_episode(self, dataset_index: int) -> IndexedEpisode:
        """Read an episode once and return it with frames that are loaded on demand."""
        episode = self._read_episode(dataset_index)
        position = len(self._dataset_indices)
        self._dataset_indices.append(dataset_index)
        self._episode_bytes.append(sum(frames.nbytes for frames in episode.views.values()))
        if self.fits_in_memory:
            self._cache[position] = episode.views
        else:
            self._cache.clear()
        lazy_views = {name: LazyFrames(self._cache, position, name, v.shape) for name, v in episode.views.items()}
        values: dict[str, Any] = {field.name: getattr(episode, field.name) for field in fields(Episode)}
        values |= {"views": lazy_views, "state": None, "action": None}
        values |= {"fingerprint": fingerprint(episode), "last_frame_hash": hash_last_frame(episode)}
        return IndexedEpisode(**values, degenerate_views=find_degenerate_views(episode))

    @property
    def fits_in_memory(self) -> bool:
        """Whether all episodes fit; the window then never moves, and each process holds every episode."""
        return sum(self._episode_bytes) <= self._budget_bytes

    def settings(self, dist_context: DistContext) -> dict[str, Any]:
        """Return the settings that the batches depend on, if the window moves."""
        if self.fits_in_memory:
            return {}
        return {"frame_cache_gb": self.frame_cache_gb, "world_size": dist_context.world_size}

    def start(self, seed: int, batch_size: int, dist_context: DistContext = SINGLE_PROCESS) -> None:
        """Prepare the window for training on batches of `batch_size` episodes over all processes.

        Under torchrun, rank r of n reads every n-th episode, offset r, and draws its part of every batch from them.
        `UserError` if the window may hold fewer episodes than a process draws per batch.
        """
        self._dist_context = dist_context
        self._local_batch_size = dist_context.local_count(batch_size, "batch_size")
        self._episode_sizes = np.array(self._episode_bytes)
        self._epoch_order = lru_cache(64)(
            lambda epoch: np.random.default_rng([seed, epoch, 2]).permutation(len(self._dataset_indices))
        )
        self._ref_counts: Counter[int] = Counter()
        self._prefetched: Generator[tuple[int, Mapping[str, Frames]]] | None = None
        required_bytes = (self._local_batch_size + PREFETCH_COUNT) * int(self._episode_sizes.max())
        if not self.fits_in_memory and required_bytes > self._budget_bytes:
            raise UserError(
                f"frame_cache_gb={self.frame_cache_gb:g} may hold fewer episodes than the {self._local_batch_size} "
                f"that a process draws for batch_size={batch_size}, in addition to {PREFETCH_COUNT} prefetched ones: "
                f"set frame_cache_gb={required_bytes / BYTES_PER_GB:.3g} or more"
            )

    def rank_pools(self, step: int) -> list[IntArray] | None:
        """Return the episodes that each process may draw at a training step; None: all of them.

        Moves the window, so the episodes of this process are loaded on return. Call once per step, in order.
        """
        if self.fits_in_memory:
            return None
        self._move_to(self._resident_range(self._dist_context.rank, step))
        ranks = range(self._dist_context.world_size)
        return [np.unique(self._episodes_at(rank, self._resident_range(rank, step))) for rank in ranks]

    def close(self) -> None:
        """Stop prefetching."""
        if self._prefetched is not None:
            self._prefetched.close()

    def _resident_range(self, rank: int, step: int) -> range:
        """Positions in the order of one rank that are in the window; they fit together with the prefetched ones."""
        max_episodes = self._budget_bytes // int(self._episode_sizes.min()) + 1
        first = self._count_fitting(self._episodes_at(rank, range(max_episodes))) - PREFETCH_COUNT
        stop = first + step * self._local_batch_size // MEAN_DRAWS_PER_EPISODE
        episodes = self._episodes_at(rank, range(max(0, stop + PREFETCH_COUNT - max_episodes), stop + PREFETCH_COUNT))
        return range(stop + PREFETCH_COUNT - self._count_fitting(episodes[::-1]), stop)

    def _count_fitting(self, episodes: IntArray) -> int:
        """Number of these episodes, from the first on, that fit."""
        return int(np.searchsorted(np.cumsum(self._episode_sizes[episodes]), self._budget_bytes, side="right"))

    def _episodes_at(self, rank: int, positions: range) -> IntArray:
        """Episodes at these positions in the order of one rank."""
        indices = np.arange(positions.start, positions.stop) * self._dist_context.world_size + rank
        if not len(indices):
            return indices
        first_epoch, last_epoch = indices[[0, -1]] // len(self._dataset_indices)
        order = np.concatenate([self._epoch_order(epoch) for epoch in range(first_epoch, last_epoch + 1)])
        return order[indices - first_epoch * len(self._dataset_indices)]

    def _move_to(self, resident: range) -> None:
        """Evict and load episodes until the window holds exactly those positions."""
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
        """Yield the episodes of this process from a position on, without end."""
        while True:
            (episode,) = self._episodes_at(self._dist_context.rank, range(position, position + 1)).tolist()
            yield episode, self._read_episode(self._dataset_indices[episode]).views
            position += 1

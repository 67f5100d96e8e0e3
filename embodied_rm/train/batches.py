"""Batches of moments, drawn from labeled episodes in memory. Numpy only; every draw has its generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from embodied_rm.labels.labeled_episode import LabeledEpisode
from embodied_rm.labels.targets import Targets, stack_targets
from embodied_rm.train.frame_sampling import sample_frames
from embodied_rm.train.instruction_augment import InstructionAugmenter
from embodied_rm.train.negative_instructions import NegativeInstructions
from embodied_rm.types import BoolArray, IntArray

NUM_NEGATIVES = 3
"""Instructions that want something else, which the end of every episode is shown under."""


@dataclass(frozen=True, kw_only=True)
class LabeledBatch:
    """B episodes at M moments each; moment 0 is the first frame, the last one a goal image."""

    frames: npt.NDArray[Any]
    """uint8 [B, M, V, H, W, 3], or maps float16 [B, M, V, C, h, w]; a view that an episode lacks is black."""
    present: BoolArray
    """bool [B, M, V]."""
    instructions: tuple[str, ...]
    negatives: tuple[tuple[str, ...], ...]
    """[`FOREIGN`][B]: for each episode instructions that want something else; its own where no other goal is known."""
    negatives_known: BoolArray
    """bool [`FOREIGN`, B]: whether the last frame is surely not what `foreign` wants, because it is what the episode's
    own instruction wants. A failure may by chance be what somebody else asked for."""
    goals: tuple[str, ...]
    """See `goal_of`."""
    frame_indices: IntArray
    """int64 [B, M - 1]: the frame of every moment but the goal."""
    targets: Mapping[str, Targets]
    """Labeling scheme -> what it says of these moments, [B, M - 1]."""
    has_goal: BoolArray
    """bool [B]: whether the last moment shows the task done, in another video of the same goal. Where there is none,
    that moment must not be used: who knows how this video ends has nothing to judge."""


class LabeledBatchSampler:
    """Draws batches from labeled episodes; the same generator state gives the same batch."""

    def __init__(
        self,
        episodes: Sequence[LabeledEpisode],
        views: Sequence[str],
        replay_episodes: Sequence[LabeledEpisode] = (),
        negative_instructions: Sequence[str] = (),
        word_replacement_prob: float = 0.0,
        replacement_words: Sequence[str] = (),
    ) -> None:
        """Images of all episodes must have one size. `views`: names of the V axis.

        `rehearsed`: episodes that make up half of every batch, whatever their number; none: no such half. `foreign`:
        instructions of the first episode's task that want what none of the episodes does. `words`, `other_words`: share
        of the words that are replaced, and by which, see `Wording`.
        """
        all_episodes, self.views = [*episodes, *replay_episodes], tuple(views)
        self.episodes = share_instructions(all_episodes)
        examples = (
            (e.task, " | ".join(sorted(e.instructions)), instruction)
            for e in all_episodes
            for instruction in e.instructions
        )
        self._augmenter = InstructionAugmenter(examples, replacement_words, word_replacement_prob)
        self._pools = [pool for pool in (range(len(episodes)), range(len(episodes), len(self.episodes))) if pool]
        self._weights = sampling_weights(self.episodes)
        first_view = next(iter(self.episodes[0].views.values()))
        self._image_shape, self._dtype = first_view.shape[1:], first_view.dtype
        self._successes_by_goal: dict[str, list[int]] = {}
        for i, episode in enumerate(self.episodes):
            if episode.success[-1]:
                self._successes_by_goal.setdefault(episode.goal, []).append(i)
        extra_negatives = [(self.episodes[0].task, text) for text in negative_instructions]
        self._negatives = NegativeInstructions(self.episodes, self._augmenter, extra_negatives)

    def sample(
        self,
        batch_size: int,
        num_timesteps: int,
        rng: np.random.Generator,
        rank_pools: Sequence[IntArray] | None = None,
        visible_rows: slice = slice(None),
    ) -> LabeledBatch:
        """A batch of `size` episodes at `moments` moments and a goal.

        `lanes`: which episodes each part of the batch is drawn from, goals too; None: from all. `shown`: the rows whose
        images are looked at; those of the others are black.
        """
        pools = self._sample_rows(batch_size, rng, self._pools if rank_pools is None else rank_pools)
        rows = np.concatenate(pools)
        episodes = [self.episodes[row] for row in rows]
        frame_indices = [sample_frames(episode.progress, num_timesteps, rng) for episode in episodes]
        allowed_rows = [None if rank_pools is None else set(rank_pools[i].tolist()) for i in range(len(pools))]
        goals = [
            self._sample_goal(int(row), rng, allowed)
            for pool, allowed in zip(pools, allowed_rows, strict=True)
            for row in pool
        ]
        loaded_rows = range(batch_size)[visible_rows]
        shape = (batch_size, num_timesteps + 1, len(self.views))
        frames, present = np.zeros((*shape, *self._image_shape), self._dtype), np.zeros(shape, bool)
        for b, (episode, goal) in enumerate(zip(episodes, goals, strict=True)):
            goal_episode = episode if goal is None else goal
            last_index = np.array([len(goal_episode) - 1])
            for source, indices, columns in (
                (episode, frame_indices[b], slice(-1)),
                (goal_episode, last_index, slice(-1, None)),
            ):
                self._fill_images(
                    source, indices, frames[b, columns] if b in loaded_rows else None, present[b, columns]
                )
        negatives = [[self._negatives.sample(episode, rng) for episode in episodes] for _ in range(NUM_NEGATIVES)]
        own_instructions = [e.sentences[0] for e in episodes]
        targets = [
            {name: t.at(m) for name, t in e.targets.items()} for e, m in zip(episodes, frame_indices, strict=True)
        ]
        return LabeledBatch(
            frames=frames,
            present=present,
            instructions=tuple(self._augmenter.augment(e.sentence(rng), e.task, rng) for e in episodes),
            negatives=tuple(
                tuple(own_text if t is None else t for t, own_text in zip(texts, own_instructions, strict=True))
                for texts in negatives
            ),
            negatives_known=np.array([bool(e.done[-1]) for e in episodes])
            & np.array([[text is not None for text in texts] for texts in negatives]),
            goals=tuple(episode.goal for episode in episodes),
            frame_indices=np.stack(frame_indices),
            targets={name: stack_targets([row[name] for row in targets]) for name in targets[0]},
            has_goal=np.array([goal is not None for goal in goals]),
        )

    def _sample_rows(
        self, batch_size: int, rng: np.random.Generator, pools: Sequence[Sequence[int] | IntArray]
    ) -> list[IntArray]:
        """Which episodes a batch has: as many of each pool, none twice while there are enough."""
        counts = [len(part) for part in np.array_split(np.arange(batch_size), len(pools))]

        def sample_pool(pool: Sequence[int] | IntArray, count: int) -> IntArray:
            weights = self._weights[pool]
            return rng.choice(pool, count, replace=count > len(pool), p=weights / weights.sum())

        return [sample_pool(pool, count) for pool, count in zip(pools, counts, strict=True)]

    def _sample_goal(self, row: int, rng: np.random.Generator, allowed: Set[int] | None) -> LabeledEpisode | None:
        """Another video that ends in success at the same goal, of those that are `held` (None: all), the same one in
        other words not counted; None: there is none."""
        episode = self.episodes[row]
        others = (i for i in self._successes_by_goal.get(episode.goal, ()) if allowed is None or i in allowed)
        candidates = [i for i in others if self.episodes[i].last_frame_hash != episode.last_frame_hash]
        return self.episodes[candidates[rng.integers(len(candidates))]] if candidates else None

    def _fill_images(
        self, episode: LabeledEpisode, indices: IntArray, frames: npt.NDArray[Any] | None, present: BoolArray
    ) -> None:
        """Write the episode's images at those moments into `frames` [M, V, ...], if there are any."""
        for v, name in enumerate(self.views):
            if name in episode.views:
                present[:, v] = True
                if frames is not None:
                    frames[:, v] = episode.views[name][indices]


def share_instructions(episodes: Sequence[LabeledEpisode]) -> list[LabeledEpisode]:
    """The episodes, each with the sentences of all that want the same of the same task: whoever was told "red left,
    blue right" has also done "blue right, red left"."""
    shared_instructions: dict[tuple[str, str], dict[str, None]] = {}
    for episode in episodes:
        if episode.recorded_goal is not None:
            shared_instructions.setdefault((episode.task, episode.recorded_goal), {}).update(
                dict.fromkeys(episode.instructions)
            )
    return [
        episode
        if episode.recorded_goal is None
        else replace(episode, instructions=tuple(shared_instructions[episode.task, episode.recorded_goal]))
        for episode in episodes
    ]


def sampling_weights(episodes: Sequence[LabeledEpisode]) -> npt.NDArray[np.float64]:
    """[E]: how often each is drawn. A task of many goals comes more often than its episodes do, by the root of their
    number: which of twelve towers is wanted takes longer to learn than whether a drawer is."""
    goals: dict[str, set[str]] = {}
    for episode in episodes:
        goals.setdefault(episode.task, set()).add(episode.goal)
    return np.array([np.sqrt(len(goals[episode.task])) for episode in episodes])

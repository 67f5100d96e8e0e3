"""Batches of sampled frames from labeled episodes (numpy only)."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from embodied_rm.labels.comparisons import ClipComparison
from embodied_rm.labels.labeled_episode import LabeledEpisode
from embodied_rm.labels.targets import Targets, stack_targets
from embodied_rm.training.clip_batch import BatchComparisons, ComparisonIndex
from embodied_rm.training.instruction_augment import InstructionAugmenter
from embodied_rm.training.negative_instructions import NegativeInstructions
from embodied_rm.types import Array, BoolArray, IntArray

ADJACENT_FRACTION = 0.4  # fraction of frames close to another one: scoring every frame needs small hops
MAX_ADJACENT_OFFSET_FRAMES = 8  # largest distance of such a frame, in frames
NUM_NEGATIVES = 3  # number of negative instructions per episode


@dataclass(frozen=True, kw_only=True)
class LabeledBatch:
    """B episodes at M images each: the first frame, the last frame, other frames, and a goal image."""

    frames: npt.NDArray[Any]  # uint8 [B, M, V, H, W, 3], or features float16 [B, M, V, C, h, w]; missing views are 0
    present: BoolArray  # bool [B, M, V]
    instructions: tuple[str, ...]
    negatives: tuple[tuple[str, ...], ...]
    """[`NUM_NEGATIVES`][B]: instructions of other goals; the episode's own if no other goal is known."""
    negatives_known: BoolArray
    """bool [`NUM_NEGATIVES`, B]: whether the last frame certainly does not fulfil the negative instruction, because it
    fulfils the episode's own. A failure may fulfil another instruction by chance."""
    goals: tuple[str, ...]  # see `goal_of`
    frame_indices: IntArray  # frame index of every image but the goal, int64 [B, M - 1]
    targets: Mapping[str, Targets]  # labeling scheme -> targets of these frames, [B, M - 1]
    has_goal: BoolArray
    """bool [B]: whether the goal image is from another successful episode of the same goal. Otherwise it is the end of
    the episode itself, which would leak its outcome, and must not be used."""
    comparisons: BatchComparisons  # of clips of these episodes


class LabeledBatchSampler:
    """Samples batches from labeled episodes, deterministically for a generator state."""

    def __init__(
        self,
        episodes: Sequence[LabeledEpisode],
        views: Sequence[str],
        replay_episodes: Sequence[LabeledEpisode] = (),
        negative_instructions: Sequence[str] = (),
        word_replacement_prob: float = 0.0,
        replacement_words: Sequence[str] = (),
        comparisons: Sequence[ClipComparison] = (),
    ) -> None:
        """Create a sampler of episodes with images of one size; `views` names the V axis.

        `replay_episodes` fill half of every batch, if there are any. `negative_instructions` are further ones of the
        first episode's task that no episode fulfils. The next two arguments are those of `InstructionAugmenter`.
        `comparisons` are of clips of `episodes`.
        """
        all_episodes, self.views = [*episodes, *replay_episodes], tuple(views)
        self.episodes = share_instructions(all_episodes)
        examples = ((e.task, " | ".join(sorted(e.instructions)), text) for e in all_episodes for text in e.instructions)
        self._augmenter = InstructionAugmenter(examples, replacement_words, word_replacement_prob)
        self._pools = [pool for pool in (range(len(episodes)), range(len(episodes), len(self.episodes))) if pool]
        self._weights = sampling_weights(self.episodes)
        first_view = next(iter(self.episodes[0].views.values()))
        self._image_shape, self._dtype = first_view.shape[1:], first_view.dtype
        self._successes_by_goal: dict[str, list[int]] = {}
        for i, episode in enumerate(self.episodes):
            if episode.success[-1]:
                self._successes_by_goal.setdefault(episode.goal, []).append(i)
        self._comparisons = ComparisonIndex(comparisons, episodes)
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
        """Sample a batch of `num_timesteps` frames per episode, without the goal image.

        `rank_pools`: episode indices per process, from which its part of the batch and its goals are drawn; None: all.
        Only the rows `visible_rows` have images; the others are 0.
        """
        pools = self._sample_rows(batch_size, rng, self._pools if rank_pools is None else rank_pools)
        drawn = self._comparisons.draw(len(pools[0]), rng)
        pools[0][: 2 * len(drawn)] = self._comparisons.episode_rows(drawn)
        rows = np.concatenate(pools)
        episodes = [self.episodes[row] for row in rows]
        frame_indices = [sample_frames(episode.progress, num_timesteps, rng) for episode in episodes]
        self._comparisons.place_frames(drawn, frame_indices, rng)
        allowed_rows = [None] * len(pools) if rank_pools is None else [set(pool.tolist()) for pool in rank_pools]
        candidates = [(int(row), allowed) for pool, allowed in zip(pools, allowed_rows, strict=True) for row in pool]
        goals = [self._sample_goal(row, rng, allowed) for row, allowed in candidates]
        loaded_rows = range(batch_size)[visible_rows]
        shape = (batch_size, num_timesteps + 1, len(self.views))
        frames, present = np.zeros((*shape, *self._image_shape), self._dtype), np.zeros(shape, bool)
        for b, (episode, goal) in enumerate(zip(episodes, goals, strict=True)):
            goal_episode = episode if goal is None else goal
            last_index, loaded = np.array([len(goal_episode) - 1]), b in loaded_rows
            self._fill_images(episode, frame_indices[b], frames[b, :-1] if loaded else None, present[b, :-1])
            self._fill_images(goal_episode, last_index, frames[b, -1:] if loaded else None, present[b, -1:])
        negatives = [[self._negatives.sample(episode, rng) for episode in episodes] for _ in range(NUM_NEGATIVES)]
        rows_of_negatives = [zip(episodes, texts, strict=True) for texts in negatives]
        frames_of_episodes = list(zip(episodes, frame_indices, strict=True))
        return LabeledBatch(
            frames=frames,
            present=present,
            instructions=tuple(self._augmenter.augment(e.sample_instruction(rng), e.task, rng) for e in episodes),
            negatives=tuple(tuple(e.instructions[0] if t is None else t for e, t in row) for row in rows_of_negatives),
            negatives_known=np.array([bool(e.success[-1]) for e in episodes])
            & np.array([[text is not None for text in texts] for texts in negatives]),
            goals=tuple(episode.goal for episode in episodes),
            frame_indices=np.stack(frame_indices),
            targets={
                name: stack_targets([episode.targets[name].take(m) for episode, m in frames_of_episodes])
                for name in episodes[0].targets
            },
            has_goal=np.array([goal is not None for goal in goals]),
            comparisons=self._comparisons.select(rows, np.stack(frame_indices)),
        )

    def _sample_rows(
        self, batch_size: int, rng: np.random.Generator, pools: Sequence[Sequence[int] | IntArray]
    ) -> list[IntArray]:
        """Draw equally many episodes from each pool, without replacement if the pool is large enough."""
        counts = [len(part) for part in np.array_split(np.arange(batch_size), len(pools))]
        weighted = zip(pools, counts, (self._weights[pool] for pool in pools), strict=True)
        return [rng.choice(pool, n, replace=n > len(pool), p=weights / weights.sum()) for pool, n, weights in weighted]

    def _sample_goal(self, row: int, rng: np.random.Generator, allowed: Set[int] | None) -> LabeledEpisode | None:
        """Draw another success of the same goal among the allowed rows (None: all); None without one.

        The same video with another instruction is excluded by its last frame.
        """
        episode = self.episodes[row]
        others = (i for i in self._successes_by_goal.get(episode.goal, ()) if allowed is None or i in allowed)
        candidates = [i for i in others if self.episodes[i].last_frame_hash != episode.last_frame_hash]
        return self.episodes[candidates[rng.integers(len(candidates))]] if candidates else None

    def _fill_images(
        self, episode: LabeledEpisode, indices: IntArray, frames: npt.NDArray[Any] | None, present: BoolArray
    ) -> None:
        """Write the images of some frames into `frames` [M, V, ...] (None: skip), and their views into `present`."""
        for v, name in enumerate(self.views):
            if name in episode.views:
                present[:, v] = True
                if frames is not None:
                    frames[:, v] = episode.views[name][indices]


def share_instructions(episodes: Sequence[LabeledEpisode]) -> list[LabeledEpisode]:
    """Give each episode the instructions of all episodes of its task and recorded goal, such as reordered clauses."""
    shared: dict[tuple[str, str], dict[str, None]] = {}
    for e in episodes:
        if e.recorded_goal is not None:
            shared.setdefault((e.task, e.recorded_goal), {}).update(dict.fromkeys(e.instructions))
    return [
        e if e.recorded_goal is None else replace(e, instructions=tuple(shared[e.task, e.recorded_goal]))
        for e in episodes
    ]


def sampling_weights(episodes: Sequence[LabeledEpisode]) -> npt.NDArray[np.float64]:
    """Return the weight per episode [E]: the root of the number of goals of its task, as more goals take longer."""
    goals: dict[str, set[str]] = {}
    for episode in episodes:
        goals.setdefault(episode.task, set()).add(episode.goal)
    return np.array([np.sqrt(len(goals[episode.task])) for episode in episodes])


def sample_frames(progress: Array, count: int, rng: np.random.Generator) -> IntArray:
    """Sample frames of an episode with progress [T]: the first, the last and `count - 2` others; int64 [count].

    Half of the others are uniform in time and half in progress, so hops of all sizes and gaps occur, also hops of 0. A
    fraction `ADJACENT_FRACTION` is close to another frame. Follows Robo-Dopamine's 25 hop by 4 gap bins.
    """
    assert count >= 3
    last, num_others = len(progress) - 1, count - 2
    num_adjacent = int(num_others * ADJACENT_FRACTION)
    num_stratified = num_others - num_adjacent
    by_time = rng.integers(0, last + 1, size=(num_stratified + 1) // 2)
    progress_targets = rng.uniform(progress.min(), progress.max(), size=num_stratified // 2)
    by_progress = _nearest_frames(progress, progress_targets, rng)
    frames = np.concatenate([[0, last], by_time, by_progress])
    offset = rng.integers(1, MAX_ADJACENT_OFFSET_FRAMES + 1, size=num_adjacent) * rng.choice([-1, 1], size=num_adjacent)
    return np.concatenate([frames, np.clip(rng.choice(frames, size=num_adjacent) + offset, 0, last)])


def _nearest_frames(progress: Array, progress_targets: npt.NDArray[np.float64], rng: np.random.Generator) -> IntArray:
    """Return the frame closest to each progress target, a random one of several (a stall)."""
    distance = np.abs(progress[None] - progress_targets[:, None])
    tie_break = 1e-3 * rng.random(distance.shape)
    return np.argmin(distance + tie_break, axis=1)

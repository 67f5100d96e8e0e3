"""`Scorer`: a reward model with its goal and demonstration, applied to episodes of a source."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np

from embodied_rm.data.block_reader import iter_blocks, iter_views
from embodied_rm.data.source import EpisodeSource, stride_indices
from embodied_rm.errors import DataError
from embodied_rm.models.reward_model import DescribedRewardModel, InputSpec
from embodied_rm.models.scoring import score_video
from embodied_rm.run_folder import Reporter
from embodied_rm.types import Episode, IntArray, RewardOutput, Views


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """A reward model and its inputs other than the recording."""

    model: DescribedRewardModel
    goal: Episode | None = None  # its last frame is the goal image
    reference: Episode | None = None  # a demonstration of the task

    @property
    def num_unscored(self) -> Counter[str]:
        """Number of unscored frames so far, by reason."""
        return Counter(self.model.capabilities.failures)


@dataclass(frozen=True, kw_only=True)
class ScoredEpisode:
    """The result of scoring one episode."""

    row: int
    prediction: RewardOutput | DataError  # the prediction of its frames, or the error that prevents reading it
    num_unscored: Counter[str] = field(default_factory=Counter)  # number of its unscored frames, by reason


def score_rows(
    scorer: Scorer,
    source: EpisodeSource,
    rows: Iterable[int],
    frame_stride: int,
    reporter: Reporter,
    num_blocks: int | None,
) -> Iterator[ScoredEpisode]:
    """Score these episodes in order, without repetitions, while the next ones are decoded.

    Every `frame_stride`-th frame is scored, and the last one; `num_blocks` counts the blocks of all episodes, if known.
    """
    input_spec = scorer.model.input_spec
    views = input_spec.select_views(source.views, "the recording")
    block_stream = iter_blocks(source, rows, views, input_spec.image_size)
    for row, episode_blocks in groupby(reporter.track(block_stream, "score", num_blocks), key=itemgetter(0)):
        meta, unscored_before = source.meta[row], scorer.num_unscored
        frame_indices = stride_indices(meta.length, frame_stride)
        frames = select_frames(iter_views(episode_blocks), frame_indices)
        try:
            prediction = score_video(scorer.model, meta.instruction, frames, scorer.goal, scorer.reference)
        except DataError as error:
            yield ScoredEpisode(row=row, prediction=error)
            continue
        prediction = zero_order_hold(prediction, frame_indices, meta.length)
        yield ScoredEpisode(row=row, prediction=prediction, num_unscored=scorer.num_unscored - unscored_before)


def select_frames(blocks: Iterable[Views], frame_indices: IntArray) -> Iterator[Views]:
    """Select frames by index from the consecutive blocks of a video."""
    start = 0
    for views in blocks:
        block_indices = frame_indices[(frame_indices >= start) & (frame_indices < start + len(views))] - start
        start += len(views)
        if len(block_indices):
            yield views if len(block_indices) == len(views) else views.select(block_indices)


def zero_order_hold(prediction: RewardOutput, frame_indices: IntArray, length: int) -> RewardOutput:
    """Extend a prediction of the frames `frame_indices` to all `length` frames, repeating the previous value."""
    source_indices = np.searchsorted(frame_indices, np.arange(length), side="right") - 1
    return RewardOutput(**{name: column[source_indices] for name, column in vars(prediction).items()})


def read_episodes_for(
    input_spec: InputSpec, source: EpisodeSource, rows: Sequence[int] | None = None, frame_stride: int = 1
) -> Iterator[Episode]:
    """Read episodes (None: all) with the views and image size of a model, by `frame_stride`."""
    views = input_spec.select_views(source.views, "the recording")
    for row in range(len(source)) if rows is None else rows:
        yield source.episode(row, views=views, size=input_spec.image_size, stride=frame_stride)

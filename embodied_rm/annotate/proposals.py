"""Proposed subtasks for episodes without annotation."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from embodied_rm.data.block_reader import iter_blocks
from embodied_rm.data.source import EpisodeSource, stride_indices
from embodied_rm.errors import DataError
from embodied_rm.labels.change_points import choose_segment_count, coarse_features, segment_sequence, subtask_edges
from embodied_rm.types import Array, Episode, IntArray, Subtask

SubtaskProposer = Callable[[Episode], Sequence[Subtask]]
"""Returns subtasks for a downsampled episode, in its frame indices. Any model can be used."""

MAX_FRAMES = 600
MAX_IMAGE_SIDE = 128
"""Maximum number of frames, and maximum longer side of their images in pixels, that a proposer receives."""


def change_point_proposer(subtask_names: Sequence[str] = ()) -> SubtaskProposer:
    """Return a proposer that splits episodes where the images change, or where the gripper opens or closes.

    Uses the change points of `train label_schemes=[change_points]`. One subtask is proposed per name. Without names,
    the number of subtasks is estimated from the images.
    """

    def propose(episode: Episode) -> list[Subtask]:
        features = coarse_features(episode)
        if subtask_names:
            edges = segment_sequence(features, len(subtask_names), np.zeros(len(episode), np.bool_))
        else:
            edges = subtask_edges(episode, features, choose_segment_count([features]))
        return name_segments(edges, subtask_names or [f"subtask {index + 1}" for index in range(len(edges))])

    return propose


def progress_proposer(predict_progress: Callable[[Episode], Array], subtask_names: Sequence[str]) -> SubtaskProposer:
    """Return a proposer that splits episodes into equal shares of the predicted progress.

    A subtask starts after the last frame whose progress is below its share. `predict_progress` returns float32 [T].
    There is at least one name; an episode with fewer frames gets only the first names.
    """

    def propose(episode: Episode) -> list[Subtask]:
        edges = equal_progress_edges(predict_progress(episode), min(len(subtask_names), len(episode)))
        return name_segments(edges, subtask_names)

    return propose


def name_segments(edges: Sequence[int], names: Sequence[str]) -> list[Subtask]:
    """Return the subtasks between adjacent edges; further names are unused."""
    segments = zip(names, pairwise(edges), strict=False)
    return [Subtask(name=name, start=start, end=end) for name, (start, end) in segments]


def equal_progress_edges(progress: Array, num_parts: int) -> list[int]:
    """Return the start frames of `num_parts` equal shares of a progress [T], and T; each share has a frame."""
    edges, length = [0], len(progress)
    for part in range(1, num_parts):
        frames_below = np.flatnonzero(progress < part / num_parts)
        edge = int(frames_below[-1]) + 1 if len(frames_below) else 0
        edges.append(min(max(edge, edges[-1] + 1), length - (num_parts - part)))
    return [*edges, length]


def propose_subtasks(source: EpisodeSource, index: int, proposer: SubtaskProposer) -> tuple[Subtask, ...]:
    """Return the proposed subtasks of one episode, in indices of all its frames."""
    episode, frame_indices = downsample_episode(source, index)
    edges = np.append(frame_indices, source.meta[index].length)
    return tuple(
        Subtask(name=subtask.name, start=int(edges[subtask.start]), end=int(edges[subtask.end]))
        for subtask in proposer(episode)
    )


def downsample_episode(source: EpisodeSource, index: int) -> tuple[Episode, IntArray]:
    """Return the episode as a proposer receives it, without its subtasks, and the indices of its frames."""
    meta, fps = source.meta[index], source.frame_rate(index)
    stride = -(-meta.length // MAX_FRAMES)
    frame_indices = stride_indices(meta.length, stride)
    kept_blocks, start = [], 0
    for _, block in iter_blocks(source, [index], source.views, fit_size(*source.image_size(index), MAX_IMAGE_SIDE)):
        if isinstance(block, DataError):
            raise block
        stop = start + len(block)
        in_block = frame_indices[(frame_indices >= start) & (frame_indices < stop)] - start
        kept_blocks.append(np.asarray(block.frames)[in_block])
        start = stop
    frames = np.concatenate(kept_blocks).swapaxes(0, 1)
    columns = source.columns(index).select(frame_indices)
    episode = Episode(
        name=meta.name, views=dict(zip(source.views, frames, strict=True)), instruction=meta.instruction,
        fps=fps / stride, success=meta.success, state=columns.state, action=columns.action, metadata=meta.metadata,
    )  # fmt: skip
    return episode, frame_indices


def fit_size(height: int, width: int, max_side: int) -> tuple[int, int]:
    """Return the height and width of an image whose longer side is at most `max_side`."""
    scale = min(1.0, max_side / max(height, width))
    return max(1, round(height * scale)), max(1, round(width * scale))

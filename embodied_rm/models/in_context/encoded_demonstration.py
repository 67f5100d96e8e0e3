"""`EncodedDemonstration`: the keyframes of a demonstration, as each of its views shows them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from embodied_rm.errors import DataError
from embodied_rm.labels.true_progress import true_progress
from embodied_rm.models.in_context.alignment import CHANGE_PER_KEYFRAME, keyframe_indices, mean_pairwise_distance
from embodied_rm.models.in_context.appearance import (
    Appearance,
    cell_motion,
    changed_cell_weights,
    make_appearance,
    num_end_frames,
    squared_distances,
    still_scene,
    weigh_cells,
)
from embodied_rm.models.in_context.cell_metric import CellMetric, identity_metric
from embodied_rm.models.in_context.direction import NO_SKILL, DirectionSkill, measure_skill
from embodied_rm.models.in_context.frozen_encoder import FrozenEncoder
from embodied_rm.models.reward_model import UNKNOWN_SUBTASK
from embodied_rm.models.view_fusion import visible_views
from embodied_rm.models.zero_shot.zero_shot_net import ZeroShotNet
from embodied_rm.types import Array, Episode, IntArray, Views

SCENE_CHANGE = 0.06  # change between two updates of the scene, as a fraction of the mean distance of two frames
STILL_MOTION = 0.5  # change of a cell that is hardly still any more, as a fraction of a cell's mean change per update
FRAMES_PER_BLOCK = 64  # frames that are encoded at a time, to bound the memory
STILL_DISTANCE = 0.025
"""Mean squared distance of two frames up to which a view shows nothing that changes. Noise of two pixel levels in an
image of a real robot gives 0.010 to 0.020; the stillest of twelve views of real demonstrations has 0.146."""
FRAME_WEIGHT, SCENE_WEIGHT, CHANGE_WEIGHT = 2.0, 2.0, 3.0
"""Log likelihood per distance, in mean distances of two keyframes: of the frame, of the scene without what moves, and
of the cells that the demonstration changed."""


@dataclass(frozen=True, kw_only=True)
class EncodingConfig:
    """How finely a demonstration is encoded, and how its frames are compared."""

    max_frames: int = 240  # frames of a demonstration that are encoded, evenly spaced
    change_per_keyframe: float = CHANGE_PER_KEYFRAME
    frame_weight: float = FRAME_WEIGHT  # log likelihood per distance of the frame
    metrics: Mapping[str, CellMetric] = field(default_factory=dict)  # of each view; none: all directions count alike


DEFAULT_ENCODING = EncodingConfig()


@dataclass(frozen=True, kw_only=True)
class EncodedView:
    """The keyframes of one view, R of them, and the scales of their distances."""

    metric: CellMetric  # how frames are compared
    coarse: Tensor  # cells of the keyframes, transformed by the metric, float [R, cells, C]
    scene: Tensor  # cells of the scene without what moves, float [R, cells, C]
    changed: Tensor  # weighted cells that the demonstration changed, float [R, D]
    cell_weights: tuple[Tensor, ...]  # weights of the cells, per level
    scene_threshold: float  # change of the coarse cells after which the scene is updated
    motion: Tensor  # squared change between two updates at which a cell is hardly still any more, float []
    scales: tuple[Tensor, Tensor, Tensor]  # mean distance of two keyframes: of frame, scene and changed cells

    def distances(self, frame: Appearance, scene: Tensor) -> Tensor:
        """Distances [3, M, R] of M frames to the keyframes, in mean distances of two keyframes.

        Args:
            frame: The frames.
            scene: Their scenes without what moves, float [M, cells, C].

        Returns:
            Distances of the frame, of the scene and of the changed cells.
        """
        changed = weigh_cells(frame.fine, self.cell_weights)
        parts = (
            squared_distances(self.metric.transform(frame.coarse), self.coarse),
            squared_distances(scene, self.scene),
            torch.cdist(changed, self.changed).square(),
        )
        return torch.stack([part / scale for part, scale in zip(parts, self.scales, strict=True)])


@dataclass(frozen=True, kw_only=True)
class EncodedDemonstration:
    """A demonstration, ready for alignment. Shapes: R keyframes."""

    name: str  # of the episode
    views: Mapping[str, EncodedView]
    progress: Tensor  # progress of the keyframes, float [R] in [0, 1]
    subtasks: IntArray  # index of the annotated subtask of each keyframe, int64 [R]; -1 without annotation
    duration: Tensor  # fraction of the time that each keyframe lasts, float [R] of sum 1
    move_threshold: float  # change of the coarse cells after which a video has moved
    frame_weight: float  # log likelihood per distance of the frame
    frame_rate: float  # frames per second of which the keyframes were selected
    skill: DirectionSkill = NO_SKILL  # of the nets that see whether a video comes forward

    def __len__(self) -> int:
        return len(self.progress)

    @property
    def num_end_frames(self) -> int:
        """Number of keyframes that show the scene before the task, and of those that show it after."""
        return num_end_frames(len(self))


def demonstration_stride(length: int, max_frames: int = EncodingConfig.max_frames) -> int:
    """Return n such that every n-th frame of a demonstration is encoded."""
    return max(1, -(-(length - 1) // max_frames))


def encode_demonstration(
    episode: Episode,
    encoder: FrozenEncoder,
    config: EncodingConfig = DEFAULT_ENCODING,
    direction_net: ZeroShotNet | None = None,
) -> EncodedDemonstration:
    """Encode a demonstration.

    Args:
        episode: A success.
        encoder: The image encoder.
        config: How finely it is encoded.
        direction_net: Nets whose skill is measured on it.

    Raises:
        DataError: When no view shows a change.
    """
    stride = demonstration_stride(len(episode), config.max_frames)
    index = select_visible(episode, np.arange(0, len(episode), stride))
    frames, distances = encode_moving_views(episode, index, encoder)
    threshold = config.change_per_keyframe * float(mean_pairwise_distance(distances))
    keyframes = keyframe_indices(distances, threshold)
    ends = np.append(index[keyframes[1:]], len(episode))
    duration = torch.from_numpy(np.diff(ends, prepend=0)).float()
    progress = demonstrated_progress(episode, index[keyframes])
    skill = NO_SKILL
    if direction_net is not None:
        progress_of_frames = np.interp(index, index[keyframes], progress).astype(np.float32)
        levels = [appearance.fine for appearance in frames.values()]
        skill = measure_skill(direction_net, levels, torch.from_numpy(progress_of_frames))
    return EncodedDemonstration(
        name=episode.name,
        views={
            name: encode_view(appearance, keyframes, config.metrics.get(name)) for name, appearance in frames.items()
        },
        progress=torch.from_numpy(progress),
        subtasks=subtask_of_frames(episode, index[keyframes]),
        duration=duration / duration.sum(),
        move_threshold=threshold,
        frame_weight=config.frame_weight,
        frame_rate=episode.fps / stride,
        skill=skill,
    )


def select_visible(episode: Episode, index: IntArray) -> IntArray:
    """Return those of the frames `index` in which some view shows more than a single color."""
    visible = np.zeros(len(index), bool)
    for name, video in episode.views.items():
        visible |= visible_views(Views(names=(name,), frames=video[index, None]))[:, 0]
    return index[visible]


def encode_moving_views(
    episode: Episode, index: IntArray, encoder: FrozenEncoder
) -> tuple[dict[str, Appearance], Tensor]:
    """Encode the frames `index` of the views in which something changes.

    Returns:
        View -> its frames, and the mean distances [T, T] of the frames over these views.

    Raises:
        DataError: When no view shows a change.
    """
    frames: dict[str, Appearance] = {}
    total = torch.zeros(len(index), len(index))
    for name, video in episode.views.items() if len(index) > 1 else ():
        appearance = encode_frames(video[index], encoder)
        distances = squared_distances(appearance.coarse, appearance.coarse)
        if float(mean_pairwise_distance(distances)) > STILL_DISTANCE:
            frames[name] = appearance
            total += distances
    if not frames:
        raise DataError(f"{episode.name}: all its frames look alike, so it demonstrates nothing")
    if still := [name for name in episode.views if name not in frames]:
        warnings.warn(
            f"{episode.name}: nothing changes in the view {', '.join(still)}, which is not compared", stacklevel=2
        )
    return frames, total / len(frames)


def encode_frames(video: np.ndarray, encoder: FrozenEncoder) -> Appearance:
    """Encode a video uint8 [T, H, W, 3] block by block."""
    blocks = [
        encoder.encode(video[start : start + FRAMES_PER_BLOCK]) for start in range(0, len(video), FRAMES_PER_BLOCK)
    ]
    return make_appearance([torch.cat(level) for level in zip(*blocks, strict=True)])


def encode_view(frames: Appearance, keyframes: Sequence[int], metric: CellMetric | None) -> EncodedView:
    """Select the keyframes of one view, and scale their distances.

    Args:
        frames: All frames of the view.
        keyframes: Indices of the keyframes.
        metric: The learned metric; None: all directions count alike.
    """
    rows = torch.tensor(keyframes)
    distances = squared_distances(frames.coarse, frames.coarse)
    scene_threshold = SCENE_CHANGE * float(mean_pairwise_distance(distances))
    updates = keyframe_indices(distances, scene_threshold)
    updated = frames.coarse[torch.tensor(updates)]
    motion = (STILL_MOTION * cell_motion(updated)).clamp_min(1e-6)
    last_update = np.searchsorted(updates, keyframes, side="right") - 1
    scene = still_scene(updated, motion)[torch.from_numpy(last_update)]
    metric = metric or identity_metric(*frames.coarse.shape[1:])
    coarse = metric.transform(frames.coarse[rows])
    fine = frames.select(rows).fine
    weights = tuple(changed_cell_weights(level) for level in fine)
    changed = weigh_cells(fine, weights)
    own_distances = (
        squared_distances(coarse, coarse),
        squared_distances(scene, scene),
        torch.cdist(changed, changed).square(),
    )
    first, second, third = (mean_pairwise_distance(distances) for distances in own_distances)
    return EncodedView(
        metric=metric,
        coarse=coarse,
        scene=scene,
        changed=changed,
        cell_weights=weights,
        scene_threshold=scene_threshold,
        motion=motion,
        scales=(first, second, third),
    )


def demonstrated_progress(episode: Episode, frames: IntArray) -> Array:
    """Progress of the keyframes of a demonstration, float32 [R].

    It is that of its annotation, averaged up to the next keyframe: a video stays at a keyframe until it has changed as
    much as the next one. Without annotation it is the mean of elapsed time and elapsed change, both up to the last
    keyframe: keyframes are equally far apart in change, and after the last one nothing changes.
    """
    if episode.progress is not None or episode.subtasks:
        truth = true_progress(episode)
        return np.array([part.mean() for part in np.split(truth, frames[1:])], np.float32)
    time, change = frames / frames[-1], np.linspace(0, 1, len(frames))
    return ((time + change) / 2).astype(np.float32)


def subtask_of_frames(episode: Episode, frames: IntArray) -> IntArray:
    """Index of the annotated subtask at each of these frames; -1 without annotation."""
    if not episode.subtasks:
        return np.full(len(frames), UNKNOWN_SUBTASK, np.int64)
    starts = np.array([subtask.start for subtask in episode.subtasks])
    return np.maximum(np.searchsorted(starts, frames, side="right") - 1, 0).astype(np.int64)

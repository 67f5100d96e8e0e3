"""Episodes of a dataset as parts of a report: panels, and rows of a contact sheet."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from embodied_rm.data.source import EpisodeSource, ImageSize, resample_subtasks, stride_indices
from embodied_rm.data.video.display_size import MAX_ASPECT, display_width
from embodied_rm.labels.true_progress import progress_from_subtasks, progress_or_none
from embodied_rm.report import EpisodePanel
from embodied_rm.report.episode_images import CLIP_HEIGHT_PX, ContactSheetRow, resize_to_height
from embodied_rm.types import Episode, Frames, IntArray, RewardOutput, Subtask

MAX_PANEL_FRAMES = 600  # approximate maximum of frames per episode in a report; longer episodes are thinned
MAX_FRAMES_WITH_STEPS = 4 * MAX_PANEL_FRAMES  # the same maximum, of an episode whose shortest subtask needs more
SHEET_HEIGHT_PX = 120  # height of the images of a contact sheet


def episode_panel(
    source: EpisodeSource, row: int, curve: RewardOutput | None = None, frame_stride: int = 1
) -> EpisodePanel:
    """Return the panel of an episode and, if given, of its prediction, thinned to about `MAX_PANEL_FRAMES`.

    The prediction is that of every `frame_stride`-th frame and the last one; frames between them keep the last one.
    """
    steps, length = source.meta[row].subtasks, source.meta[row].length
    # No stride is longer than the shortest subtask that a report can show, so thinning keeps it.
    stride = min([-(-length // MAX_PANEL_FRAMES), *(step.end - step.start for step in steps)])
    stride = max(stride, -(-length // MAX_FRAMES_WITH_STEPS))
    frame_indices = stride_indices(length, stride)
    stored = source.image_size(row)
    is_small = stored[0] <= CLIP_HEIGHT_PX and stored[1] <= MAX_ASPECT * CLIP_HEIGHT_PX
    size = None if is_small else (CLIP_HEIGHT_PX, display_width(stored, CLIP_HEIGHT_PX))
    kept = subtasks_with_frames(steps, frame_indices)
    if len(kept) == len(steps):
        episode = source.episode(row, stride=stride, size=size)
    else:
        episode = read_one_by_one(source, row, stride, kept, size)
    episode = replace(episode, progress=progress_or_none(episode))
    if curve is None:
        return EpisodePanel(episode=episode)
    predicted = np.searchsorted(stride_indices(length, frame_stride), frame_indices, side="right") - 1
    return predicted_panel(episode, curve, predicted)


def subtasks_with_frames(subtasks: Sequence[Subtask], frame_indices: IntArray) -> list[Subtask]:
    """Return the subtasks that contain one of the selected frames."""
    bounds = np.array([(step.start, step.end) for step in subtasks]).reshape(-1, 2)
    starts, ends = np.searchsorted(frame_indices, bounds).T
    return [step for step, start, end in zip(subtasks, starts, ends, strict=True) if start < end]


def read_one_by_one(
    source: EpisodeSource, row: int, stride: int, subtasks: Sequence[Subtask], size: ImageSize | None
) -> Episode:
    """Read every `stride`-th frame and the last one, with only some subtasks: a source refuses to leave out any."""
    meta = source.meta[row]
    frame_indices = stride_indices(meta.length, stride)
    columns = dict(vars(source.columns(row).select(frame_indices)))
    if columns["progress"] is None and meta.success is not False:  # that of the subtasks left would be another one
        columns["progress"] = progress_from_subtasks(meta.subtasks, meta.length)[frame_indices]

    def read_view(view: str) -> Frames:
        blocks = (source.read_frames(row, i, i + 1, views=[view], size=size) for i in frame_indices.tolist())
        return np.concatenate([np.asarray(block.frames)[:, 0] for block in blocks])

    return Episode(
        name=meta.name,
        views={view: read_view(view) for view in source.views},
        instruction=meta.instruction,
        fps=source.frame_rate(row) / stride,
        subtasks=resample_subtasks(subtasks, frame_indices),
        success=meta.success,
        metadata=meta.metadata,
        **columns,
    )


def predicted_panel(episode: Episode, curve: RewardOutput, frames: IntArray) -> EpisodePanel:
    """Return the panel of an episode and the predictions of its frames."""
    return EpisodePanel(episode=episode, progress=curve.progress[frames], success_prob=curve.success[frames])


def contact_sheet_row(source: EpisodeSource, row: int) -> ContactSheetRow:
    """Return the first, the middle and the last frame of each view of an episode."""
    meta, images = source.meta[row], {}
    for view in source.views:
        for label, frame_index in (("first", 0), ("middle", (meta.length - 1) // 2), ("last", meta.length - 1)):
            views = source.read_frames(row, frame_index, frame_index + 1, views=[view], size=None)
            images[f"{view}: {label}"] = resize_to_height(np.asarray(views.frames)[:, 0], SHEET_HEIGHT_PX)[0]
    return ContactSheetRow(caption=meta.caption, views=images)

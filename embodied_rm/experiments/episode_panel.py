"""Episodes of a dataset as parts of a report: panels, and rows of a contact sheet."""

from dataclasses import replace

import numpy as np

from embodied_rm.data.source import EpisodeSource, stride_indices
from embodied_rm.labels.true_progress import progress_or_none
from embodied_rm.report import EpisodePanel
from embodied_rm.report.episode_images import CLIP_HEIGHT_PX, ContactSheetRow, resize_to_height
from embodied_rm.types import Episode, IntArray, RewardOutput

MAX_PANEL_FRAMES = 600  # approximate maximum of frames per episode in a report; longer episodes are thinned
SHEET_HEIGHT_PX = 120  # height of the images of a contact sheet


def episode_panel(
    source: EpisodeSource, row: int, curve: RewardOutput | None = None, frame_stride: int = 1
) -> EpisodePanel:
    """Return the panel of an episode and, if given, of its prediction, thinned to about `MAX_PANEL_FRAMES`.

    The prediction is that of every `frame_stride`-th frame and the last one; frames between them keep the last one.
    """
    steps, length = source.meta[row].subtasks, source.meta[row].length
    # No stride is longer than the shortest subtask, so thinning keeps every subtask.
    stride = min([-(-length // MAX_PANEL_FRAMES), *(step.end - step.start for step in steps)])
    frame_indices = stride_indices(length, stride)
    height, width = source.image_size(row)
    size = None if height <= CLIP_HEIGHT_PX else (CLIP_HEIGHT_PX, 2 * round(width * CLIP_HEIGHT_PX / height / 2))
    episode = source.episode(row, stride=stride, size=size)
    episode = replace(episode, progress=progress_or_none(episode))
    if curve is None:
        return EpisodePanel(episode=episode)
    predicted = np.searchsorted(stride_indices(length, frame_stride), frame_indices, side="right") - 1
    return predicted_panel(episode, curve, predicted)


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

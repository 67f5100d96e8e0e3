"""Progress inside a subtask in proportion to image change, not to time.

Source: ProcVLM (`evqa/tools/functions/progress.py`). The change of a frame is 1.5 minus the similarity of its hash with
the previous one. The budget of a subtask is clip(K * length / T, 0.75, 1.25). Progress is constant in unfinished
subtasks.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from embodied_rm.labels.piecewise_progress import (
    SubtaskSpan,
    piecewise_progress,
    require_subtasks,
    subtask_frame_counts,
    subtask_spans,
)
from embodied_rm.labels.subtasks import subtask_indices, subtask_orders, task_of
from embodied_rm.labels.targets import (
    Targets,
    is_demonstration,
    outcome_targets,
    require_demonstration,
    targets_with_known_success,
)
from embodied_rm.types import Array, BoolArray, Episode, Frames

HASH_SIDE = 8  # number of lowest DCT frequencies per direction in a hash
LUMA_WEIGHTS = (0.299, 0.587, 0.114)  # weights of red, green and blue in perceived brightness


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """Return the targets per episode. Progress of a failure without annotated subtasks is unknown.

    `DataError` if there is no demonstration with annotated subtasks. One without them counts for its outcome.
    """
    require_demonstration(episodes, "visual_change")
    require_subtasks(episodes, "visual_change")
    orders = subtask_orders(episodes)
    return [_label_episode(episode, orders.get(task_of(episode), ())) for episode in episodes]


def _label_episode(episode: Episode, order: tuple[str, ...]) -> Targets:
    if is_demonstration(episode) and not episode.subtasks:
        return outcome_targets(episode)
    spans, progress_known = subtask_spans(episode, order), np.full(len(episode), bool(episode.subtasks))
    progress = piecewise_progress(spans, budget_levels(spans, len(order), len(episode)), frame_changes(episode))
    return targets_with_known_success(episode, progress, subtask_indices(episode, order), progress_known)


def budget_levels(spans: Sequence[SubtaskSpan], num_subtasks: int, length: int) -> npt.NDArray[np.float64]:
    """Return the progress at the start of each subtask and at the end, float64 [num_subtasks + 1] from 0 to 1.

    A subtask that is missing in the episode counts as one of mean length.
    """
    frame_counts = subtask_frame_counts(spans, num_subtasks)
    weights = np.where(frame_counts > 0, np.clip(num_subtasks * frame_counts / length, 0.75, 1.25), 1.0)
    return np.append(0, np.cumsum(weights) / weights.sum())


def frame_changes(episode: Episode) -> Array:
    """Return the change from the previous frame, mean over views, float32 [T] in [0.5, 1.5]; 1.5 at the first frame."""
    bits = [perceptual_hashes(frames) for frames in episode.views.values()]
    similarity = np.mean([(view_bits[1:] == view_bits[:-1]).mean(axis=1) for view_bits in bits], axis=0)
    return np.append(1.5, 1.5 - similarity).astype(np.float32)


def perceptual_hashes(frames: Frames) -> BoolArray:
    """Return hashes of images [T, H, W, 3], bool [T, 63]: which lowest DCT frequencies exceed their median.

    The mean brightness is left out: it always exceeds the median.
    """
    gray = frames.astype(np.float32) @ np.array(LUMA_WEIGHTS, np.float32)
    height, width = frames.shape[1:3]
    coefficients = (_dct_matrix(height) @ gray @ _dct_matrix(width).T).reshape(len(frames), -1)[:, 1:]
    return coefficients > np.median(coefficients, axis=1, keepdims=True)


def _dct_matrix(size: int) -> Array:
    """Return the lowest rows of the DCT matrix, float32 [HASH_SIDE, size]."""
    return np.cos(np.pi / size * np.outer(np.arange(HASH_SIDE), np.arange(size) + 0.5)).astype(np.float32)

"""Perturbed frame order: reversed, frozen, shuffled, hovering, looping, or with further frames."""

import numpy as np

from embodied_rm.audit.test_set import (
    NEAR_DONE_PROGRESS,
    AuditClip,
    AuditDataset,
    AuditTrial,
    completion_frame,
    hold_last_frame,
    last_frame_below,
    progress_or_none,
    select_frames,
)
from embodied_rm.types import Episode, IntArray

HALFWAY_PROGRESS = 0.5  # true progress at which a clip freezes
LOOP_PROGRESS_RANGE = (0.3, 0.7)  # range of true progress in which a clip loops
NUM_LOOPS = 5
SWAY_FRAMES = 3  # amplitude of hovering, in frames
MIN_MEAN_DEVIATION = 0.1  # smallest mean deviation of true progress from a line over time


def reverse(dataset: AuditDataset) -> list[AuditTrial]:
    """The first frame of a success, then its frames in reverse order from its completion."""
    clips = []
    for episode in dataset.successes:
        frames = np.append(0, np.arange(completion_frame(episode), -1, -1))
        extended = dataset.hold_end(select_frames(episode, frames))
        clips.append(AuditClip(extended, eval_start=len(frames) - 1, num_ordered=len(frames)))
    return [(clip,) for clip in clips if clip.num_ordered > 2]


def shuffle(dataset: AuditDataset) -> list[AuditTrial]:
    """The first frame of a success, then its frames until completion in random order."""
    trials: list[AuditTrial] = []
    for index, episode in enumerate(dataset.successes):
        frames = np.append(0, 1 + np.random.default_rng(index).permutation(completion_frame(episode)))
        trials.append((AuditClip(select_frames(episode, frames), num_ordered=len(frames)),))
    return trials


def freeze_at_start(dataset: AuditDataset) -> list[AuditTrial]:
    """The first frame, repeated for the length of the episode."""
    return [_freeze(dataset, episode, 0) for episode in dataset.successes + dataset.failures]


def freeze_halfway(dataset: AuditDataset) -> list[AuditTrial]:
    """A success that freezes at true progress `HALFWAY_PROGRESS`, with the length of the episode."""
    return [_freeze(dataset, *freeze_point) for freeze_point in dataset.successes_with_frame(HALFWAY_PROGRESS)]


def _freeze(dataset: AuditDataset, episode: Episode, frame: int) -> AuditTrial:
    length = len(episode) + dataset.config.hold_frames
    frozen = select_frames(episode, np.minimum(np.arange(length), frame))
    # The first frame has no prediction, so frames are compared from the second one on.
    return (AuditClip(frozen, identical_frames=(max(frame, 1), length - 1)),)


def hover(dataset: AuditDataset) -> list[AuditTrial]:
    """A success that hovers just before completion, with twice its length, and the success itself."""
    return [
        (_sway(episode, frame), _extend_success(episode, 2 * len(episode)))
        for episode, frame in dataset.successes_with_frame(NEAR_DONE_PROGRESS)
    ]


def _sway(episode: Episode, frame: int) -> AuditClip:
    swaying = triangle_wave(frame, max(frame - SWAY_FRAMES, 0), 2 * len(episode) - frame)
    return AuditClip(select_frames(episode, np.append(np.arange(frame), swaying)))


def _extend_success(episode: Episode, length: int) -> AuditClip:
    return AuditClip(hold_last_frame(episode, length - len(episode)))


def loop(dataset: AuditDataset) -> list[AuditTrial]:
    """A success that loops in `LOOP_PROGRESS_RANGE`, and the success itself."""
    trials: list[AuditTrial] = []
    for episode in dataset.successes:
        low, high = (last_frame_below(episode, level) for level in LOOP_PROGRESS_RANGE)
        if low is None or high is None or low == high:
            continue
        loop_frames = 2 * NUM_LOOPS * (high - low)
        length = max(high + loop_frames + 1, 2 * len(episode))
        frames = np.concatenate([np.arange(high), triangle_wave(high, low, length - high)])
        clip = AuditClip(select_frames(episode, frames), identical_frames=(high, high + loop_frames))
        trials.append((clip, _extend_success(episode, length)))
    return trials


def triangle_wave(high: int, low: int, count: int) -> IntArray:
    """Return `count` frame indices that move from `high` to `low` and back, repeatedly."""
    period = max(2 * (high - low), 1)
    phase = np.arange(count) % period
    return high - np.minimum(phase, period - phase)


def nonlinear_failures(dataset: AuditDataset) -> list[AuditTrial]:
    """Failures with known true progress that is not linear in time."""
    with_progress = [(episode, progress_or_none(episode)) for episode in dataset.failures]
    return [
        (AuditClip(hold_last_frame(episode, 0)),)
        for episode, progress in with_progress
        if progress is not None and float(np.abs(progress - fit_line(progress)).mean()) > MIN_MEAN_DEVIATION
    ]


def fit_line(curve: np.ndarray) -> np.ndarray:
    """Return the least-squares line over time through 0 at the first frame."""
    time = np.arange(len(curve))
    return time * (time @ curve) / max(time @ time, 1)


def append_future(dataset: AuditDataset) -> list[AuditTrial]:
    """The start of each episode, the same followed by its end, and once more alone.

    All starts have one length, so that batches have the same shape and rounding cannot differ. They end with a frame
    that is scored in the longer clip too, because the last frame of a clip is always scored.
    """
    episodes, score_every = dataset.successes + dataset.failures, dataset.config.reward.score_every
    max_start = (min(len(episode) for episode in episodes) - 1) // 2
    start_length = 1 + score_every * max(max_start // score_every, 1)
    trials: list[AuditTrial] = []
    for episode in (candidate for candidate in episodes if len(candidate) > start_length):
        start, ending = np.arange(start_length), np.arange(len(episode) - start_length, len(episode))
        start_clip = AuditClip(select_frames(episode, start))
        trials.append((start_clip, AuditClip(select_frames(episode, np.append(start, ending))), start_clip))
    return trials

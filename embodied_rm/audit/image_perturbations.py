"""Perturbed images: black, half covered, swapped, without the robot, or with the goal image."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from embodied_rm.audit.test_set import AuditClip, AuditDataset, AuditTrial, completion_frame, transform_views
from embodied_rm.types import Episode, Frames

INSET_DOWNSCALE = 3  # factor between the size of an image and that of an inset


def unmodified(dataset: AuditDataset) -> list[AuditTrial]:
    """Unfinished clips, unmodified."""
    return [(clip,) for clip in dataset.unfinished_clips]


def black_out(dataset: AuditDataset) -> list[AuditTrial]:
    """The first frame of each episode, then black images."""
    episodes = map(dataset.hold_end, dataset.successes + dataset.failures)
    return [(AuditClip(transform_views(episode, _black_out_frames)),) for episode in episodes]


def _black_out_frames(frames: Frames) -> Frames:
    return np.concatenate([frames[:1], np.zeros_like(frames[1:])])


def drop_view(dataset: AuditDataset) -> list[AuditTrial]:
    """Unfinished clips without one of several views, each in turn."""
    return [
        (replace(clip, episode=episode),)
        for clip in dataset.unfinished_clips
        for episode in _drop_each_view(clip.episode)
    ]


def drop_view_of_success(dataset: AuditDataset) -> list[AuditTrial]:
    """Successes without one of their views, and with all of them."""
    trials: list[AuditTrial] = []
    for episode in dataset.successes:
        clip = AuditClip(dataset.hold_end(episode), num_ordered=completion_frame(episode) + 1)
        trials += [(replace(clip, episode=reduced), clip) for reduced in _drop_each_view(clip.episode)]
    return trials


def _drop_each_view(episode: Episode) -> Iterator[Episode]:
    for dropped in episode.views if len(episode.views) > 1 else ():
        yield replace(episode, views={name: frames for name, frames in episode.views.items() if name != dropped})


def swap_views(dataset: AuditDataset) -> list[AuditTrial]:
    """Unfinished clips whose views are swapped cyclically, if they have one image size."""
    return [
        (replace(clip, episode=_rotate_views(clip.episode)),)
        for clip in dataset.unfinished_clips
        if len(clip.episode.views) > 1 and len({frames.shape for frames in clip.episode.views.values()}) == 1
    ]


def _rotate_views(episode: Episode) -> Episode:
    names, frames = list(episode.views), list(episode.views.values())
    return replace(episode, views=dict(zip(names, frames[1:] + frames[:1], strict=True)))


def cover_half(dataset: AuditDataset) -> list[AuditTrial]:
    """Unfinished clips whose left or right half is black from the second frame on."""
    return [
        (replace(clip, episode=transform_views(clip.episode, partial(_cover_frames, right=right))),)
        for clip in dataset.unfinished_clips
        for right in (False, True)
    ]


def _cover_frames(frames: Frames, right: bool) -> Frames:
    covered, middle = frames.copy(), frames.shape[2] // 2
    covered[1:, :, slice(middle, None) if right else slice(middle)] = 0
    return covered


def remove_robot(dataset: AuditDataset) -> list[AuditTrial]:
    """Unfinished clips that end with the median of each pixel over time.

    Images alone do not separate robot and scene. Everything that moves for more than half of the clip vanishes, so the
    arm and its payload do.
    """
    trials: list[AuditTrial] = []
    for clip in dataset.unfinished_clips:
        end, extended = len(clip.episode), dataset.hold_end(clip.episode)
        trials.append((AuditClip(transform_views(extended, partial(_fade_to_median, end=end)), eval_start=end),))
    return trials


def _fade_to_median(frames: Frames, end: int) -> Frames:
    median = np.median(frames[:end], axis=0).astype(np.uint8)
    return np.concatenate([frames[:end], np.broadcast_to(median, (len(frames) - end, *median.shape))])


def inset_goal_image(dataset: AuditDataset) -> list[AuditTrial]:
    """Unfinished clips with a small image of the finished task in a corner of every view, from the middle on."""
    trials: list[AuditTrial] = []
    for clip, goal_episode, middle in _pair_with_goal_episodes(dataset):
        views = {
            name: _inset_image(frames, goal_episode.views[name][-1], middle)
            for name, frames in clip.episode.views.items()
        }
        trials.append((AuditClip(replace(clip.episode, views=views), eval_start=max(clip.eval_start, middle)),))
    return trials


def _inset_image(frames: Frames, image: Frames, start: int) -> Frames:
    small = image[::INSET_DOWNSCALE, ::INSET_DOWNSCALE]
    pasted = frames.copy()
    pasted[start:, : small.shape[0], : small.shape[1]] = small
    return pasted


def replace_view_with_goal(dataset: AuditDataset) -> list[AuditTrial]:
    """Unfinished clips in which one of several views, each in turn, shows the finished task from the middle on."""
    trials: list[AuditTrial] = []
    for clip, goal_episode, middle in _pair_with_goal_episodes(dataset):
        for name in clip.episode.views if len(clip.episode.views) > 1 else ():
            frames = clip.episode.views[name].copy()
            frames[middle:] = goal_episode.views[name][-1]
            episode = replace(clip.episode, views={**clip.episode.views, name: frames})
            trials.append((AuditClip(episode, eval_start=max(clip.eval_start, middle)),))
    return trials


def _pair_with_goal_episodes(dataset: AuditDataset) -> Iterator[tuple[AuditClip, Episode, int]]:
    """Iterate over unfinished clips with a success of the same goal, and the middle frame of the clip."""
    for clip in dataset.unfinished_clips:
        goal_episode = dataset.find_goal_episode(clip.episode)
        if goal_episode is not None:
            yield clip, goal_episode, len(clip.episode) // 2

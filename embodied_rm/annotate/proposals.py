"""Steps proposed for an episode that nobody has annotated yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from embodied_rm.data.film import films
from embodied_rm.data.source import EpisodeSource
from embodied_rm.data.stride import kept_frames
from embodied_rm.errors import DataError
from embodied_rm.labels.change_points import segment, step_count
from embodied_rm.labels.discovered import coarse, found_edges
from embodied_rm.types import Array, Episode, IntArray, Step

Proposer = Callable[[Episode], Sequence[Step]]
"""From an episode, thinned out and small, to its steps in terms of its frames. Any judge may stand here."""

FRAMES, SIDE = 600, 128
"""Most frames, and most pixels of the longer side of a picture, that a proposer is shown."""


def by_change(names: Sequence[str] = ()) -> Proposer:
    """Steps where the pictures begin to look different and where the gripper changes over, as `train labels=discovered`
    finds them; as many as there are names, or as many as explain what changes."""

    def propose(episode: Episode) -> list[Step]:
        features = coarse(episode)
        if names:
            edges = segment(features, len(names), np.zeros(len(episode), np.bool_))
        else:
            edges = found_edges(episode, features, step_count([features]))
        called = names or [f"step {i + 1}" for i in range(len(edges))]
        return [Step(name=n, start=a, end=b) for n, (a, b) in zip(called, pairwise(edges), strict=False)]

    return propose


def by_progress(judge: Callable[[Episode], Array], names: Sequence[str]) -> Proposer:
    """Steps of equal shares of the progress [T] that a judge sees: each begins behind the last frame that has not come
    so far. `names`: at least one; an episode with fewer frames has the first of them."""

    def propose(episode: Episode) -> list[Step]:
        edges = share_edges(judge(episode), min(len(names), len(episode)))
        return [Step(name=n, start=a, end=b) for n, (a, b) in zip(names, pairwise(edges), strict=False)]

    return propose


def share_edges(progress: Array, count: int) -> list[int]:
    """Where each of `count` equal shares of a progress [T] begins, and T; every share has a frame at least."""
    edges, length = [0], len(progress)
    for share in range(1, count):
        before = np.flatnonzero(progress < share / count)
        edge = int(before[-1]) + 1 if len(before) else 0
        edges.append(min(max(edge, edges[-1] + 1), length - (count - share)))
    return [*edges, length]


def proposed(source: EpisodeSource, index: int, propose: Proposer) -> tuple[Step, ...]:
    """What is proposed for one episode, in terms of all its frames. Raises `DataError` where it cannot be read."""
    episode, kept = thinned(source, index)
    edges = np.append(kept, source.meta[index].length)
    return tuple(
        Step(name=step.name, start=int(edges[step.start]), end=int(edges[step.end])) for step in propose(episode)
    )


def thinned(source: EpisodeSource, index: int) -> tuple[Episode, IntArray]:
    """The episode as a proposer sees it, without what is known of its steps, and which frames are kept of it."""
    meta, rate = source.meta[index], source.frame_rate(index)
    stride = -(-meta.length // FRAMES)
    kept = kept_frames(meta.length, stride)
    height, width = source.picture_size(index)
    scale = min(1.0, SIDE / max(height, width))
    size = max(1, round(height * scale)), max(1, round(width * scale))
    shown, start = [], 0
    for _, block in films(source, [index], source.views, size):
        if isinstance(block, DataError):
            raise block
        stop = start + len(block)
        shown.append(np.asarray(block.frames)[kept[(kept >= start) & (kept < stop)] - start])
        start = stop
    frames = np.concatenate(shown).swapaxes(0, 1)
    columns = source.columns(index).kept(kept)
    episode = Episode(
        name=meta.name,
        views=dict(zip(source.views, frames, strict=True)),
        instruction=meta.instruction,
        fps=rate / stride,
        success=meta.success,
        state=columns.state,
        action=columns.action,
        meta=meta.text,
    )
    return episode, kept

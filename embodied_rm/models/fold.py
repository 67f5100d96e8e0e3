"""Offline scoring is online scoring: whole episodes through `begin` and `advance`, many side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from embodied_rm.models.base import Following, Memory, Reference, Retrospective, RewardModel
from embodied_rm.models.foresight import foreseeable, foreseen
from embodied_rm.models.memory import FrameMemory
from embodied_rm.models.plans import THEN, Plans
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.reference import reference_of
from embodied_rm.types import Episode, Progress, Views

TOGETHER = 64
"""Episodes that are scored side by side."""


def fold(
    model: RewardModel,
    episodes: Sequence[Episode],
    goals: Sequence[Episode] | None = None,
    references: Sequence[Episode] | None = None,
) -> list[Progress]:
    """The judgement of every frame of every episode, a row a frame: `begin` at the first, then `advance` to the end.

    Exactly what the model says online, of several wishes one after the other (`Plans`, with its defaults unless the
    model is one). The last frame of `goals[i]` is the goal picture of `episodes[i]`, `references[i]` its reference;
    they have the same views where the episodes do.
    """
    if isinstance(model, Retrospective):
        return [model.judge_film(episode.instruction, [film_of(episode)]) for episode in episodes]
    groups = {i: (tuple(e.views), next(iter(e.views.values())).shape[1:]) for i, e in enumerate(episodes)}
    order = sorted(groups, key=lambda i: (str(groups[i]), -len(episodes[i])))
    curves: dict[int, Progress] = {}
    planned = model if isinstance(model, Plans) else Plans(model)
    for _, alike in groupby(order, key=lambda i: groups[i]):
        members = list(alike)
        for start in range(0, len(members), TOGETHER):
            rows = members[start : start + TOGETHER]
            aims = None if goals is None else views_at([goals[i] for i in rows], -1)
            ways = None if references is None else reference_of([references[i] for i in rows])
            curves.update(zip(rows, _fold(planned, [episodes[i] for i in rows], aims, ways), strict=True))
    return [curves[i] for i in range(len(episodes))]


def _fold(
    model: RewardModel, episodes: Sequence[Episode], goal: Views | None, reference: Reference | None
) -> list[Progress]:
    """`fold` of episodes with the same views, the longest first."""
    lengths = np.array([len(episode) for episode in episodes])
    assert (np.diff(lengths) <= 0).all()
    memory = begun(model, views_at(episodes, 0), [episode.instruction for episode in episodes], goal, reference)
    curves = [_blank(len(episode)) for episode in episodes]
    for t in range(1, int(lengths[0])):
        going = np.flatnonzero(lengths > t)
        if len(going) < len(memory):
            memory = memory.take(going)
        judged, memory = model.advance(memory, views_at([episodes[int(i)] for i in going], t))
        for name in vars(judged):
            for i, value in zip(going, getattr(judged, name), strict=True):
                getattr(curves[i], name)[t] = value
    return curves


def fold_film(
    model: RewardModel,
    instruction: str,
    blocks: Iterable[Views],
    goal: Episode | None = None,
    reference: Episode | None = None,
) -> Progress:
    """`fold` of one episode that comes in blocks: the rows of each are its next frames. Only one block is held."""
    if isinstance(model, Retrospective):
        return model.judge_film(instruction, blocks)
    model = Plans(model) if THEN in instruction else model
    aim = None if goal is None else views_at([goal], -1)
    way = None if reference is None else reference_of([reference])
    parts: list[Progress] = []
    memory: Memory | None = None
    for views in blocks:
        later = np.arange(len(views))
        if memory is None:
            memory = begun(model, views.rows(later[:1]), [instruction], aim, way)
            parts.append(_blank(1))
            later = later[1:]
        if len(later):
            judged, memory = follow(model, memory, views.rows(later))
            parts.append(judged)
    return joined(parts)


def begun(
    model: RewardModel, views: Views, instructions: Sequence[str], goal: Views | None, reference: Reference | None
) -> Memory:
    """`begin`; models that know of no references are still models where there are none."""
    if reference is None:
        return model.begin(views, instructions, goal)
    return model.begin(views, instructions, goal, reference=reference)


def follow(model: RewardModel, memory: Memory, views: Views) -> tuple[Progress, Memory]:
    """What `advance` says of the frames of one episode, one after the other."""
    if isinstance(model, Following):
        return model.follow(memory, views)
    if isinstance(model, ProgressNet) and isinstance(memory, FrameMemory) and foreseeable(memory, views):
        return foreseen(model, memory, views)
    parts = []
    for t in range(len(views)):
        judged, memory = model.advance(memory, views.rows(np.array([t])))
        parts.append(judged)
    return joined(parts), memory


def joined(parts: Sequence[Progress]) -> Progress:
    """The judgements one after the other."""
    return Progress(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])})


def _blank(length: int) -> Progress:
    """The judgements of an episode before any frame but the first was seen: no progress, nothing done."""
    return Progress(
        value=np.zeros(length, np.float32),
        valid=np.ones(length, bool),
        stage=np.zeros(length, np.int64),
        success=np.zeros(length, np.float32),
        spread=np.zeros(length, np.float32),
    )


def film_of(episode: Episode) -> Views:
    """All frames of an episode, one a row."""
    return Views(names=tuple(episode.views), frames=np.stack(list(episode.views.values()), axis=1))


def views_at(episodes: Sequence[Episode], t: int) -> Views:
    """What the cameras of N episodes with the same views show at frame t."""
    names = tuple(episodes[0].views)
    frames = np.stack([np.stack([episode.views[name][t] for name in names]) for episode in episodes])
    return Views(names=names, frames=frames)

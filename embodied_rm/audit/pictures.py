"""Other pictures in place of what the cameras saw: none, half of them, exchanged, without the robot, or the goal's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from embodied_rm.audit.material import Film, Material, Trial, finish, held, shown
from embodied_rm.types import Episode, Frames

INSET = 3
"""A picture in the picture has this fraction of its height and width."""


def as_they_are(material: Material) -> list[Trial]:
    """Unfinished films, untouched."""
    return [(film,) for film in material.unfinished]


def black(material: Material) -> list[Trial]:
    """The first frame of every episode, then black pictures."""
    return [
        (Film(episode=shown(film, {name: _blackened(frames) for name, frames in film.views.items()})),)
        for film in (held(episode, material.rules.hold) for episode in material.successes + material.failures)
    ]


def _blackened(frames: Frames) -> Frames:
    return np.concatenate([frames[:1], np.zeros_like(frames[1:])])


def dropped(material: Material) -> list[Trial]:
    """Unfinished films of several views without one of them, each in turn."""
    return [(replace(film, episode=episode),) for film in material.unfinished for episode in _without_one(film.episode)]


def dropped_success(material: Material) -> list[Trial]:
    """Successes without one of their views, and with all."""
    trials: list[Trial] = []
    for episode in material.successes:
        film = Film(episode=held(episode, material.rules.hold), ordered=finish(episode) + 1)
        trials += [(replace(film, episode=less), film) for less in _without_one(film.episode)]
    return trials


def _without_one(episode: Episode) -> Iterator[Episode]:
    for lacking in episode.views if len(episode.views) > 1 else ():
        yield shown(episode, {name: frames for name, frames in episode.views.items() if name != lacking})


def exchanged(material: Material) -> list[Trial]:
    """Unfinished films in which every camera shows what the next one sees; cameras of one picture size only."""
    return [
        (replace(film, episode=_rotated(film.episode)),)
        for film in material.unfinished
        if len(film.episode.views) > 1 and len({frames.shape for frames in film.episode.views.values()}) == 1
    ]


def _rotated(episode: Episode) -> Episode:
    names, frames = list(episode.views), list(episode.views.values())
    return shown(episode, dict(zip(names, frames[1:] + frames[:1], strict=True)))


def half_covered(material: Material) -> list[Trial]:
    """Unfinished films whose pictures are black from the second frame on in their left, or in their right half."""
    return [
        (replace(film, episode=shown(film.episode, {n: _covered(f, right) for n, f in film.episode.views.items()})),)
        for film in material.unfinished
        for right in (False, True)
    ]


def _covered(frames: Frames, right: bool) -> Frames:
    covered, middle = frames.copy(), frames.shape[2] // 2
    covered[1:, :, slice(middle, None) if right else slice(middle)] = 0
    return covered


def robot_gone(material: Material) -> list[Trial]:
    """Unfinished films that end with what stood still in them: the median of each pixel over time.

    Pictures alone do not tell robot from scene; whatever moves for more than half of the film fades, and with it the
    arm and what it carries.
    """
    trials: list[Trial] = []
    for film in material.unfinished:
        end = len(film.episode)
        longer = held(film.episode, material.rules.hold)
        views = {name: _ending(frames, end) for name, frames in longer.views.items()}
        trials.append((Film(episode=shown(longer, views), judged_from=end),))
    return trials


def _ending(frames: Frames, end: int) -> Frames:
    still = np.median(frames[:end], axis=0).astype(np.uint8)
    return np.concatenate([frames[:end], np.broadcast_to(still, (len(frames) - end, *still.shape))])


def goal_inset(material: Material) -> list[Trial]:
    """Unfinished films with a small picture of the finished task in a corner of every view from the middle on."""
    trials: list[Trial] = []
    for film, donor, middle in _with_donors(material):
        views = {name: _inset(frames, donor.views[name][-1], middle) for name, frames in film.episode.views.items()}
        trials.append((Film(episode=shown(film.episode, views), judged_from=max(film.judged_from, middle)),))
    return trials


def _inset(frames: Frames, picture: Frames, start: int) -> Frames:
    small = picture[::INSET, ::INSET]
    pasted = frames.copy()
    pasted[start:, : small.shape[0], : small.shape[1]] = small
    return pasted


def goal_in_a_view(material: Material) -> list[Trial]:
    """Unfinished films in which one of several views, each in turn, shows the finished task from the middle on."""
    trials: list[Trial] = []
    for film, donor, middle in _with_donors(material):
        for name in film.episode.views if len(film.episode.views) > 1 else ():
            frames = film.episode.views[name].copy()
            frames[middle:] = donor.views[name][-1]
            episode = shown(film.episode, {**film.episode.views, name: frames})
            trials.append((Film(episode=episode, judged_from=max(film.judged_from, middle)),))
    return trials


def _with_donors(material: Material) -> Iterator[tuple[Film, Episode, int]]:
    """Unfinished films, a success at the same goal, and the middle of the film."""
    for film in material.unfinished:
        donor = material.donor(film.episode)
        if donor is not None:
            yield film, donor, len(film.episode) // 2

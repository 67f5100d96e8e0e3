"""The same pictures in another order: backwards, standing still, mixed up, to and fro, or with more to come."""

from __future__ import annotations

import numpy as np

from embodied_rm.audit.material import NEAR, Film, Material, Trial, finish, held, known_progress, play, reached
from embodied_rm.types import Episode, IntArray

HALF = 0.5
"""True progress at which a film freezes."""
LOOP = (0.3, 0.7)
"""True progress between which a film loops."""
LOOPS = 5
SWAY = 3
"""Frames by which a hand that hovers moves."""
BENT = 0.1
"""Mean distance from a straight line from which true progress is told from a clock's."""


def backwards(material: Material) -> list[Trial]:
    """The first frame of a success, then its frames from where it is done back to the first."""
    films = []
    for episode in material.successes:
        back = np.append(0, np.arange(finish(episode), -1, -1))
        film = held(play(episode, back), material.rules.hold)
        films.append(Film(episode=film, judged_from=len(back) - 1, ordered=len(back)))
    return [(film,) for film in films if film.ordered > 2]


def shuffled(material: Material) -> list[Trial]:
    """The first frame of a success, then its frames until it is done, in a random order."""
    trials: list[Trial] = []
    for number, episode in enumerate(material.successes):
        order = np.append(0, 1 + np.random.default_rng(number).permutation(finish(episode)))
        trials.append((Film(episode=play(episode, order), ordered=len(order)),))
    return trials


def frozen_start(material: Material) -> list[Trial]:
    """Nothing but the first frame, as long as the episode."""
    return [_frozen(material, episode, 0) for episode in material.successes + material.failures]


def frozen_half(material: Material) -> list[Trial]:
    """A success that freezes half-way, as long as the episode."""
    stops = [(episode, reached(episode, HALF)) for episode in material.successes]
    return [_frozen(material, episode, at) for episode, at in stops if at]


def _frozen(material: Material, episode: Episode, at: int) -> Trial:
    length = len(episode) + material.rules.hold
    # The first frame is nobody's judgement: a film is compared from the second on.
    return (Film(episode=play(episode, np.minimum(np.arange(length), at)), alike=(max(at, 1), length - 1)),)


def hovering(material: Material) -> list[Trial]:
    """A success that stays just short of being done, swaying, for twice its length; beside it, one that finishes."""
    stops = [(episode, reached(episode, NEAR)) for episode in material.successes]
    return [(_swaying(episode, at), _finished(episode, 2 * len(episode))) for episode, at in stops if at]


def _swaying(episode: Episode, at: int) -> Film:
    limit = 2 * len(episode)
    return Film(episode=play(episode, np.append(np.arange(at), to_and_fro(at, max(at - SWAY, 0), limit - at))))


def _finished(episode: Episode, limit: int) -> Film:
    return Film(episode=held(episode, limit - len(episode)))


def looping(material: Material) -> list[Trial]:
    """A success that goes to and fro between two steps; beside it, one that finishes."""
    trials: list[Trial] = []
    for episode in material.successes:
        low, high = (reached(episode, level) for level in LOOP)
        if low is None or high is None or low == high:
            continue
        around = 2 * LOOPS * (high - low)
        limit = max(high + around + 1, 2 * len(episode))
        frames = np.concatenate([np.arange(high), to_and_fro(high, low, limit - high)])
        film = Film(episode=play(episode, frames), alike=(high, high + around))
        trials.append((film, _finished(episode, limit)))
    return trials


def to_and_fro(high: int, low: int, count: int) -> IntArray:
    """`count` frames from `high` down to `low` and up again, and so on."""
    period = max(2 * (high - low), 1)
    step = np.arange(count) % period
    return high - np.minimum(step, period - step)


def failed(material: Material) -> list[Trial]:
    """Failures whose true progress is known and does not itself look like a clock."""
    known = [(episode, known_progress(episode)) for episode in material.failures]
    return [
        (Film(episode=held(episode, 0)),)
        for episode, progress in known
        if progress is not None and float(np.abs(progress - straight(progress)).mean()) > BENT
    ]


def straight(curve: np.ndarray) -> np.ndarray:
    """The straight line through 0 at the first frame that comes nearest (least squares): a clock of any pace."""
    time = np.arange(len(curve))
    return time * (time @ curve) / max(time @ time, 1)


def with_future(material: Material) -> list[Trial]:
    """The start of every episode, the same with its end to follow, and once more without.

    All of one length, so that each time the same frames are scored side by side: no difference is that of rounding.
    The last frame of a film is always scored: starts end with one that is scored anyway.
    """
    episodes, every = material.successes + material.failures, material.rules.reward.score_every
    half = (min(len(episode) for episode in episodes) - 1) // 2
    start = 1 + every * max(half // every, 1)
    trials: list[Trial] = []
    for episode in (one for one in episodes if len(one) > start):
        end = np.arange(len(episode) - start, len(episode))
        short = Film(episode=play(episode, np.arange(start)))
        trials.append((short, Film(episode=play(episode, np.append(np.arange(start), end))), short))
    return trials

"""What a film would have earned: the verdict and the rewards of a curve, as `LearnedRewardEnv` pays them (pure)."""

from __future__ import annotations

import numpy as np

from embodied_rm.audit.material import Rules
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rewards.steps import Floats, Steps, Terms
from embodied_rm.shaping import careful_potential, held_potential
from embodied_rm.types import Array, BoolArray, Progress


def due(length: int, every: int) -> BoolArray:
    """The frames that are scored, bool [T]: every `every`-th and the last; the first opens the episode."""
    frame = np.arange(length)
    return (frame > 0) & ((frame % every == 0) | (frame == length - 1))


def verdict(curve: Progress, rules: Rules, start: int = 0) -> int | None:
    """The frame at which the sustained verdict ends the film as a success, counting frames from `start` on.

    None: it never does. A frame without a valid score neither continues nor breaks the streak.
    """
    streak = 0
    counted = due(len(curve), rules.reward.score_every) & curve.valid
    for frame in np.flatnonzero(counted):
        positive = frame >= start and curve.success[frame] >= rules.reward.success_threshold
        streak = streak + 1 if positive else 0
        if streak >= rules.reward.success_patience:
            return int(frame)
    return None


def potentials(curve: Progress, rules: Rules) -> Array:
    """Phi at every frame, float32 [T]: held between two scores."""
    scored = due(len(curve), rules.reward.score_every) & curve.valid
    careful = careful_potential(curve.value, curve.spread, rules.reward.caution)
    phi = curve.value.copy()
    for frame in range(1, len(phi)):
        phi[frame] = held_potential(phi[frame - 1], careful[frame], scored[frame])
    return phi


def payments(curve: Progress, rules: Rules) -> Floats:
    """The rewards [n] of the film's steps until the verdict ends it, else until its last frame, a time limit."""
    end, phi = verdict(curve, rules), potentials(curve, rules)
    last = len(curve) - 1 if end is None else end
    number = np.arange(1, last + 1)
    achieved = number == end
    scored = (due(len(curve), rules.reward.score_every) & curve.valid)[1 : last + 1]
    # The last scored frame up to each step; the opening frame, of which nothing was said, where there is none.
    latest = np.maximum.accumulate(np.where(scored, number, 0))
    steps = Steps(
        task=rules.reward.success_reward * achieved,
        achieved=achieved,
        terminated=achieved,
        ended=number == last,
        potential=phi[:last],
        next_potential=phi[1 : last + 1],
        change=np.where(latest > 0, phi[latest] - phi[np.maximum(latest - 1, 0)], 0.0),
        success=np.where(latest > 0, curve.success[latest], 0.0),
    )
    terms = Terms(gamma=rules.gamma, scale=rules.reward.scale, limit=len(curve) - 1)
    return find_rule(rules.reward.rule).pay(steps, terms)


def discounted(rewards: Floats, gamma: float) -> float:
    """The discounted return of rewards [n]."""
    return float(np.dot(rewards, np.power(gamma, np.arange(len(rewards)))))

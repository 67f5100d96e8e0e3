"""What rules are paid from: the steps of many worlds, and what a model said before and after each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from embodied_rm.types import BoolArray, IntArray

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Steps of N worlds: arrays [N], or [T, N] of a rollout. Where nothing was scored, what was said before is held."""

    task: Floats
    """Reward of the task itself: paid once, at success."""
    achieved: BoolArray
    """Whether the step ended the episode as a success."""
    terminated: BoolArray
    """Whether the episode ended in success or failure."""
    ended: BoolArray
    """Whether the episode is over, at a time limit too."""
    potential: Floats
    """Phi of the state before the step, in [0, 1]."""
    next_potential: Floats
    """Phi of the true state after the step, before any reset."""
    change: Floats
    """What the last score changed of the potential: that of this step, if it was scored; 0 before any."""
    success: Floats
    """Probability that the task is done after the step, in [0, 1]."""
    embedding: Floats | None = None
    """[..., D]: what the reward model makes of the state after the step."""
    contribution: Floats | None = None
    """The part of its episode's success that is ascribed to the step."""
    diverged: BoolArray | None = None
    """Where the simulation broke down, which ended the episode; None: nowhere."""

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Name -> column, of those that are there."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: column for name, column in values.items() if column is not None}

    @classmethod
    def stacked(cls, steps: Sequence[Steps]) -> Steps:
        """Steps [T, N] of a rollout, from T times those of N worlds."""
        return cls(**{name: np.stack([getattr(one, name) for one in steps]) for name in steps[0].columns()})


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What is the same for all steps of a run."""

    gamma: float
    """The learner's discount."""
    scale: float = 1.0
    """What the whole way, from potential 0 to 1, is worth."""
    limit: int | None = None
    """Steps after which the time is up."""
    references: tuple[float, ...] = ()
    """Progress at the ends of episodes of the imitated policy."""
    blend: float = 1.0
    """Weight of auxiliary rewards, as far as it was learned."""


def episodes(ended: BoolArray) -> IntArray:
    """int64 [T, N]: the number of the episode that a step belongs to, different in every row."""
    before: IntArray = np.cumsum(ended, axis=0) - ended
    return before * ended.shape[1] + np.arange(ended.shape[1])


def finished(ended: BoolArray) -> BoolArray:
    """bool [T, N]: whether the episode that a step belongs to ended within these steps."""
    over: BoolArray = np.flip(np.logical_or.accumulate(np.flip(ended, 0), axis=0), 0)
    return over


def last_of(values: Floats, number: IntArray) -> Floats:
    """[T, N]: for every step the value at the last step of its episode, as far as it is there."""
    last = np.zeros(number.max() + 1)
    for values_now, number_now in zip(values, number, strict=True):
        last[number_now] = values_now
    return last[number]


def sum_of(values: Floats, number: IntArray) -> Floats:
    """[T, N]: for every step the sum over its episode, as far as it is there."""
    return np.bincount(number.ravel(), values.ravel())[number].astype(values.dtype)

"""What rules are paid from: the steps of many environments, and what a model said before and after each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from embodied_rm.types import BoolArray, IntArray

FloatArray = npt.NDArray[np.floating]


@dataclass(frozen=True, kw_only=True)
class Transitions:
    """Steps of N environments: arrays [N], or [T, N] of a rollout. Where nothing was scored, what was said before is held."""

    task_reward: FloatArray
    """Reward of the task itself: paid once, at success."""
    is_success: BoolArray
    """Whether the step ended the episode as a success."""
    terminated: BoolArray
    """Whether the episode ended in success or failure."""
    done: BoolArray
    """Whether the episode is over, at a time limit too."""
    potential: FloatArray
    """Phi of the state before the step, in [0, 1]."""
    next_potential: FloatArray
    """Phi of the true state after the step, before any reset."""
    potential_change: FloatArray
    """What the last score changed of the potential: that of this step, if it was scored; 0 before any."""
    success_prob: FloatArray
    """Probability that the task is done after the step, in [0, 1]."""
    embedding: FloatArray | None = None
    """[..., D]: what the reward model makes of the state after the step."""
    contribution: FloatArray | None = None
    """The part of its episode's success that is ascribed to the step."""
    diverged: BoolArray | None = None
    """Where the simulation broke down, which ended the episode; None: nowhere."""

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Name -> column, of those that are there."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: column for name, column in values.items() if column is not None}

    @classmethod
    def stack(cls, transitions: Sequence[Transitions]) -> Transitions:
        """Steps [T, N] of a rollout, from T times those of N environments."""
        return cls(
            **{name: np.stack([getattr(step, name) for step in transitions]) for name in transitions[0].columns()}
        )


@dataclass(frozen=True, kw_only=True)
class RewardParams:
    """What is the same for all steps of a run."""

    gamma: float
    """The learner's discount."""
    scale: float = 1.0
    """What the whole way, from potential 0 to 1, is worth."""
    max_episode_steps: int | None = None
    """Steps after which the time is up."""
    reference_rewards: tuple[float, ...] = ()
    """Progress at the ends of episodes of the imitated policy."""
    auxiliary_weight: float = 1.0
    """Weight of auxiliary rewards, as far as it was learned."""


def number_episodes(done: BoolArray) -> IntArray:
    """int64 [T, N]: the number of the episode that a step belongs to, different in every row."""
    episodes_before: IntArray = np.cumsum(done, axis=0) - done
    return episodes_before * done.shape[1] + np.arange(done.shape[1])


def is_finished(done: BoolArray) -> BoolArray:
    """bool [T, N]: whether the episode that a step belongs to ended within these steps."""
    finished: BoolArray = np.flip(np.logical_or.accumulate(np.flip(done, 0), axis=0), 0)
    return finished


def last_per_episode(values: FloatArray, episode_ids: IntArray) -> FloatArray:
    """[T, N]: for every step the value at the last step of its episode, as far as it is there."""
    last = np.zeros(episode_ids.max() + 1)
    for step_values, step_ids in zip(values, episode_ids, strict=True):
        last[step_ids] = step_values
    return last[episode_ids]


def sum_per_episode(values: FloatArray, episode_ids: IntArray) -> FloatArray:
    """[T, N]: for every step the sum over its episode, as far as it is there."""
    return np.bincount(episode_ids.ravel(), values.ravel())[episode_ids].astype(values.dtype)

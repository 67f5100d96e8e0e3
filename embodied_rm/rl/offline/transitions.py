"""Recorded transitions with rewards, from episodes whose outcome, progress or scores are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from embodied_rm.errors import DataError, UserError
from embodied_rm.rewards.rule_registry import RewardRule
from embodied_rm.rewards.transitions import RewardParams, Transitions
from embodied_rm.rl.learner.demo_pairs import check_columns
from embodied_rm.types import Array, BoolArray, Episode

ACTION_ROUNDING = 1e-5  # of stored actions at their bounds


@dataclass(frozen=True, kw_only=True)
class OfflineTransitions:
    """B transitions of recorded episodes."""

    observation: Tensor  # float32 [B, D]
    action: Tensor  # float32 [B, A]
    reward: Tensor  # float32 [B]
    next_observation: Tensor  # float32 [B, D]
    terminated: Tensor  # bool [B]: the task was done, so that nothing follows
    potential: Tensor  # float32 [B], of the states, as the rule sees it; 0: it has none
    episode_index: Tensor  # int64 [B]

    def __len__(self) -> int:
        return len(self.reward)

    def take(self, rows: Tensor) -> OfflineTransitions:
        """Return the transitions of some rows, int64 [b] or bool [B]."""
        return OfflineTransitions(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    @classmethod
    def concat(cls, parts: Sequence[OfflineTransitions]) -> OfflineTransitions:
        """Return the transitions of all parts, in order."""
        return cls(**{field.name: torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)})

    def sample(self, count: int, generator: torch.Generator) -> OfflineTransitions:
        """Sample transitions uniformly, with replacement."""
        return self.take(torch.randint(len(self), (count,), generator=generator))

    def split(self, validation_share: float, seed: int) -> tuple[OfflineTransitions, OfflineTransitions]:
        """Return the transitions to train on and those to validate on; no episode is in both.

        Raises:
            DataError: There are fewer than two episodes.
        """
        episodes = self.episode_index.unique()
        if len(episodes) < 2:
            raise DataError(f"offline learning needs at least 2 episodes of two frames or more, got {len(episodes)}")
        count = min(max(1, round(validation_share * len(episodes))), len(episodes) - 1)
        drawn = episodes[torch.randperm(len(episodes), generator=torch.Generator().manual_seed(seed))[:count]]
        is_validation = torch.isin(self.episode_index, drawn)
        return self.take(~is_validation), self.take(is_validation)


def check_unit_actions(action: Tensor, learner: str) -> None:
    """Raise `UserError` unless recorded actions are in [-1, 1], in which a learner takes its own."""
    largest = float(action.abs().max())
    if largest > 1 + ACTION_ROUNDING:
        raise UserError(f"{learner} needs actions in [-1, 1], and one is {largest:g}: rescale them")


def make_transitions(
    episodes: Sequence[Episode],
    rewards: Sequence[Array],
    potentials: Sequence[Array | None] | None = None,
    *,
    uses_outcome: bool = True,
) -> OfflineTransitions:
    """Return the transitions of episodes.

    Args:
        episodes: Episodes with state and action. The action of the last frame is not taken.
        rewards: Reward of each transition, float32 [T - 1] per episode.
        potentials: Potential of each state as the rule sees it, float32 [T] per episode; None: 0.
        uses_outcome: Whether a recorded success ends the task. Else the last state of every episode has a value.

    Raises:
        DataError: An episode has no finite state or action, or of another size; or there is no transition.
    """
    check_columns(episodes, "offline learning")
    for episode in episodes:
        for name in ("state", "action"):
            size, expected = (getattr(e, name).shape[1] for e in (episode, episodes[0]))
            if size != expected:
                raise DataError(f"{episode.name}: its {name} has size {size}, that of {episodes[0].name} {expected}")
    lengths = [len(episode) - 1 for episode in episodes]
    if not sum(lengths):
        raise DataError(f"none of these {len(episodes)} episodes has two frames: there is no transition")
    zeros = np.zeros(max(map(len, episodes)), np.float32)
    states = [np.asarray(episode.state, np.float32) for episode in episodes]
    return OfflineTransitions(
        observation=torch.from_numpy(np.concatenate([state[:-1] for state in states])),
        action=torch.from_numpy(np.concatenate([np.asarray(e.action, np.float32)[:-1] for e in episodes])),
        reward=torch.from_numpy(np.concatenate(rewards).astype(np.float32)),
        next_observation=torch.from_numpy(np.concatenate([state[1:] for state in states])),
        terminated=torch.from_numpy(np.concatenate([uses_outcome & ends_in_success(episode) for episode in episodes])),
        potential=torch.from_numpy(
            np.concatenate(
                [
                    (zeros if potential is None else potential)[:length].astype(np.float32)
                    for potential, length in zip(potentials or [None] * len(episodes), lengths, strict=True)
                ]
            )
        ),
        episode_index=torch.from_numpy(np.repeat(np.arange(len(episodes)), lengths)),
    )


def ends_in_success(episode: Episode) -> BoolArray:
    """Return for each transition, bool [T - 1], whether the episode ended there because the task was done.

    A failure and an unknown outcome end at a time limit: the next state has a value.
    """
    is_end = np.zeros(len(episode) - 1, bool)
    is_end[-1:] = episode.success is True
    return is_end


def recorded_rewards(
    episode: Episode,
    rule: RewardRule,
    params: RewardParams,
    *,
    progress: Array | None = None,
    success_prob: Array | None = None,
    success_reward: float = 1.0,
) -> Array:
    """Return the reward of each transition of an episode, float32 [T - 1], by a rule that is known step by step.

    Args:
        episode: The episode. Its recorded outcome is the task reward.
        rule: The rule.
        params: Its inputs that are the same for all transitions.
        progress: Progress that the rule rewards, float32 [T] in [0, 1]; None: 0.
        success_prob: Predicted probability of success, float32 [T] in [0, 1]; None: 0.
        success_reward: Reward of a recorded success; 0: the outcome is not used.
    """
    assert rule.per_step, "an episode that was recorded by another policy has no rollout"
    zeros = np.zeros(len(episode), np.float32)
    potential, success = (zeros if values is None else values for values in (progress, success_prob))
    is_last = np.arange(1, len(episode)) == len(episode) - 1
    is_end = ends_in_success(episode) & bool(success_reward)
    transitions = Transitions(
        task_reward=success_reward * is_end,
        is_success=is_end,
        terminated=is_end,
        done=is_last,
        potential=potential[:-1],
        next_potential=potential[1:],
        potential_change=np.diff(potential),
        success_prob=success[1:],
    )
    return np.asarray(rule.compute(transitions, params), np.float32)

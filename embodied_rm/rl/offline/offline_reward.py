"""Rewards of recorded episodes: by their outcome, the simulator's progress, or predictions of a reward model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from embodied_rm.errors import DataError, UserError, check_minimum
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rewards.rules import RULES, find_rule
from embodied_rm.rewards.transitions import RewardParams
from embodied_rm.rl.offline.transitions import OfflineTransitions, make_transitions, recorded_rewards
from embodied_rm.types import Array, Episode, RewardOutput


@dataclass(frozen=True, kw_only=True)
class OfflineReward:
    """The reward of recorded transitions."""

    rule: str = "shaped"  # a reward rule that is known step by step
    progress_scale: float = 1.0  # weight of the progress
    rank_progress: bool = False
    """Whether the progress of a frame is its rank among all recorded frames: comparisons teach the order, not the
    distances."""
    success_reward: float = 1.0  # reward of a recorded success; 0: the outcome is not used

    def __post_init__(self) -> None:
        check_minimum(self, 0, "progress_scale", "success_reward")
        find_rule(self.rule)
        known = {name: rule for name, rule in RULES.items() if rule.per_step and not rule.treats_timeout_as_terminal}
        if self.rule not in known:
            names = ", ".join(sorted(known))
            raise UserError(f"rule={self.rule} needs whole rollouts of the present policy; recorded episodes: {names}")
        if find_rule(self.rule).required_input == "program_reward":
            raise UserError(f"rule={self.rule} pays the output of a program, which recorded episodes do not have")
        if self.rank_progress and not self.needs_predictions:
            raise UserError(f"rank_progress=true ranks predictions of a reward model, and rule={self.rule} has none")

    @classmethod
    def from_refinement(cls, config: RewardConfig) -> OfflineReward:
        """Return the reward by which recorded transitions take part in a refinement.

        Raises:
            UserError: The rule needs whole rollouts, or the time limit of the environments; or the config has an
                uncertainty penalty.
        """
        if find_rule(config.rule).required_input == "max_episode_steps":
            raise UserError(
                f"reward.rule={config.rule} reads the time limit, which recorded episodes do not have: use another "
                "rule, or algorithm=ppo"
            )
        if config.uncertainty_penalty:
            raise UserError(
                "recorded episodes are rewarded without reward.uncertainty_penalty: set it to 0, or algorithm=ppo"
            )
        return cls(rule=config.rule, progress_scale=config.progress_scale, success_reward=config.success_reward)

    @property
    def needs_predictions(self) -> bool:
        """Whether a reward model must score the videos."""
        return find_rule(self.rule).progress_source == "model"

    def make_transitions(
        self, episodes: Sequence[Episode], predictions: Sequence[RewardOutput] | None, gamma: float
    ) -> OfflineTransitions:
        """Return the transitions of episodes with their rewards.

        Args:
            episodes: Episodes with state and action.
            predictions: Predictions of a reward model for each episode; None: the rule needs none.
            gamma: Discount of the learner.

        Raises:
            DataError: An episode lacks state, action, or the simulator's progress that the rule needs; or the rule
                rewards nothing but recorded successes, and there are none.
        """
        assert not self.needs_predictions or predictions is not None
        if predictions is not None and self.rank_progress:
            predictions = with_ranks(predictions)
        outputs: Sequence[RewardOutput | None] = predictions or [None] * len(episodes)
        longest = max((len(episode) - 1 for episode in episodes), default=None)
        params = RewardParams(gamma=gamma, scale=self.progress_scale, max_episode_steps=longest)
        progress = [self._progress(episode, output) for episode, output in zip(episodes, outputs, strict=True)]
        rewards = [self._rewards(*inputs, params) for inputs in zip(episodes, outputs, progress, strict=True)]
        transitions = make_transitions(episodes, rewards, progress, uses_outcome=bool(self.success_reward))
        if find_rule(self.rule).policy_invariant and not transitions.terminated.any():
            successes = sum(episode.success is True for episode in episodes)
            raise DataError(
                f"rule={self.rule} makes no difference between policies without a rewarded success: {successes} of "
                f"{len(episodes)} episodes are recorded successes, success_reward={self.success_reward:g}. "
                "record a success, or reward the progress itself, by the rule raw and success_reward=0"
            )
        return transitions

    def _progress(self, episode: Episode, output: RewardOutput | None) -> Array | None:
        """Return the progress that the rule rewards, float32 [T]; None: it rewards none."""
        if find_rule(self.rule).progress_source == "simulator":
            if episode.progress is None:
                raise DataError(f"{episode.name}: the simulator's progress was not recorded; use rule=shaped or sparse")
            return episode.progress
        return None if output is None else np.clip(output.progress, 0, 1).astype(np.float32)

    def _rewards(
        self, episode: Episode, output: RewardOutput | None, progress: Array | None, params: RewardParams
    ) -> Array:
        return recorded_rewards(
            episode,
            find_rule(self.rule),
            params,
            progress=progress,
            success_prob=None if output is None else np.nan_to_num(output.success),
            success_reward=self.success_reward,
        )


def with_ranks(predictions: Sequence[RewardOutput]) -> list[RewardOutput]:
    """Replace each frame's progress by the share of all frames with less progress, float32 in [0, 1)."""
    all_progress = np.sort(np.concatenate([output.progress for output in predictions]))
    ranks = [np.searchsorted(all_progress, output.progress) / len(all_progress) for output in predictions]
    return [replace(output, progress=rank.astype(np.float32)) for output, rank in zip(predictions, ranks, strict=True)]

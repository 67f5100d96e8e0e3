"""Registry of reward rules: the extension point for rewards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions

RuleInput = Literal[
    "max_episode_steps",
    "embedding",
    "contribution",
    "reference_rewards",
    "auxiliary_weight",
    "preference_reward",
    "outcome_reward",
    "program_reward",
]
"""An input that not every step has: a column of `Transitions` or a field of `RewardParams`."""
RewardFn = Callable[[Transitions, RewardParams], FloatArray]
"""(transitions, params) -> rewards: [N] of a step, or [T, N] of a rollout."""


@dataclass(frozen=True, kw_only=True)
class RewardRule:
    """A reward function and its properties."""

    compute: RewardFn
    progress_source: Literal["model", "simulator", "none"] = "model"
    """Source of the progress."""
    policy_invariant: bool = False
    """Whether the optimal policy is that of the task for every potential."""
    is_potential_based: bool = False
    """Whether the reward is that of the task plus potential-based shaping."""
    treats_timeout_as_terminal: bool = False
    """Whether the reward is given once, at the end of the episode, time limits included, without bootstrapping.
    With bootstrapping, stopping just before success would be worth more than success."""
    needs_full_rollout: bool = False
    """Whether the reward of a step depends on later steps: arrays [T, N] only."""
    required_input: RuleInput | None = None
    uses_success_prob: bool = False
    """Whether the reward depends on the predicted probability of success."""

    @property
    def per_step(self) -> bool:
        """Whether the reward of a step is known when the step is taken."""
        return not self.needs_full_rollout and self.required_input in (None, "max_episode_steps", "program_reward")


_RULES: dict[str, RewardRule] = {}
RULES: Mapping[str, RewardRule] = MappingProxyType(_RULES)
"""Name -> registered rule."""


def register_reward_rule(name: str, **properties: Any) -> Callable[[RewardFn], RewardFn]:
    """Return a decorator that registers a reward function under `name`, for `RewardConfig.rule`.

        @register_reward_rule("half_progress")
        def half_progress(transitions, params):
            return transitions.task_reward + 0.5 * params.scale * transitions.next_potential

    Args:
        name: Name of the rule.
        **properties: Fields of `RewardRule` other than `compute`.

    Raises:
        ValueError: A rule of that name exists.
    """

    def register(compute: RewardFn) -> RewardFn:
        if name in _RULES:
            raise ValueError(f"the reward rule {name!r} is registered already")
        _RULES[name] = RewardRule(compute=compute, **properties)
        return compute

    return register

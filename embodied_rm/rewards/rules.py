"""Name -> rule: how steps are paid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from embodied_rm.errors import lookup
from embodied_rm.rewards import (
    blended,
    delta,
    difference,
    gated,
    hold,
    min_form,
    negative_time,
    raw,
    redistributed,
    self_reference,
    shaped,
    sigmoid_reference,
    sparse,
    terminal_ordinal,
)
from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions

RuleInput = Literal["limit", "embedding", "contribution", "references", "blend"]
"""What a rule is paid from besides what every step tells: a column of `Steps` or a field of `Terms`."""


@dataclass(frozen=True, kw_only=True)
class RewardRule:
    """How steps are paid."""

    compute: Callable[[Transitions, RewardParams], FloatArray]
    """The rewards of steps: [N], or [T, N] of a rollout."""
    progress_source: Literal["model", "simulator", "nobody"] = "model"
    """Who says how far a task is."""
    policy_invariant: bool = False
    """Whether it has the optimal policy of the task, whatever the potential is."""
    treats_timeout_as_terminal: bool = False
    """Whether it pays the end of an episode, whatever ended it, for all that there is: nothing follows a time limit. By
    what might follow, an end just short of success would be worth more than success, again and again."""
    needs_full_rollout: bool = False
    """Whether a step is paid by what comes after it: rollouts only, arrays [T, N]."""
    required_input: RuleInput | None = None
    uses_success_prob: bool = False
    """Whether it is paid by the probability that the task is done."""

    @property
    def per_step(self) -> bool:
        """Whether a step can be paid when it is made."""
        return not self.needs_full_rollout and self.required_input in (None, "limit")

    @property
    def is_potential_based(self) -> bool:
        """Whether it is the task's reward, shaped by a potential."""
        return self.compute is shaped.compute_reward


RULES: Mapping[str, RewardRule] = {
    "sparse": RewardRule(compute=sparse.compute_reward, progress_source="nobody", policy_invariant=True),
    "dense": RewardRule(compute=shaped.compute_reward, progress_source="simulator", policy_invariant=True),
    "shaped": RewardRule(compute=shaped.compute_reward, policy_invariant=True),
    "difference": RewardRule(compute=difference.compute_reward),
    "raw": RewardRule(compute=raw.compute_reward),
    "hold": RewardRule(compute=hold.compute_reward, uses_success_prob=True),
    "delta": RewardRule(compute=delta.compute_reward),
    "negative_time": RewardRule(compute=negative_time.compute_reward, required_input="limit"),
    "terminal_ordinal": RewardRule(compute=terminal_ordinal.compute_reward, treats_timeout_as_terminal=True),
    "sigmoid_reference": RewardRule(
        compute=sigmoid_reference.compute_reward, required_input="references", treats_timeout_as_terminal=True
    ),
    "blended": RewardRule(compute=blended.compute_reward, required_input="blend"),
    "gated": RewardRule(compute=gated.compute_reward, needs_full_rollout=True, uses_success_prob=True),
    "min_form": RewardRule(compute=min_form.compute_reward, needs_full_rollout=True),
    "self_reference": RewardRule(
        compute=self_reference.compute_reward,
        needs_full_rollout=True,
        required_input="embedding",
        treats_timeout_as_terminal=True,
    ),
    "redistributed": RewardRule(
        compute=redistributed.compute_reward, needs_full_rollout=True, required_input="contribution"
    ),
}


def find_rule(name: str) -> RewardRule:
    """The rule of that name. Raises `UserError` for an unknown one."""
    return lookup(RULES, name, "reward rule")

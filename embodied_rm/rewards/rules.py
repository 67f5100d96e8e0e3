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
from embodied_rm.rewards.steps import Floats, Steps, Terms

Need = Literal["limit", "embedding", "contribution", "references", "blend"]
"""What a rule is paid from besides what every step tells: a column of `Steps` or a field of `Terms`."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How steps are paid."""

    pay: Callable[[Steps, Terms], Floats]
    """The rewards of steps: [N], or [T, N] of a rollout."""
    by: Literal["model", "simulator", "nobody"] = "model"
    """Who says how far a task is."""
    invariant: bool = False
    """Whether it has the optimal policy of the task, whatever the potential is."""
    episodic: bool = False
    """Whether it pays the end of an episode, whatever ended it, for all that there is: nothing follows a time limit. By
    what might follow, an end just short of success would be worth more than success, again and again."""
    whole: bool = False
    """Whether a step is paid by what comes after it: rollouts only, arrays [T, N]."""
    needs: Need | None = None
    done: bool = False
    """Whether it is paid by the probability that the task is done."""

    @property
    def at_once(self) -> bool:
        """Whether a step can be paid when it is made."""
        return not self.whole and self.needs in (None, "limit")

    @property
    def shapes(self) -> bool:
        """Whether it is the task's reward, shaped by a potential."""
        return self.pay is shaped.pay


RULES: Mapping[str, Rule] = {
    "sparse": Rule(pay=sparse.pay, by="nobody", invariant=True),
    "dense": Rule(pay=shaped.pay, by="simulator", invariant=True),
    "shaped": Rule(pay=shaped.pay, invariant=True),
    "difference": Rule(pay=difference.pay),
    "raw": Rule(pay=raw.pay),
    "hold": Rule(pay=hold.pay, done=True),
    "delta": Rule(pay=delta.pay),
    "negative_time": Rule(pay=negative_time.pay, needs="limit"),
    "terminal_ordinal": Rule(pay=terminal_ordinal.pay, episodic=True),
    "sigmoid_reference": Rule(pay=sigmoid_reference.pay, needs="references", episodic=True),
    "blended": Rule(pay=blended.pay, needs="blend"),
    "gated": Rule(pay=gated.pay, whole=True, done=True),
    "min_form": Rule(pay=min_form.pay, whole=True),
    "self_reference": Rule(pay=self_reference.pay, whole=True, needs="embedding", episodic=True),
    "redistributed": Rule(pay=redistributed.pay, whole=True, needs="contribution"),
}


def find_rule(name: str) -> Rule:
    """The rule of that name. Raises `UserError` for an unknown one."""
    return lookup(RULES, name, "reward rule")

"""Name -> rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from embodied_rm.rewards import (
    delta,
    difference,
    gated,
    hold,
    min_form,
    negative_time,
    raw,
    shaped,
    sparse,
    terminal_ordinal,
)
from embodied_rm.rewards.steps import Floats, Steps, Terms


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How steps are paid."""

    pay: Callable[[Steps, Terms], Floats]
    """The rewards of steps: [N], or [T, N] of a rollout."""
    invariant: bool = False
    """Whether it has the optimal policy of the task, whatever the potential is."""
    whole: bool = False
    """Whether a step is paid by what comes after it: rollouts only, arrays [T, N]."""


RULES: Mapping[str, Rule] = {
    "sparse": Rule(pay=sparse.pay, invariant=True),
    "shaped": Rule(pay=shaped.pay, invariant=True),
    "difference": Rule(pay=difference.pay),
    "raw": Rule(pay=raw.pay),
    "hold": Rule(pay=hold.pay),
    "delta": Rule(pay=delta.pay),
    "negative_time": Rule(pay=negative_time.pay),
    "terminal_ordinal": Rule(pay=terminal_ordinal.pay),
    "gated": Rule(pay=gated.pay, whole=True),
    "min_form": Rule(pay=min_form.pay, whole=True),
}

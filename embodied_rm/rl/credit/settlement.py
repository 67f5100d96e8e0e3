"""Rewards that are paid for a whole rollout, before advantages are estimated, and what that takes remembering."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from embodied_rm.checkpoint_io import under_prefix, with_prefix
from embodied_rm.errors import UserError
from embodied_rm.group import ALONE, Group
from embodied_rm.rewards import blended
from embodied_rm.rewards.rules import Rule
from embodied_rm.rewards.steps import Floats, Steps, Terms
from embodied_rm.rl.credit.attribution import Attribution
from embodied_rm.rl.credit.blend import moved
from embodied_rm.rl.learner.buffer import RolloutBuffer
from embodied_rm.rl.learner.policy import GaussianPolicy


class Settlement:
    """Pays rollouts by a rule that cannot be paid at once."""

    def __init__(self, rule: Rule, terms: Terms, critic_dim: int, seed: int) -> None:
        self.rule, self.terms = rule, terms
        self._attribution = Attribution(critic_dim, seed) if rule.needs == "contribution" else None

    def pay(self, buffer: RolloutBuffer, policy: GaussianPolicy, group: Group = ALONE) -> Floats:
        """The rewards [T, N] of a rollout that `policy` acted in, everybody's. The first one is of the imitated policy.

        Raises `UserError` if references are needed and no episode of the imitated policy ended in it.
        """
        steps = Steps(**group.side_by_side(Steps.stacked(buffer.told).columns()))
        if self.rule.needs == "references" and not self.terms.references:
            self.terms = replace(self.terms, references=ends(steps, buffer))
        if self._attribution is not None:
            steps = replace(steps, contribution=self._attribution.contributions(buffer, steps))
        paid = self.rule.pay(steps, self.terms)
        if self.rule.needs == "blend":
            auxiliary = blended.auxiliary(steps, self.terms)
            blend = moved(self.terms.blend, buffer, steps.task, auxiliary, policy, self.terms.gamma)
            self.terms = replace(self.terms, blend=blend)
        return paid

    def cut(self) -> None:
        """The episodes under way end here without anybody seeing how."""
        if self._attribution is not None:
            self._attribution.cut()

    def state(self) -> dict[str, Tensor]:
        """Everything that later rewards depend on."""
        known = {"references": number(self.terms.references), "blend": number(self.terms.blend)}
        return (
            known if self._attribution is None else {**known, **with_prefix("attribution", self._attribution.state())}
        )

    def restore(self, tensors: dict[str, Tensor], source: object) -> None:
        """Take over what `state` returned."""
        references = tuple(tensors["references"].tolist())
        self.terms = replace(self.terms, references=references, blend=float(tensors["blend"]))
        if self._attribution is not None:
            self._attribution.restore(under_prefix("attribution", tensors), source)


def number(value: float | tuple[float, ...]) -> Tensor:
    """As a tensor that keeps every digit."""
    return torch.tensor(value, dtype=torch.float64)


def ends(steps: Steps, buffer: RolloutBuffer) -> tuple[float, ...]:
    """Progress at the ends of the episodes of a rollout. Raises `UserError` if none ended."""
    over = steps.ended & buffer.valid
    if not over.any():
        raise UserError(
            f"rollout_steps={buffer.steps}: no episode of the imitated policy ended in the first rollout, whose ends "
            "this reward rule compares with; give it at least as many steps as an episode may take"
        )
    return tuple(np.where(steps.achieved, 1.0, steps.next_potential)[over].astype(float).tolist())

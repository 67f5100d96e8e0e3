"""The objective of training: of every labelling scheme the terms that it teaches, over what the heads said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embodied_rm import losses
from embodied_rm.labels.batches import Batch
from embodied_rm.labels.hops import hop
from embodied_rm.labels.pairs import closer, neighbours
from embodied_rm.labels.preferences import RATIONALITY, bradley_terry, draw_segments, partial_return, regret
from embodied_rm.labels.rewind import shown_in_turn
from embodied_rm.labels.schemes import Scheme, Term
from embodied_rm.models.training_pass import Outputs
from embodied_rm.types import BoolArray

WEIGHTS: Mapping[Term, float] = {
    "everywhere": 1.0,
    "neighbours": 1.0,
    "rewound": 1.0,
    "forward": 1.0,
    "goal": 0.5,
    "order": 1.0,
    "partial_return": 1.0,
    "regret": 1.0,
    "foreign": 0.5,
    "doubt": 0.1,
    "completion": 0.3,
    "step": 0.1,
    "contrast": 0.5,
}
"""What each term counts."""
MARGIN = 0.1
"""Difference of two potentials at which the order of their frames is called with odds of e to 1."""


def objective(outputs: Outputs, batch: Batch, schemes: Mapping[str, Scheme], rng: np.random.Generator) -> Tensor:
    """The sum of the objectives of the schemes, a scalar to minimise. Draws from `rng` only where a term needs it."""
    return summed(every_term(outputs, batch, schemes, rng))


def every_term(
    outputs: Outputs, batch: Batch, schemes: Mapping[str, Scheme], rng: np.random.Generator
) -> dict[str, dict[Term, Tensor]]:
    """Scheme -> the terms that it teaches, not yet weighted."""
    return {name: terms(outputs, batch, name, scheme, rng) for name, scheme in schemes.items()}


def summed(told: Mapping[str, Mapping[Term, Tensor]]) -> Tensor:
    """The objective from the terms of all schemes."""
    return torch.stack([losses.total(each, WEIGHTS) for each in told.values()]).sum()


def terms(outputs: Outputs, batch: Batch, name: str, scheme: Scheme, rng: np.random.Generator) -> dict[Term, Tensor]:
    """The terms that one scheme teaches, not yet weighted. `batch` must hold its targets."""
    lesson = Lesson(outputs, batch, name, rng)
    return {term: TERMS[term](lesson) for term in scheme.teaches}


class Lesson:
    """What one scheme has to say of one batch. Moment 0 is the first frame; B episodes, M moments."""

    def __init__(self, outputs: Outputs, batch: Batch, name: str, rng: np.random.Generator) -> None:
        self.outputs, self.batch, self.targets, self.rng = outputs, batch, batch.targets[name], rng
        progress, known = self.targets.progress, self.targets.known
        self.hops = torch.from_numpy(hop(progress[:, :, None], progress[:, None]))
        self.both_known = known[:, :, None] & known[:, None]

    def between(self, pairs: BoolArray) -> Tensor:
        """Hops between those `pairs` of moments, bool [M, M] or [B, M, M], whose progress is known."""
        return losses.hop_loss(self.outputs.hops, self.hops, torch.from_numpy(pairs & self.both_known))

    def everywhere(self) -> Tensor:
        """Hops between any two moments."""
        return self.between(self._distinct())

    def neighbours(self) -> Tensor:
        """Hops between moments that follow each other, both ways."""
        return self.between(neighbours(self.batch.at))

    def rewound(self) -> Tensor:
        """Hops from each picture of a rewound clip to the next."""
        return self.between(shown_in_turn(self.batch.at, self.rng))

    def forward(self) -> Tensor:
        """Hops from the first frame."""
        known = torch.from_numpy(self.both_known[:, 0, 1:])
        return losses.hop_loss(self.outputs.hops[:, 0, 1:], self.hops[:, 0, 1:], known)

    def goal(self) -> Tensor:
        """Hops from a picture of the goal."""
        from_goal = torch.from_numpy(hop(1.0, self.targets.progress))
        known = torch.from_numpy(self.batch.has_goal[:, None] & self.targets.known)
        return losses.hop_loss(self.outputs.goal_hops, from_goal, known)

    def order(self) -> Tensor:
        """Which of any two moments is closer to the goal, as seen from the first frame."""
        potential = self._potential()
        logits = (potential[:, None] - potential[:, :, None]) / MARGIN
        target = torch.from_numpy(closer(self.targets.progress))
        return losses.choice_loss(logits, target, torch.from_numpy(self._distinct() & self.both_known))

    def partial_return(self) -> Tensor:
        """Which of two segments shows more, by the sum of its potentials."""
        return self._preferred(partial_return)

    def regret(self) -> Tensor:
        """Which of two segments gives less away."""
        return self._preferred(lambda segment: -regret(segment))

    def foreign(self) -> Tensor:
        """Under an instruction that wants something else nothing has been gained at the last frame."""
        hops = self.outputs.foreign_hop
        return losses.hop_loss(hops, torch.zeros_like(hops), torch.from_numpy(self.batch.foreign_known))

    def doubt(self) -> Tensor:
        """How wrong the potential as seen from the first frame is; the hops learn nothing by it."""
        # A hop below 0 leaves the potential at 0: `fusion.apply_hop`.
        wrong = (self.outputs.hops[:, 0, 1:].detach().clamp(min=0) - self.hops[:, 0, 1:]).abs()
        return losses.doubt_loss(self.outputs.error[:, 1:], wrong, torch.from_numpy(self.both_known[:, 0, 1:]))

    def completion(self) -> Tensor:
        """Whether the task is done."""
        done, known = torch.from_numpy(self.targets.done), torch.from_numpy(self.targets.done_known)
        return losses.completion_loss(self.outputs.completion, done, known)

    def step(self) -> Tensor:
        """The step under way."""
        return losses.step_loss(self.outputs.step, torch.from_numpy(self.targets.step))

    def contrast(self) -> Tensor:
        """The end of a success is done under its own instruction and not under one that wants something else."""
        known = torch.from_numpy(self.batch.foreign_known)
        return losses.contrast_loss(self.outputs.completion[:, 1], self.outputs.foreign_completion, known)

    def _distinct(self) -> BoolArray:
        return ~np.eye(self.both_known.shape[1], dtype=bool)

    def _potential(self) -> Tensor:
        """[B, M]: as seen from the first frame, which has none."""
        return torch.nn.functional.pad(self.outputs.hops[:, 0, 1:], (1, 0))

    def _preferred(self, worth: Callable[[Any], Any]) -> Tensor:
        """Bradley-Terry on what two segments are worth, to us and to the judge."""
        segments = draw_segments(self.batch.at, self.batch.goals, self.rng)
        ours = worth(self._potential()[torch.from_numpy(segments.row), torch.from_numpy(segments.moment)])
        judged = worth(segments.of(self.targets.progress))
        known = segments.of(self.targets.known).all(axis=(1, 2))
        target = torch.from_numpy(bradley_terry(judged[:, 0], judged[:, 1]))
        return losses.choice_loss(RATIONALITY * (ours[:, 0] - ours[:, 1]), target, torch.from_numpy(known))


TERMS: Mapping[Term, Callable[[Lesson], Tensor]] = {
    "everywhere": Lesson.everywhere,
    "neighbours": Lesson.neighbours,
    "rewound": Lesson.rewound,
    "forward": Lesson.forward,
    "goal": Lesson.goal,
    "order": Lesson.order,
    "partial_return": Lesson.partial_return,
    "regret": Lesson.regret,
    "foreign": Lesson.foreign,
    "doubt": Lesson.doubt,
    "completion": Lesson.completion,
    "step": Lesson.step,
    "contrast": Lesson.contrast,
}

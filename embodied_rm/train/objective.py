"""The objective of training: of every labeling scheme the terms that it teaches, over what the heads said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embodied_rm.labels.hops import hop
from embodied_rm.labels.pairwise import adjacent_mask, preference_matrix
from embodied_rm.labels.preferences import (
    BRADLEY_TERRY_RATIONALITY,
    bradley_terry,
    partial_return,
    regret,
    sample_segment_pairs,
)
from embodied_rm.labels.rewind_labels import rewind_adjacent_mask
from embodied_rm.labels.schemes import LabelScheme, LossTerm
from embodied_rm.train import losses
from embodied_rm.train.batches import LabeledBatch
from embodied_rm.train.forward import TrainingOutputs
from embodied_rm.types import BoolArray

LOSS_WEIGHTS: Mapping[LossTerm, float] = {
    "everywhere": 1.0,
    "neighbors": 1.0,
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
RANKING_TEMPERATURE = 0.1
"""Difference of two potentials at which the order of their frames is called with odds of e to 1."""


def objective(
    outputs: TrainingOutputs, batch: LabeledBatch, schemes: Mapping[str, LabelScheme], rng: np.random.Generator
) -> Tensor:
    """The sum of the objectives of the schemes, a scalar to minimise. Draws from `rng` only where a term needs it."""
    return sum_loss_terms(all_loss_terms(outputs, batch, schemes, rng))


def all_loss_terms(
    outputs: TrainingOutputs, batch: LabeledBatch, schemes: Mapping[str, LabelScheme], rng: np.random.Generator
) -> dict[str, dict[LossTerm, Tensor]]:
    """Scheme -> the terms that it teaches, not yet weighted."""
    return {name: scheme_loss_terms(outputs, batch, name, scheme, rng) for name, scheme in schemes.items()}


def sum_loss_terms(terms_by_scheme: Mapping[str, Mapping[LossTerm, Tensor]]) -> Tensor:
    """The objective from the terms of all schemes."""
    return torch.stack(
        [losses.weighted_sum(scheme_terms, LOSS_WEIGHTS) for scheme_terms in terms_by_scheme.values()]
    ).sum()


def scheme_loss_terms(
    outputs: TrainingOutputs, batch: LabeledBatch, scheme_name: str, scheme: LabelScheme, rng: np.random.Generator
) -> dict[LossTerm, Tensor]:
    """The terms that one scheme teaches, not yet weighted. `batch` must hold its targets."""
    context = LossContext(outputs, batch, scheme_name, rng)
    return {term: LOSS_TERMS[term](context) for term in scheme.loss_terms}


class LossContext:
    """What one scheme has to say of one batch. Moment 0 is the first frame; B episodes, M moments."""

    def __init__(
        self, outputs: TrainingOutputs, batch: LabeledBatch, scheme_name: str, rng: np.random.Generator
    ) -> None:
        self.outputs, self.batch, self.targets, self.rng = outputs, batch, batch.targets[scheme_name], rng
        progress, progress_known = self.targets.progress, self.targets.progress_known
        self.target_hops = torch.from_numpy(hop(progress[:, :, None], progress[:, None]))
        self.pair_known = progress_known[:, :, None] & progress_known[:, None]

    def hop_loss(self, pair_mask: BoolArray) -> Tensor:
        """Hops between those `pairs` of moments, bool [M, M] or [B, M, M], whose progress is known."""
        return losses.hop_loss(self.outputs.hops, self.target_hops, torch.from_numpy(pair_mask & self.pair_known))

    def all_pairs(self) -> Tensor:
        """Hops between any two moments."""
        return self.hop_loss(self._off_diagonal_mask())

    def adjacent_pairs(self) -> Tensor:
        """Hops between moments that follow each other, both ways."""
        return self.hop_loss(adjacent_mask(self.batch.frame_indices))

    def rewind_pairs(self) -> Tensor:
        """Hops from each image of a rewound clip to the next."""
        return self.hop_loss(rewind_adjacent_mask(self.batch.frame_indices, self.rng))

    def from_first_frame(self) -> Tensor:
        """Hops from the first frame."""
        known = torch.from_numpy(self.pair_known[:, 0, 1:])
        return losses.hop_loss(self.outputs.hops[:, 0, 1:], self.target_hops[:, 0, 1:], known)

    def from_goal(self) -> Tensor:
        """Hops from an image of the goal."""
        from_goal = torch.from_numpy(hop(1.0, self.targets.progress))
        known = torch.from_numpy(self.batch.has_goal[:, None] & self.targets.progress_known)
        return losses.hop_loss(self.outputs.goal_hops, from_goal, known)

    def ranking(self) -> Tensor:
        """Which of any two moments is closer to the goal, as seen from the first frame."""
        potential = self._potential()
        logits = (potential[:, None] - potential[:, :, None]) / RANKING_TEMPERATURE
        target = torch.from_numpy(preference_matrix(self.targets.progress))
        return losses.bce_loss(logits, target, torch.from_numpy(self._off_diagonal_mask() & self.pair_known))

    def partial_return(self) -> Tensor:
        """Which of two segments shows more, by the sum of its potentials."""
        return self._preference_loss(partial_return)

    def regret(self) -> Tensor:
        """Which of two segments gives less away."""
        return self._preference_loss(lambda segment: -regret(segment))

    def negative_hop(self) -> Tensor:
        """Under an instruction that wants something else nothing has been gained at the last frame."""
        hops = self.outputs.negative_hop
        return losses.hop_loss(hops, torch.zeros_like(hops), torch.from_numpy(self.batch.negatives_known))

    def error_nll(self) -> Tensor:
        """How wrong the potential as seen from the first frame is; the hops learn nothing by it."""
        # A hop below 0 leaves the potential at 0: `fusion.apply_hop`.
        error = (self.outputs.hops[:, 0, 1:].detach().clamp(min=0) - self.target_hops[:, 0, 1:]).abs()
        return losses.error_nll_loss(
            self.outputs.expected_error[:, 1:], error, torch.from_numpy(self.pair_known[:, 0, 1:])
        )

    def success(self) -> Tensor:
        """Whether the task is done."""
        success, known = torch.from_numpy(self.targets.success), torch.from_numpy(self.targets.success_known)
        return losses.success_loss(self.outputs.success_logit, success, known)

    def subtask(self) -> Tensor:
        """The step under way."""
        return losses.subtask_loss(self.outputs.subtask_logits, torch.from_numpy(self.targets.subtask))

    def success_contrast(self) -> Tensor:
        """The end of a success is done under its own instruction and not under one that wants something else."""
        known = torch.from_numpy(self.batch.negatives_known)
        return losses.success_contrast_loss(
            self.outputs.success_logit[:, 1], self.outputs.negative_success_logit, known
        )

    def _off_diagonal_mask(self) -> BoolArray:
        return ~np.eye(self.pair_known.shape[1], dtype=bool)

    def _potential(self) -> Tensor:
        """[B, M]: as seen from the first frame, which has none."""
        return torch.nn.functional.pad(self.outputs.hops[:, 0, 1:], (1, 0))

    def _preference_loss(self, value_fn: Callable[[Any], Any]) -> Tensor:
        """Bradley-Terry on what two segments are worth, to us and to the judge."""
        segments = sample_segment_pairs(self.batch.frame_indices, self.batch.goals, self.rng)
        predicted_values = value_fn(
            self._potential()[torch.from_numpy(segments.episode_index), torch.from_numpy(segments.timestep_index)]
        )
        target_values = value_fn(segments.gather(self.targets.progress))
        known = segments.gather(self.targets.progress_known).all(axis=(1, 2))
        target = torch.from_numpy(bradley_terry(target_values[:, 0], target_values[:, 1]))
        return losses.bce_loss(
            BRADLEY_TERRY_RATIONALITY * (predicted_values[:, 0] - predicted_values[:, 1]),
            target,
            torch.from_numpy(known),
        )


LOSS_TERMS: Mapping[LossTerm, Callable[[LossContext], Tensor]] = {
    "everywhere": LossContext.all_pairs,
    "neighbors": LossContext.adjacent_pairs,
    "rewound": LossContext.rewind_pairs,
    "forward": LossContext.from_first_frame,
    "goal": LossContext.from_goal,
    "order": LossContext.ranking,
    "partial_return": LossContext.partial_return,
    "regret": LossContext.regret,
    "foreign": LossContext.negative_hop,
    "doubt": LossContext.error_nll,
    "completion": LossContext.success,
    "step": LossContext.subtask,
    "contrast": LossContext.success_contrast,
}

"""Training objective: the weighted loss terms of every labeling scheme."""

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
from embodied_rm.training import losses
from embodied_rm.training.batches import LabeledBatch
from embodied_rm.training.forward import TrainingOutputs
from embodied_rm.types import BoolArray

FULL_WEIGHT_TERMS: tuple[LossTerm, ...] = (
    "all_pairs", "adjacent_pairs", "rewind_pairs", "from_first_frame", "ranking", "partial_return", "regret",
    "comparison",
)  # fmt: skip
LOSS_WEIGHTS: Mapping[LossTerm, float] = {
    **dict.fromkeys(FULL_WEIGHT_TERMS, 1.0),
    **dict.fromkeys(("from_goal", "negative_hop"), 0.5),
    "success_contrast": 1.0,
    "success": 0.3,
    "error_nll": 0.1,
    "subtask": 0.1,
}
COMPARISON_RATIONALITY = 16.0  # log-odds of the better clip for a difference of 1 in its mean progress
RANKING_TEMPERATURE = 0.1  # potential difference that corresponds to log-odds of 1 in the ranking term


def all_loss_terms(
    outputs: TrainingOutputs, batch: LabeledBatch, schemes: Mapping[str, LabelScheme], rng: np.random.Generator
) -> dict[str, dict[LossTerm, Tensor]]:
    """Return scheme -> unweighted loss terms."""
    return {name: scheme_loss_terms(outputs, batch, name, scheme, rng) for name, scheme in schemes.items()}


def sum_loss_terms(terms_by_scheme: Mapping[str, Mapping[LossTerm, Tensor]]) -> Tensor:
    """Return the weighted sum of the loss terms of all schemes."""
    return torch.stack([losses.weighted_sum(terms, LOSS_WEIGHTS) for terms in terms_by_scheme.values()]).sum()


def scheme_loss_terms(
    outputs: TrainingOutputs, batch: LabeledBatch, scheme_name: str, scheme: LabelScheme, rng: np.random.Generator
) -> dict[LossTerm, Tensor]:
    """Return the unweighted loss terms of one scheme. `batch` must contain its targets."""
    context = LossContext(outputs, batch, scheme_name, rng)
    return {term: LOSS_TERMS[term](context) for term in scheme.loss_terms}


class LossContext:
    """Loss terms (`LOSS_TERMS`) of one scheme on one batch of B episodes and M frames; frame 0 is the first one."""

    def __init__(
        self, outputs: TrainingOutputs, batch: LabeledBatch, scheme_name: str, rng: np.random.Generator
    ) -> None:
        self.outputs, self.batch, self.targets, self.rng = outputs, batch, batch.targets[scheme_name], rng
        progress, progress_known = self.targets.progress, self.targets.progress_known
        self.target_hops = torch.from_numpy(hop(progress[:, :, None], progress[:, None]))
        self.pair_known = progress_known[:, :, None] & progress_known[:, None]

    def hop_loss(self, pair_mask: BoolArray) -> Tensor:
        """Loss of the hops of some pairs of frames, bool [M, M] or [B, M, M], with known progress."""
        return losses.hop_loss(self.outputs.hops, self.target_hops, torch.from_numpy(pair_mask & self.pair_known))

    def all_pairs(self) -> Tensor:
        """Loss of the hops between any two frames."""
        return self.hop_loss(self._off_diagonal_mask())

    def adjacent_pairs(self) -> Tensor:
        """Loss of the hops between adjacent sampled frames, in both directions."""
        return self.hop_loss(adjacent_mask(self.batch.frame_indices))

    def rewind_pairs(self) -> Tensor:
        """Loss of the hops between consecutive frames of a rewound clip."""
        return self.hop_loss(rewind_adjacent_mask(self.batch.frame_indices, self.rng))

    def from_first_frame(self) -> Tensor:
        """Loss of the hops from the first frame."""
        known = torch.from_numpy(self.pair_known[:, 0, 1:])
        return losses.hop_loss(self.outputs.hops[:, 0, 1:], self.target_hops[:, 0, 1:], known)

    def from_goal(self) -> Tensor:
        """Loss of the hops from the goal image."""
        from_goal = torch.from_numpy(hop(1.0, self.targets.progress))
        known = torch.from_numpy(self.batch.has_goal[:, None] & self.targets.progress_known)
        return losses.hop_loss(self.outputs.goal_hops, from_goal, known)

    def ranking(self) -> Tensor:
        """Loss of the order of any two frames by their potential from the first frame."""
        potential = self._potential()
        logits = (potential[:, None] - potential[:, :, None]) / RANKING_TEMPERATURE
        target = torch.from_numpy(preference_matrix(self.targets.progress))
        return losses.bce_loss(logits, target, torch.from_numpy(self._off_diagonal_mask() & self.pair_known))

    def partial_return(self) -> Tensor:
        """Loss of the preference between two segments by the sum of their potentials."""
        return self._preference_loss(partial_return)

    def regret(self) -> Tensor:
        """Loss of the preference between two segments by regret."""
        return self._preference_loss(lambda segment: -regret(segment))

    def comparison(self) -> Tensor:
        """Loss of the comparisons between clips of two episodes, by their mean potential (Bradley-Terry)."""
        pairs = self.batch.comparisons
        inside = torch.from_numpy(pairs.is_inside)
        potential = self._potential()[torch.from_numpy(pairs.rows)]
        means = (potential * inside).sum(-1) / inside.sum(-1).clamp_min(1)
        logit = COMPARISON_RATIONALITY * (means[:, 0] - means[:, 1])
        return losses.bce_loss(logit, torch.from_numpy(pairs.first_is_better), torch.ones_like(logit))

    def negative_hop(self) -> Tensor:
        """Loss of the hop to the last frame under negative instructions, whose target is 0."""
        hops = self.outputs.negative_hop
        return losses.hop_loss(hops, torch.zeros_like(hops), torch.from_numpy(self.batch.negatives_known))

    def error_nll(self) -> Tensor:
        """Loss of the expected error of the potential from the first frame, without gradient to the hops."""
        # `apply_hop` clips a potential below 0 to 0.
        error = (self.outputs.hops[:, 0, 1:].detach().clamp(min=0) - self.target_hops[:, 0, 1:]).abs()
        known = torch.from_numpy(self.pair_known[:, 0, 1:])
        return losses.error_nll_loss(self.outputs.expected_error[:, 1:], error, known)

    def success(self) -> Tensor:
        """Loss of the success prediction."""
        success, known = torch.from_numpy(self.targets.success), torch.from_numpy(self.targets.success_known)
        return losses.bce_loss(self.outputs.success_logit, success, known)

    def subtask(self) -> Tensor:
        """Loss of the current subtask."""
        return losses.subtask_loss(self.outputs.subtask_logits, torch.from_numpy(self.targets.subtask))

    def success_contrast(self) -> Tensor:
        """Loss of success at the last frame under the own instruction (1) and under negative ones (0)."""
        known, own_logit = torch.from_numpy(self.batch.negatives_known), self.outputs.success_logit[:, 1]
        own_known = torch.from_numpy(self.targets.success_known[:, 1])
        return losses.success_contrast_loss(own_logit, self.outputs.negative_success_logit, own_known, known)

    def _off_diagonal_mask(self) -> BoolArray:
        return ~np.eye(self.pair_known.shape[1], dtype=bool)

    def _potential(self) -> Tensor:
        """Return the potential from the first frame, [B, M]; 0 for the first frame."""
        return torch.nn.functional.pad(self.outputs.hops[:, 0, 1:], (1, 0))

    def _preference_loss(self, value_fn: Callable[[Any], Any]) -> Tensor:
        """Bradley-Terry loss of the predicted and the target values of two segments."""
        segments = sample_segment_pairs(self.batch.frame_indices, self.batch.goals, self.rng)
        index = torch.from_numpy(segments.episode_index), torch.from_numpy(segments.timestep_index)
        predicted, values = value_fn(self._potential()[index]), value_fn(segments.gather(self.targets.progress))
        target = torch.from_numpy(bradley_terry(values[:, 0], values[:, 1]))
        known = torch.from_numpy(segments.gather(self.targets.progress_known).all(axis=(1, 2)))
        return losses.bce_loss(BRADLEY_TERRY_RATIONALITY * (predicted[:, 0] - predicted[:, 1]), target, known)


LOSS_TERMS: Mapping[LossTerm, Callable[[LossContext], Tensor]] = {
    term: getattr(LossContext, term) for term in LOSS_WEIGHTS
}
"""Loss term -> the method of its name."""

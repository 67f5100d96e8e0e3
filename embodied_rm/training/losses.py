"""Losses of the heads of a reward model (pure torch)."""

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional

NameT = TypeVar("NameT", bound=str)
HUBER_DELTA = 0.1
"""Hop error from which the loss grows linearly: small hops keep their weight, few mislabeled ones do not dominate."""


def hop_loss(predicted: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the mean Huber loss of hops in [-1, 1] in units of `HUBER_DELTA`.

    Compared to cross-entropy over 51 bins (two-hot), it gave better rank correlation and error on real video
    (docs/reward_model.md).
    """
    loss = functional.huber_loss(predicted, target, reduction="none", delta=HUBER_DELTA)
    return weighted_mean(loss / HUBER_DELTA, weight)


def error_nll_loss(expected_error: Tensor, error: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the negative log-likelihood of an absolute error under a Laplace distribution, minus log 2.

    It is minimal where the scale `expected_error` > 0 equals the mean error. A wrong factor costs the same for small
    and large errors.
    """
    return weighted_mean(torch.log(expected_error) + error / expected_error, weight)


def bce_loss(logit: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the binary cross-entropy of log-odds and a target probability in [0, 1]; 1/2 is a tie."""
    loss = functional.binary_cross_entropy_with_logits(logit, target.to(logit.dtype), reduction="none")
    return weighted_mean(loss, weight)


def success_contrast_loss(own_logit: Tensor, negative_logit: Tensor, own_weight: Tensor, weight: Tensor) -> Tensor:
    """Return the cross-entropy of success at the end of a success, under its own [B] and negative [K, B] instructions.

    The term `success` contains the own instruction too. With negatives only, the head would answer "no" everywhere and
    never learn the instruction. `own_weight` [B]: whose success is known; `weight` [K, B]: which negatives are known.
    """
    own_loss = bce_loss(own_logit, torch.ones_like(own_logit), own_weight & weight.any(dim=0))
    return 0.5 * (own_loss + bce_loss(negative_logit, torch.zeros_like(negative_logit), weight))


def subtask_loss(logits: Tensor, subtask: Tensor) -> Tensor:
    """Return the cross-entropy of the current subtask, int64 [...] (negative: unlabeled); 0 if nothing is labeled."""
    labeled = subtask >= 0
    loss = functional.cross_entropy(logits.flatten(0, -2), subtask.clamp(min=0).flatten(), reduction="none")
    return weighted_mean(loss, labeled.flatten().to(loss.dtype))


def weighted_mean(loss: Tensor, weight: Tensor | None) -> Tensor:
    """Return the weighted mean; 0 if all weights are 0."""
    if weight is None:
        return loss.mean()
    weight = weight.to(loss.dtype).expand_as(loss)
    return (loss * weight).sum() / weight.sum().clamp(min=1e-6)


def weighted_sum(terms: Mapping[NameT, Tensor], weights: Mapping[NameT, float]) -> Tensor:
    """Return the weighted sum of named terms; every term needs a weight."""
    return torch.stack([weights[name] * term for name, term in terms.items()]).sum()

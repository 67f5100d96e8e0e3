"""What training minimises: named terms over the heads of a reward model (pure torch)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional

NameT = TypeVar("NameT", bound=str)
HUBER_DELTA = 0.1
"""Hop error from which the loss grows linearly: small hops keep their weight, a few mislabelled ones do not rule."""


def hop_loss(predicted: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean Huber loss of hops in [-1, 1], in units of `HUBER`; `weight` (same shape, >= 0) says what counts.

    Measured against cross-entropy over 51 bins (two-hot): better order and error on real video (docs/reward_model.md).
    """
    return weighted_mean(
        functional.huber_loss(predicted, target, reduction="none", delta=HUBER_DELTA) / HUBER_DELTA, weight
    )


def error_nll_loss(expected_error: Tensor, error: Tensor, weight: Tensor | None = None) -> Tensor:
    """Negative log-likelihood of an absolute error under a Laplace distribution of scale `expected` > 0, less log 2.

    Least where `expected` is the mean error. A factor costs the same whether the error is small or large.
    """
    return weighted_mean(torch.log(expected_error) + error / expected_error, weight)


def success_loss(logit: Tensor, success: Tensor, weight: Tensor | None = None) -> Tensor:
    """Binary cross-entropy of "the task is done now"; `done` in {0, 1}."""
    return bce_loss(logit, success, weight)


def bce_loss(logit: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Cross-entropy of a choice between two, `logit` the log-odds of the one that is taken with probability `chosen`.

    Least where the odds are those of `chosen`; 1/2 says that neither is better.
    """
    loss = functional.binary_cross_entropy_with_logits(logit, target.to(logit.dtype), reduction="none")
    return weighted_mean(loss, weight)


def success_contrast_loss(own_logit: Tensor, negative_logit: Tensor, weight: Tensor) -> Tensor:
    """Cross-entropy of "done" at the end of a success: yes under its own instruction, `own` [B], no under foreign ones,
    `foreign` [K, B]; `weight` [K, B] says which of them are known.

    Both, though the completion term has the first already: with the second alone "no" would outweigh "yes" until the
    words are understood, and so keep them from being.
    """
    positive_target, negative_target = torch.ones_like(own_logit), torch.zeros_like(negative_logit)
    return 0.5 * (
        success_loss(own_logit, positive_target, weight.any(dim=0))
        + success_loss(negative_logit, negative_target, weight)
    )


def subtask_loss(logits: Tensor, subtask: Tensor) -> Tensor:
    """Cross-entropy of the step under way, logits [..., S], `step` int64 [...]; negative ones are unlabelled.

    0 when nothing is labeled.
    """
    labeled = subtask >= 0
    loss = functional.cross_entropy(logits.flatten(0, -2), subtask.clamp(min=0).flatten(), reduction="none")
    return weighted_mean(loss, labeled.flatten().to(loss.dtype))


def weighted_mean(loss: Tensor, weight: Tensor | None) -> Tensor:
    """Mean of the losses that count; 0 when none does."""
    if weight is None:
        return loss.mean()
    weight = weight.to(loss.dtype).expand_as(loss)
    return (loss * weight).sum() / weight.sum().clamp(min=1e-6)


def weighted_sum(terms: Mapping[NameT, Tensor], weights: Mapping[NameT, float]) -> Tensor:
    """The weighted sum of the named terms; every term needs a weight."""
    return torch.stack([weights[name] * term for name, term in terms.items()]).sum()

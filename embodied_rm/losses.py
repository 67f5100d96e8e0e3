"""What training minimises: named terms over the heads of a reward model (pure torch)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional

Name = TypeVar("Name", bound=str)
HUBER = 0.1
"""Hop error from which the loss grows linearly: small hops keep their weight, a few mislabelled ones do not rule."""


def hop_loss(predicted: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean Huber loss of hops in [-1, 1], in units of `HUBER`; `weight` (same shape, >= 0) says what counts.

    Measured against cross-entropy over 51 bins (two-hot): better order and error on real video (docs/reward_model.md).
    """
    return weighted_mean(functional.huber_loss(predicted, target, reduction="none", delta=HUBER) / HUBER, weight)


def doubt_loss(expected: Tensor, error: Tensor, weight: Tensor | None = None) -> Tensor:
    """Negative log-likelihood of an absolute error under a Laplace distribution of scale `expected` > 0, less log 2.

    Least where `expected` is the mean error. A factor costs the same whether the error is small or large.
    """
    return weighted_mean(torch.log(expected) + error / expected, weight)


def completion_loss(logit: Tensor, done: Tensor, weight: Tensor | None = None) -> Tensor:
    """Binary cross-entropy of "the task is done now"; `done` in {0, 1}."""
    return choice_loss(logit, done, weight)


def choice_loss(logit: Tensor, chosen: Tensor, weight: Tensor | None = None) -> Tensor:
    """Cross-entropy of a choice between two, `logit` the log-odds of the one that is taken with probability `chosen`.

    Least where the odds are those of `chosen`; 1/2 says that neither is better.
    """
    loss = functional.binary_cross_entropy_with_logits(logit, chosen.to(logit.dtype), reduction="none")
    return weighted_mean(loss, weight)


def contrast_loss(own: Tensor, foreign: Tensor, weight: Tensor) -> Tensor:
    """Cross-entropy of "done" at the end of a success: yes under its own instruction, `own` [B], no under foreign ones,
    `foreign` [K, B]; `weight` [K, B] says which of them are known.

    Both, though the completion term has the first already: with the second alone "no" would outweigh "yes" until the
    words are understood, and so keep them from being.
    """
    yes, no = torch.ones_like(own), torch.zeros_like(foreign)
    return 0.5 * (completion_loss(own, yes, weight.any(dim=0)) + completion_loss(foreign, no, weight))


def step_loss(logits: Tensor, step: Tensor) -> Tensor:
    """Cross-entropy of the step under way, logits [..., S], `step` int64 [...]; negative ones are unlabelled.

    0 when nothing is labelled.
    """
    known = step >= 0
    loss = functional.cross_entropy(logits.flatten(0, -2), step.clamp(min=0).flatten(), reduction="none")
    return weighted_mean(loss, known.flatten().to(loss.dtype))


def weighted_mean(loss: Tensor, weight: Tensor | None) -> Tensor:
    """Mean of the losses that count; 0 when none does."""
    if weight is None:
        return loss.mean()
    weight = weight.to(loss.dtype).expand_as(loss)
    return (loss * weight).sum() / weight.sum().clamp(min=1e-6)


def total(terms: Mapping[Name, Tensor], weights: Mapping[Name, float]) -> Tensor:
    """The weighted sum of the named terms; every term needs a weight."""
    return torch.stack([weights[name] * term for name, term in terms.items()]).sum()

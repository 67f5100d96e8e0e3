"""Losses: zeros, masks and gradients."""

from __future__ import annotations

import math

import pytest
import torch

from embodied_rm.training.losses import (
    HUBER_DELTA,
    bce_loss,
    error_nll_loss,
    hop_loss,
    subtask_loss,
    success_contrast_loss,
    weighted_sum,
)


def test_perfect_predictions_have_zero_loss():
    hops = torch.linspace(-1, 1, 9)
    assert hop_loss(hops, hops) == 0
    assert bce_loss(torch.tensor([50.0, -50.0]), torch.tensor([True, False])) == pytest.approx(0, abs=1e-6)
    assert subtask_loss(100 * torch.eye(3), torch.arange(3)) == pytest.approx(0, abs=1e-6)


def test_hop_loss_is_quadratic_then_linear():
    zero = torch.zeros(1)
    assert hop_loss(zero + HUBER_DELTA / 2, zero) == pytest.approx(HUBER_DELTA / 8)
    assert hop_loss(zero + 1.0, zero) - hop_loss(zero + 0.9, zero) == pytest.approx(0.1, abs=1e-6)


def test_error_nll_is_minimal_at_the_mean_error():
    error = torch.tensor([0.01, 0.02, 0.09])
    for size in (1.0, 5.0):
        scales = size * torch.tensor([0.02, 0.035, 0.04, 0.045, 0.08])
        losses = [error_nll_loss(scale.expand(3), size * error) for scale in scales]
        assert min(losses) == losses[2]
        assert losses[0] - losses[2] == pytest.approx(1 - math.log(2), abs=1e-5)


def test_masked_entries_change_neither_value_nor_gradient():
    predicted = torch.tensor([0.5, 0.9], requires_grad=True)
    weight = torch.tensor([True, False])
    loss = hop_loss(predicted, torch.zeros(2), weight)
    loss.backward()
    assert loss == hop_loss(predicted[:1], torch.zeros(1))
    assert predicted.grad is not None and predicted.grad[1] == 0 and predicted.grad[0] > 0
    assert subtask_loss(torch.randn(4, 3), torch.tensor([2, -1, -1, -1])) > 0


def test_fully_masked_term_is_zero_with_zero_gradient():
    logits = torch.randn(2, 5, 3, requires_grad=True)
    loss = subtask_loss(logits, torch.full((2, 5), -1)) + hop_loss(logits, torch.ones(2, 5, 3), torch.zeros(2, 5, 3))
    loss.backward()
    assert loss == 0 and logits.grad is not None and (logits.grad == 0).all()


def test_contrast_with_equal_logits_has_zero_gradient():
    """Equal logits have no bias towards "no"; separated ones have zero loss."""
    shared = torch.zeros(3, requires_grad=True)
    last = torch.tensor([True, True, False])
    success_contrast_loss(shared, shared.expand(2, -1), torch.ones(3, dtype=torch.bool), last.expand(2, -1)).backward()
    assert shared.grad is not None and shared.grad.abs().max() < 1e-7
    separated, known = torch.tensor([20.0, 20.0]), torch.ones(3, 2, dtype=torch.bool)
    assert success_contrast_loss(separated, -separated.expand(3, -1), known[0], known) == pytest.approx(0, abs=1e-6)
    assert success_contrast_loss(separated, -separated.expand(3, -1), known[0], ~known) == 0
    wrong = success_contrast_loss(-separated, separated.expand(3, -1), ~known[0], known)
    assert wrong == pytest.approx(0.5 * 20), "an unknown success under the own instruction costs nothing"


def test_weighted_sum_rejects_a_term_without_weight():
    terms = {"a": torch.tensor(1.0), "b": torch.tensor(3.0)}
    assert weighted_sum(terms, {"a": 2.0, "b": 0.5}) == 3.5
    with pytest.raises(KeyError):
        weighted_sum(terms, {"a": 2.0})

"""The error head learns how wrong hops are, from their errors alone, and leaves what the hops are read off as it is."""

from __future__ import annotations

import torch

from embodied_rm.metrics import spearman
from embodied_rm.models.heads import MIN_EXPECTED_ERROR, Heads
from embodied_rm.train.losses import error_nll_loss

WIDTH = 8


def test_the_error_head_learns_where_errors_are_large():
    torch.manual_seed(0)
    heads = Heads(WIDTH, 3)
    optimizer = torch.optim.AdamW(heads.parameters(), lr=3e-3)
    first = torch.zeros(256, WIDTH)
    for _ in range(80):
        now = torch.randn(256, WIDTH)
        scale = 0.3 * torch.sigmoid(2 * now[:, 0])
        optimizer.zero_grad()
        error_nll_loss(heads.expected_error(first, now), scale * torch.rand(256) * 2).backward()
        optimizer.step()
    fresh = torch.randn(256, WIDTH)
    expected, scale = heads.expected_error(first, fresh).detach(), 0.3 * torch.sigmoid(2 * fresh[:, 0])
    assert spearman(scale.numpy(), expected.numpy()) > 0.9
    assert abs(float((expected - scale).mean())) < 0.02


def test_expected_errors_are_in_range_and_teach_the_states_nothing():
    torch.manual_seed(0)
    heads, now = Heads(WIDTH, 3), (1e4 * torch.randn(64, WIDTH)).requires_grad_()
    expected = heads.expected_error(torch.zeros(64, WIDTH), now)
    assert ((expected >= MIN_EXPECTED_ERROR) & (expected <= 1 + MIN_EXPECTED_ERROR)).all() and len(
        expected.unique()
    ) > 1
    expected.sum().backward()
    assert now.grad is None
    assert {name for name, p in heads.named_parameters() if p.grad is not None} == {
        name for name, _ in heads.named_parameters() if name.startswith("_error.")
    }

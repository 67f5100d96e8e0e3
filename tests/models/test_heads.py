"""The error head: it learns the scale of errors and does not train the embeddings."""

from __future__ import annotations

import torch

from embodied_rm.metrics import spearman
from embodied_rm.models.heads import MIN_EXPECTED_ERROR, Heads
from embodied_rm.training.losses import error_nll_loss

WIDTH = 8


def test_error_head_learns_the_error_scale():
    torch.manual_seed(0)
    heads = Heads(WIDTH, 3)
    optimizer = torch.optim.AdamW(heads.parameters(), lr=3e-3)
    first = torch.zeros(256, WIDTH)
    for _ in range(80):
        current = torch.randn(256, WIDTH)
        scale = 0.3 * torch.sigmoid(2 * current[:, 0])
        optimizer.zero_grad()
        error_nll_loss(heads.expected_error(first, current), scale * torch.rand(256) * 2).backward()
        optimizer.step()
    test_embeddings = torch.randn(256, WIDTH)
    expected, scale = (
        heads.expected_error(first, test_embeddings).detach(),
        0.3 * torch.sigmoid(2 * test_embeddings[:, 0]),
    )
    assert spearman(scale.numpy(), expected.numpy()) > 0.9
    assert abs(float((expected - scale).mean())) < 0.02


def test_expected_errors_are_in_range_and_stop_the_gradient():
    torch.manual_seed(0)
    heads, current = Heads(WIDTH, 3), (1e4 * torch.randn(64, WIDTH)).requires_grad_()
    expected = heads.expected_error(torch.zeros(64, WIDTH), current)
    assert ((expected >= MIN_EXPECTED_ERROR) & (expected <= 1 + MIN_EXPECTED_ERROR)).all() and len(
        expected.unique()
    ) > 1
    expected.sum().backward()
    assert current.grad is None
    assert {name for name, p in heads.named_parameters() if p.grad is not None} == {
        name for name, _ in heads.named_parameters() if name.startswith("_error.")
    }

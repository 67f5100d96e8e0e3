"""The learned metric: directions in which copies of a frame differ count less."""

from __future__ import annotations

import torch

from embodied_rm.models.in_context.cell_metric import identity_metric, learn_cell_metric


def test_a_direction_in_which_copies_differ_counts_less_and_the_others_do_not():
    torch.manual_seed(0)
    frames = torch.randn(1, 20, 2, 5)
    copies = frames.repeat(6, 1, 1, 1)
    copies[..., 0] += 3 * torch.randn(6, 20, 2)
    metric = learn_cell_metric(copies)
    axes = torch.eye(5)[:, None].repeat(1, 2, 1)
    lengths = metric.transform(axes).norm(dim=2)
    assert lengths[0].max() < 0.5
    torch.testing.assert_close(lengths[1:], torch.ones(4, 2), atol=0.05, rtol=0)


def test_copies_that_do_not_differ_leave_distances_as_they_are():
    torch.manual_seed(0)
    frames = torch.randn(8, 3, 4)
    metric = learn_cell_metric(frames.repeat(3, 1, 1, 1))
    torch.testing.assert_close(metric.transform(frames), frames)
    assert torch.equal(identity_metric(3, 4).transform(frames), frames)

"""The optimizer Muon."""

import pytest
import torch

from embodied_rm.training.muon import Muon, orthogonalize


@pytest.mark.parametrize("shape", [(24, 8), (8, 24), (8, 8), (1, 8)])
def test_singular_values_become_about_one_and_singular_vectors_stay(shape):
    generator = torch.Generator().manual_seed(0)
    u, _, vh = torch.linalg.svd(torch.randn(shape, generator=generator), full_matrices=False)
    singular_values = torch.linspace(0.02, 1.0, u.shape[1])
    result = orthogonalize(u * singular_values @ vh)
    diagonal = u.T @ result @ vh.T
    assert ((diagonal.diagonal() > 0.6) & (diagonal.diagonal() < 1.3)).all()
    torch.testing.assert_close(diagonal, torch.diag(diagonal.diagonal()), atol=1e-4, rtol=0)


def test_updates_are_those_of_torch_up_to_its_lower_precision():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(16, 32, generator=generator)
    gradients = torch.randn(20, 16, 32, generator=generator)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    optimizers = (Muon([ours], lr=0.02), torch.optim.Muon([theirs], lr=0.02, adjust_lr_fn="match_rms_adamw"))
    for gradient in gradients:
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    change, difference = (theirs - start).norm(), (ours - theirs).norm()
    assert change > 1 and difference < 0.02 * change


def test_a_matrix_without_a_gradient_stays():
    parameter = torch.nn.Parameter(torch.ones(2, 3))
    Muon([parameter]).step()
    assert torch.equal(parameter, torch.ones(2, 3))

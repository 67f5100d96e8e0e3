"""Adam over a small network, whose parameters and gradients are one vector each."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from embodied_rm.errors import CheckpointError

BETAS, EPS = (0.9, 0.999), 1e-5


class FlatAdam:
    """Adam (arXiv 1412.6980) with gradients clipped by their norm. Every parameter of the module becomes a part of one
    vector, and its gradient a part of another: a step is then a few operations, where torch's optimizer takes twice as
    long to find out what it is asked for.

    The module keeps its parameters, which may be written in place, and must not be moved to another device.
    """

    def __init__(self, module: nn.Module, lr: float, max_grad_norm: float) -> None:
        parameters = list(module.parameters())
        self._flat_params = torch.cat([parameter.detach().flatten() for parameter in parameters])
        self.gradient, self._exp_avg, self._exp_avg_sq = (torch.zeros_like(self._flat_params) for _ in range(3))
        sizes = [parameter.numel() for parameter in parameters]
        chunks = zip(self._flat_params.split(sizes), self.gradient.split(sizes), strict=True)
        for parameter, (values, grads) in zip(parameters, chunks, strict=True):
            parameter.data = values.view_as(parameter)
            parameter.grad = grads.view_as(parameter)
        self._lr, self._max_grad_norm, self._first_param, self._steps = lr, max_grad_norm, parameters[0], 0

    def step(self, grad_norm: float) -> None:
        """Down the gradient, which has that norm."""
        assert self._first_param.data_ptr() == self._flat_params.data_ptr(), (
            "the module was moved: nobody reads what is learned"
        )
        if grad_norm > self._max_grad_norm:
            self.gradient.mul_(self._max_grad_norm / grad_norm)
        self._steps += 1
        bias_correction1, bias_correction2 = (1 - beta**self._steps for beta in BETAS)
        self._exp_avg.lerp_(self.gradient, 1 - BETAS[0])
        self._exp_avg_sq.mul_(BETAS[1]).addcmul_(self.gradient, self.gradient, value=1 - BETAS[1])
        denom = self._exp_avg_sq.sqrt().mul_(bias_correction2**-0.5).add_(EPS)
        self._flat_params.addcdiv_(self._exp_avg, denom, value=-self._lr / bias_correction1)

    def state_dict(self) -> dict[str, Tensor]:
        """What the next step depends on beside parameters and gradient."""
        return {"step": torch.tensor(float(self._steps)), "exp_avg": self._exp_avg, "exp_avg_sq": self._exp_avg_sq}

    def load_state_dict(self, state: Mapping[str, Tensor], source: object) -> None:
        """Take over what `state` returned. Raises `CheckpointError` naming `source` when it does not fit."""
        expected = self.state_dict()
        if {name: tensor.shape for name, tensor in state.items()} != {name: t.shape for name, t in expected.items()}:
            raise CheckpointError(f"{source}: what it holds of the optimizer does not fit these networks")
        self._steps = int(state["step"])
        self._exp_avg.copy_(state["exp_avg"])
        self._exp_avg_sq.copy_(state["exp_avg_sq"])

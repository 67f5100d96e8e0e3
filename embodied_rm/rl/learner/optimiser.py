"""Adam over a small network, whose parameters and gradients are one vector each."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from embodied_rm.errors import CheckpointError

BETAS, EPS = (0.9, 0.999), 1e-5


class VectorAdam:
    """Adam (arXiv 1412.6980) with gradients clipped by their norm. Every parameter of the module becomes a part of one
    vector, and its gradient a part of another: a step is then a few operations, where torch's optimiser takes twice as
    long to find out what it is asked for.

    The module keeps its parameters, which may be written in place, and must not be moved to another device.
    """

    def __init__(self, module: nn.Module, lr: float, max_grad_norm: float) -> None:
        parameters = list(module.parameters())
        self._vector = torch.cat([parameter.detach().flatten() for parameter in parameters])
        self.gradient, self._mean, self._square = (torch.zeros_like(self._vector) for _ in range(3))
        sizes = [parameter.numel() for parameter in parameters]
        parts = zip(self._vector.split(sizes), self.gradient.split(sizes), strict=True)
        for parameter, (values, slopes) in zip(parameters, parts, strict=True):
            parameter.data = values.view_as(parameter)
            parameter.grad = slopes.view_as(parameter)
        self._lr, self._max_grad_norm, self._first, self._steps = lr, max_grad_norm, parameters[0], 0

    def step(self, norm: float) -> None:
        """Down the gradient, which has that norm."""
        assert self._first.data_ptr() == self._vector.data_ptr(), "the module was moved: nobody reads what is learned"
        if norm > self._max_grad_norm:
            self.gradient.mul_(self._max_grad_norm / norm)
        self._steps += 1
        seen, seen_square = (1 - beta**self._steps for beta in BETAS)
        self._mean.lerp_(self.gradient, 1 - BETAS[0])
        self._square.mul_(BETAS[1]).addcmul_(self.gradient, self.gradient, value=1 - BETAS[1])
        spread = self._square.sqrt().mul_(seen_square**-0.5).add_(EPS)
        self._vector.addcdiv_(self._mean, spread, value=-self._lr / seen)

    def state(self) -> dict[str, Tensor]:
        """What the next step depends on beside parameters and gradient."""
        return {"step": torch.tensor(float(self._steps)), "exp_avg": self._mean, "exp_avg_sq": self._square}

    def restore(self, state: Mapping[str, Tensor], source: object) -> None:
        """Take over what `state` returned. Raises `CheckpointError` naming `source` when it does not fit."""
        mine = self.state()
        if {name: tensor.shape for name, tensor in state.items()} != {name: t.shape for name, t in mine.items()}:
            raise CheckpointError(f"{source}: what it holds of the optimiser does not fit these networks")
        self._steps = int(state["step"])
        self._mean.copy_(state["exp_avg"])
        self._square.copy_(state["exp_avg_sq"])

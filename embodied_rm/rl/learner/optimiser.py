"""Adam over a small network, whose parameters and gradients are one vector each."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from embodied_rm.errors import CheckpointError

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class VectorAdam:
    """Adam with gradients clipped by their norm. Every parameter of the module becomes a part of one vector, and its
    gradient a part of another: clipping and stepping are then one operation each and not one a parameter.

    The module keeps its parameters, which may be written in place, and must not be moved to another device.
    """

    def __init__(self, module: nn.Module, lr: float, max_grad_norm: float) -> None:
        parameters = list(module.parameters())
        self._vector = nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters]))
        self.gradient = torch.zeros_like(self._vector)
        self._vector.grad = self.gradient
        sizes = [parameter.numel() for parameter in parameters]
        parts = zip(self._vector.detach().split(sizes), self.gradient.split(sizes), strict=True)
        for parameter, (values, slopes) in zip(parameters, parts, strict=True):
            parameter.data = values.view_as(parameter)
            parameter.grad = slopes.view_as(parameter)
        self._adam = torch.optim.Adam([self._vector], lr=lr, eps=1e-5, fused=True)
        self._max_grad_norm, self._first = max_grad_norm, parameters[0]

    def step(self, norm: float) -> None:
        """Down the gradient, which has that norm."""
        assert self._first.data_ptr() == self._vector.data_ptr(), "the module was moved: nobody reads what is learned"
        if norm > self._max_grad_norm:
            self.gradient.mul_(self._max_grad_norm / norm)
        self._adam.step()

    def state(self) -> dict[str, Tensor]:
        """What the next step depends on beside parameters and gradient; nothing before the first one."""
        known = self._adam.state.get(self._vector, {})
        return {name: known[name] for name in MOMENTS if name in known}

    def restore(self, state: Mapping[str, Tensor], source: object) -> None:
        """Take over what `state` returned. Raises `CheckpointError` naming `source` when it does not fit."""
        if not state:
            return
        sizes = {name: 1 if name == "step" else self._vector.numel() for name in MOMENTS}
        if {name: tensor.numel() for name, tensor in state.items()} != sizes:
            raise CheckpointError(f"{source}: what it holds of the optimiser does not fit these networks")
        device = self._vector.device
        self._adam.state[self._vector] = {name: state[name].to(device, copy=True) for name in MOMENTS}

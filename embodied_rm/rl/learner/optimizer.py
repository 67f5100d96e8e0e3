"""Adam for small networks, on one flat vector of parameters and one of gradients."""

from collections.abc import Mapping
from math import isfinite

import torch
from torch import Tensor, nn

from embodied_rm.errors import CheckpointError, UserError

BETAS, EPS = (0.9, 0.999), 1e-5


class FlatAdam:
    """Adam (arXiv 1412.6980) with gradient clipping by norm.

    All parameters of the module become views of one vector, and their gradients views of another. A step is then a few
    operations; torch's optimizer takes twice as long on small networks.

    Parameters may be written in place. The module must not be moved to another device.
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
        self._lr = lr
        self._max_grad_norm = max_grad_norm
        self._first_param = parameters[0]
        self._steps = 0

    def step(self, grad_norm: float) -> None:
        """Update the parameters with the current gradient, whose norm is `grad_norm`."""
        is_view = self._first_param.data_ptr() == self._flat_params.data_ptr()
        assert is_view, "the module was moved: its parameters are no longer those of the optimizer"
        if grad_norm > self._max_grad_norm:
            self.gradient.mul_(self._max_grad_norm / grad_norm)
        self._steps += 1
        bias_correction1, bias_correction2 = (1 - beta**self._steps for beta in BETAS)
        self._exp_avg.lerp_(self.gradient, 1 - BETAS[0])
        self._exp_avg_sq.mul_(BETAS[1]).addcmul_(self.gradient, self.gradient, value=1 - BETAS[1])
        denom = self._exp_avg_sq.sqrt().mul_(bias_correction2**-0.5).add_(EPS)
        self._flat_params.addcdiv_(self._exp_avg, denom, value=-self._lr / bias_correction1)

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that the next step depends on, except parameters and gradient."""
        return {"step": torch.tensor(float(self._steps)), "exp_avg": self._exp_avg, "exp_avg_sq": self._exp_avg_sq}

    def load_state_dict(self, state: Mapping[str, Tensor], source: object) -> None:
        """Restore the state of `state_dict`; raise `CheckpointError` with the name of `source` if it does not fit."""
        expected = self.state_dict()
        if {name: tensor.shape for name, tensor in state.items()} != {name: t.shape for name, t in expected.items()}:
            raise CheckpointError(f"{source}: the stored optimizer state does not fit these networks")
        self._steps = int(state["step"])
        self._exp_avg.copy_(state["exp_avg"])
        self._exp_avg_sq.copy_(state["exp_avg_sq"])


def take_finite_step(optimizer: FlatAdam, loss: float, name: str, setting: str) -> float:
    """Step an optimizer with its gradient, and return the norm of that.

    Raises `UserError`, without a step, if the loss of `name` or the gradient is not finite. `setting` is the key to
    lower.
    """
    grad_norm = float(optimizer.gradient.norm())
    if not (isfinite(loss) and isfinite(grad_norm)):
        raise UserError(
            f"the loss of the {name} became {loss} (gradient norm {grad_norm}); the step was not taken. Check rewards "
            f"and observations for non-finite numbers, or lower {setting}"
        )
    optimizer.step(grad_norm)
    return grad_norm

"""The optimizer Muon in float32.

`torch.optim.Muon` computes in bfloat16. A CPU without bfloat16 instructions takes 30 times as long for that.
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

NEWTON_SCHULZ_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
ADAMW_UPDATE_RMS = 0.2
"""Root mean square of an update of AdamW divided by its learning rate (Liu et al., section 2.2)."""


def orthogonalize(matrix: Tensor) -> Tensor:
    """Return a matrix with the same singular vectors whose singular values are about 1.

    Args:
        matrix: [rows, columns].

    Returns:
        [rows, columns]; the singular values lie in 0.6 to 1.3 if those of the matrix are within a factor of 100.

    Source: K. Jordan et al., "Muon", 2024: the quintic Newton-Schulz iteration.
    """
    a, b, c = NEWTON_SCHULZ_COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if is_tall else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if is_tall else x


class Muon(torch.optim.Optimizer):
    """Momentum whose updates are orthogonalized, with the root mean square of updates of AdamW.

    Args:
        params: Matrices, or groups of them as of every optimizer of torch.
        lr: Learning rate, as of AdamW.
        momentum: Fraction of the momentum that is kept per step, in 0..1; the update looks one step ahead (Nesterov).
        weight_decay: Fraction of the weights that a step removes, per learning rate.

    Source: K. Jordan et al., "Muon", 2024; Liu et al., arXiv 2502.16982, section 2.2 (size of the updates).
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, object]],
        lr: float = 1e-3,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        assert all(p.ndim == 2 for group in self.param_groups for p in group["params"])

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all matrices that have a gradient.

        Args:
            closure: None; losses are not computed again.
        """
        assert closure is None
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self._update(matrix, matrix.grad, group)

    def _update(self, matrix: Tensor, gradient: Tensor, group: dict[str, float]) -> None:
        state = self.state[matrix]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        buffer = state["momentum_buffer"]
        buffer.lerp_(gradient, 1 - group["momentum"])
        update = orthogonalize(gradient.lerp(buffer, group["momentum"]))
        matrix.mul_(1 - group["lr"] * group["weight_decay"])
        matrix.add_(update, alpha=-group["lr"] * ADAMW_UPDATE_RMS * math.sqrt(max(matrix.shape)))

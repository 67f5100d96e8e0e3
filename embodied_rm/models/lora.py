"""Low-rank adaptation (LoRA) of a frozen tower: W + BA with small rank (Hu et al., arXiv 2106.09685)."""

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from embodied_rm.errors import UserError

ATTENTION_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "qkv", "query", "key", "value")
"""Names of attention projections in timm and `transformers`; open_clip has one `in_proj_weight`."""


class LoraParametrization(nn.Module):
    """A low-rank update of a matrix [out, in], 0 at first."""

    def __init__(self, shape: torch.Size, rank: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(rank, shape[1]) / shape[1] ** 0.5)
        self.up = nn.Parameter(torch.zeros(shape[0], rank))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.up @ self.down


def add_lora(tower: nn.Module, rank: int) -> int:
    """Add trainable updates to the attention projections of a tower and count them; `UserError` if there are none."""
    named = [module for name, module in tower.named_modules() if name.split(".")[-1] in ATTENTION_PROJECTIONS]
    targets: list[tuple[nn.Module, str]] = [(module, "weight") for module in named if isinstance(module, nn.Linear)]
    targets += [(m, "in_proj_weight") for m in tower.modules() if isinstance(m, nn.MultiheadAttention)]
    if not targets:
        raise UserError("lora adapts the attention of an image tower, and this one has none: choose a transformer")
    for module, name in targets:
        weight = getattr(module, name)
        parametrize.register_parametrization(module, name, LoraParametrization(weight.shape, rank).to(weight.device))
    return len(targets)


def merge_lora(tower: nn.Module) -> None:
    """Merge the learned updates into the weights, so that the tower has its original modules again."""
    for module in list(tower.modules()):
        for name in list(getattr(module, "parametrizations", {})):
            requires_grad = module.parametrizations[name].original.requires_grad  # type: ignore[union-attr, index]
            parametrize.remove_parametrizations(module, name, leave_parametrized=True)
            getattr(module, name).requires_grad_(requires_grad)

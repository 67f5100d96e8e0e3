"""Tiny versions of the baselines that are read in the layouts of their releases, without an answer in text.

Names are written here again, independent of the package (docs/released_models.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tiny_vlm
import torch

STATEMENT = (
    "The above video shows a robot manipulation trajectory that completes the following task: open the drawer "
    "Decide whether the above statement is True or not. The answer is: True"
)


def topreward(folder: Path) -> dict[str, Path]:
    """Write a Qwen3-VL; TOPReward has no weights of its own."""
    return {"folder": tiny_vlm.save_model(folder, "qwen3_vl")}


def fill_weights(model: Any) -> None:
    """Give a model weights that are the same with every version of torch."""
    with torch.no_grad():
        for number, (name, parameter) in enumerate(sorted(model.named_parameters())):
            wave = torch.sin(0.7 * torch.arange(parameter.numel(), dtype=torch.float64) ** 1.1 + number)
            scale, offset = (0.1, 1.0) if "norm" in name and name.endswith("weight") else (0.3, 0.0)
            parameter.copy_((offset + scale * wave).view(parameter.shape))


BASELINE_LAYOUTS = {"topreward": topreward}
NO_SUCCESS = frozenset(BASELINE_LAYOUTS)
"""Models without an output for success."""

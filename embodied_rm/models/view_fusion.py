"""From feature maps of any number of views and the instruction to one embedding per frame, robust to single views.

A view of one color is absent, and success must hold without any one view (with a reference, that of its alignment).
This guards against a photograph of the goal before one camera, and against an occluded or displaced camera.
"""

import numpy as np
import torch
from torch import Tensor, nn

from embodied_rm.types import BoolArray, Views


class ViewToken(nn.Module):
    """Feature map of one view [M, C, h, w] -> token [M, width]; keeps the layout of the map.

    The instruction scales and shifts the channels (FiLM, arXiv 1709.07871) before they are flattened. One linear layer
    can then read, for example, the position of the red object. Without FiLM the error on wrong objects is ten times
    larger.
    """

    def __init__(self, shape: tuple[int, int, int], width: int, *, channels: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.grid = (min(grid[0], shape[1]), min(grid[1], shape[2]))
        self.reduce = nn.Conv2d(shape[0], channels, 1)
        self.film = nn.Linear(width, 2 * channels)
        self.flat = nn.Linear(channels * (self.grid[0] * self.grid[1] + 1), width)

    def forward(self, features: Tensor, condition: Tensor) -> Tensor:
        """Compute the tokens; `condition` [M, width] is the sum of instruction and view embedding."""
        scale, shift = self.film(condition)[:, :, None, None].chunk(2, dim=1)
        x = nn.functional.relu(torch.addcmul(shift, self.reduce(features), 1 + scale))
        max_pooled = x.amax(dim=(2, 3))
        if x.shape[2:] != self.grid:
            x = nn.functional.adaptive_avg_pool2d(x, self.grid)
        return self.flat(torch.cat([x.flatten(1), max_pooled], dim=1))


class ViewFusion(nn.Module):
    """Tokens of the present views and the instruction -> embedding [N, width], by a small transformer."""

    def __init__(self, width: int, layers: int, heads: int = 4) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.query = nn.Parameter(0.02 * torch.randn(width))
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, present: Tensor, instruction: Tensor) -> Tensor:
        """Fuse tokens [N, V, width], masked where not `present` (bool [N, V]), and instructions [N, width]."""
        query = self.query.expand(len(tokens), 1, -1)
        sequence = torch.cat([query, instruction[:, None], tokens], dim=1)
        padding_mask = nn.functional.pad(~present, (2, 0), value=False)
        return self.norm(self.encoder(sequence, src_key_padding_mask=padding_mask)[:, 0])


MIN_VIEWS_LEAVE_ONE_OUT = 3
"""Fewest views for the leave-one-out rule: of two views that disagree, neither is known to be right."""
PIXEL_STRIDE = 4  # stride of the pixels that are checked, along both sides
MAX_BLANK_RANGE = 8  # largest difference of two pixels per color channel, of 0 to 255, in a blank image


def leave_one_out_success(done: Tensor, leave_one_out: Tensor) -> Tensor:
    """Limit the success probability [N] by the predictions [N, V] without each view.

    The limit is the square root of the smallest of them, since fewer views carry less evidence: a probability of 1/4
    without one view still permits 1/2, and 0 permits 0.
    """
    return torch.minimum(done, leave_one_out.amin(dim=1).sqrt())


def visible_views(views: Views) -> BoolArray:
    """bool [N, V]: views that are present and not of a single color."""
    subsampled = views.frames[:, :, ::PIXEL_STRIDE, ::PIXEL_STRIDE]
    if isinstance(subsampled, np.ndarray):
        value_range = np.ptp(subsampled, axis=(2, 3)).max(axis=-1)
    else:
        value_range = (subsampled.amax(dim=(2, 3)) - subsampled.amin(dim=(2, 3))).amax(dim=-1).cpu().numpy()
    nonblank: BoolArray = value_range > MAX_BLANK_RANGE
    return nonblank if views.present is None else nonblank & views.present

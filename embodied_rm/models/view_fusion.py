"""From feature maps of any number of views and the instruction to one embedding per frame."""

import torch
from torch import Tensor, nn


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

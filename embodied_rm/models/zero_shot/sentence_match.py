"""`SentenceMatch`: whether an image shows what a sentence speaks of. Late interaction of its tokens and cells.

Source: L. Yao et al., FILIP: Fine-grained Interactive Language-Image Pre-Training, ICLR 2022. The maximum over cells is
softened, and a score is standardized by the scores of a bank of other images: some sentences fit everything.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

GRID = 7  # side, in cells, of the maps that are matched
MIN_CELL_STD, MIN_TOKEN_STD = 1e-3, 0.02  # of the standardized inputs


@dataclass(frozen=True, kw_only=True)
class SentenceMatchConfig:
    """The architecture of a `SentenceMatch`."""

    channels: int  # of a cell
    text_width: int  # length of a token vector
    num_bank_images: int  # images by whose scores a score is standardized
    width: int = 64
    dropout: float = 0.5


class SentenceMatch(nn.Module):
    """Shapes: S sentences of L tokens [S, L, D] with a mask bool [S, L]; N images of R cells [N, R, C]."""

    cell_mean: Tensor
    cell_std: Tensor
    token_mean: Tensor
    token_std: Tensor
    bank: Tensor

    def __init__(self, config: SentenceMatchConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("cell_mean", torch.zeros(config.channels))
        self.register_buffer("cell_std", torch.ones(config.channels))
        self.register_buffer("token_mean", torch.zeros(config.text_width))
        self.register_buffer("token_std", torch.ones(config.text_width))
        self.register_buffer("bank", torch.zeros(config.num_bank_images, GRID * GRID, config.width, dtype=torch.half))
        self.cell = nn.Linear(config.channels, config.width)
        self.token = nn.Linear(config.text_width, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.log_scale = nn.Parameter(torch.tensor(2.0))
        self.log_sharpness = nn.Parameter(torch.tensor(2.0))

    def set_statistics(self, cells: Tensor, tokens: Tensor) -> None:
        """Standardize by the means and standard deviations of these cells [..., C] and tokens [..., D]."""
        for values, mean, std, smallest in (
            (cells, self.cell_mean, self.cell_std, MIN_CELL_STD),
            (tokens, self.token_mean, self.token_std, MIN_TOKEN_STD),
        ):
            flat = values.flatten(0, -2)
            mean.copy_(flat.mean(dim=0))
            std.copy_(flat.std(dim=0).clamp_min(smallest))

    def embed_cells(self, cells: Tensor) -> Tensor:
        """Unit vectors [N, R, width] of cells."""
        standardized = (cells - self.cell_mean) / self.cell_std
        return nn.functional.normalize(self.cell(self.dropout(standardized)), dim=-1)

    def forward(self, tokens: Tensor, mask: Tensor, embedded_cells: Tensor) -> Tensor:
        """Scores [S, N] of all sentences and all images, whose cells are embedded."""
        standardized = (tokens - self.token_mean) / self.token_std
        embedded = nn.functional.normalize(self.token(self.dropout(standardized)), dim=-1)
        weights = mask / mask.sum(dim=1, keepdim=True).clamp_min(1)
        sharpness = self.log_sharpness.exp()
        similarity = torch.einsum("sld,nrd->snlr", embedded, embedded_cells)
        found = torch.logsumexp(sharpness * similarity, dim=3) / sharpness
        return self.log_scale.exp() * (found * weights[:, None]).sum(dim=2)

    def standardize(self, tokens: Tensor, mask: Tensor, cells: Tensor) -> Tensor:
        """Scores [N] of N sentences with the image of their row, in standard deviations above those of the bank."""
        own = torch.cat([
            self(tokens[row : row + 1], mask[row : row + 1], self.embed_cells(cells[row : row + 1]))[0]
            for row in range(len(cells))
        ])  # fmt: skip
        others = self(tokens, mask, self.bank.float())
        return (own - others.mean(dim=1)) / others.std(dim=1).clamp_min(1e-6)

"""`ProgressGru`: the cells of a video's frames -> progress, and whether the last change was forward. Recurrent.

The direction of a change transfers to scenes that were never seen much better than progress itself: an arm that
approaches, lifts or retreats looks alike everywhere. `progress_filter` joins the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from embodied_rm.models.in_context.appearance import average_cells

GRID = 4  # side, in cells, of the maps that the recurrent net reads
CELL_DROPOUT = 0.1  # of the standardized cells, in training
MIN_STD = 1e-3


@dataclass(frozen=True, kw_only=True)
class ProgressGruConfig:
    """The architecture of a `ProgressGru`."""

    channels: int  # of a cell
    text_width: int  # length of a sentence vector
    cell_width: int = 8  # channels that a cell is reduced to: more of them learn the scenes by heart
    width: int = 64
    dropout: float = 0.5


class ProgressGru(nn.Module):
    """One member of an ensemble. Shapes: B clips of T frames, cells float [B, T, 16, C], unstandardized."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: ProgressGruConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("mean", torch.zeros(config.channels))
        self.register_buffer("std", torch.ones(config.channels))
        self.reduce = nn.Linear(config.channels, config.cell_width, bias=False)
        self.token = nn.Sequential(
            nn.Linear(3 * GRID * GRID * config.cell_width, config.width),
            nn.LayerNorm(config.width),
            nn.GELU(),
            nn.Dropout(config.dropout),
        )
        self.sentence = nn.Linear(config.text_width, config.width)
        self.gru = nn.GRU(config.width, config.width, batch_first=True)
        self.head = nn.Sequential(nn.LayerNorm(config.width), nn.Dropout(config.dropout), nn.Linear(config.width, 2))

    def set_statistics(self, cells: Tensor) -> None:
        """Standardize by the mean and the standard deviation of these cells [..., C]."""
        flat = cells.flatten(0, -2)
        self.mean.copy_(flat.mean(dim=0))
        self.std.copy_(flat.std(dim=0).clamp_min(MIN_STD))

    def forward(self, cells: Tensor, sentence: Tensor) -> Tensor:
        """Predict whole clips.

        Args:
            cells: float [B, T, 16, C].
            sentence: Sentence vectors [B, D].

        Returns:
            Logits [B, T, 2]: of the progress, and of the last change being forward (meaningless at the first frame).
        """
        reduced = self._reduce(cells)
        previous = torch.cat([reduced[:, :1], reduced[:, :-1]], dim=1)
        tokens = self._tokens(reduced, previous, reduced[:, :1], sentence[:, None])
        logits: Tensor = self.head(self.gru(tokens)[0])
        return logits

    def step(self, frames: FrameCells, sentence: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Predict one further frame of each of B videos.

        Args:
            frames: Its cells, those of the frame before and those of the first one.
            sentence: Sentence vectors [B, D].
            hidden: State [B, width] after the frame before; zeros at the first frame.

        Returns:
            Logits [B, 2] as those of `forward`, the next state, and what the net sees of the frame, float
            [B, 16 * cell_width].
        """
        current, previous, first = map(self._reduce, (frames.current, frames.previous, frames.first))
        tokens = self._tokens(current, previous, first, sentence)
        outputs, state = self.gru(tokens[:, None], hidden[None].contiguous())
        return self.head(outputs[:, 0]), state[0], current.flatten(1)

    def _reduce(self, cells: Tensor) -> Tensor:
        standardized = (cells - self.mean) / self.std
        reduced: Tensor = self.reduce(nn.functional.dropout(standardized, CELL_DROPOUT, self.training))
        return reduced

    def _tokens(self, current: Tensor, previous: Tensor, first: Tensor, sentence: Tensor) -> Tensor:
        parts = torch.cat([current, current - previous, current - first.expand_as(current)], dim=-1)
        tokens: Tensor = self.token(parts.flatten(-2)) + self.sentence(sentence)
        return tokens


@dataclass(frozen=True)
class FrameCells:
    """Cells [B, 16, C] of one frame of each of B videos, of the frame before and of the first one."""

    current: Tensor
    previous: Tensor
    first: Tensor


def grid_cells(levels: list[Tensor], side: int) -> Tensor:
    """Average the cells of an encoder's levels over a square grid, and join the levels.

    Args:
        levels: Per level, cells [M, h * h, C].
        side: Side of the grid, in cells.

    Returns:
        Cells [M, side * side, channels of all levels].
    """
    return torch.cat([average_cells(level, side) for level in levels], dim=2)

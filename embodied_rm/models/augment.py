"""Changes of pictures that change no label, the same for all moments of one view of one episode."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from embodied_rm.errors import UserError

WAVES = 4.0
"""Standard deviation of the frequency of the waves of `recolour`, rad over the range of values: colours half of it
apart change almost independently."""
OF_PICTURES = ("shift", "zoom", "rotation", "colour", "recolour", "flicker", "impostor")
"""What of `AugmentConfig` changes pictures; the rest hides views and replaces words."""


@dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """How far pictures are changed in training. All ranges are symmetric, drawn per episode and view."""

    shift: float = 0.03
    """Largest shift, share of the picture's side."""
    zoom: float = 0.0
    """Largest change of scale."""
    rotation: float = 0.0
    """Largest rotation, rad."""
    colour: float = 0.15
    """Standard deviation of contrast and of each colour channel's offset, in standard deviations of the pixels."""
    recolour: float = 0.0
    """Standard deviation of a change of greys that is another one for every colour, share of the range of values; the
    more colourful, the smaller."""
    flicker: float = 0.05
    """Standard deviation of the brightness of single moments."""
    drop_view: float = 0.1
    """Probability that a view is hidden in a whole episode; one view always stays."""
    impostor: float = 0.0
    """Probability that one view of several shows the goal picture from some moment on, as a photograph before its
    camera would."""
    words: float = 0.0
    """Probability that a word which tells no goals of its task apart is replaced by any other."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < 1:
                raise UserError(f"augment.{name} must be in [0, 1), got {value}")


def warp(frames: Tensor, config: AugmentConfig, generator: torch.Generator) -> Tensor:
    """Pictures uint8 [B, M, V, H, W, 3] -> float [B, M, V, 3, H, W], moved and recoloured, of about that range; all
    moments of a view alike."""
    B, M, V, H, W, C = frames.shape
    angle, scale = config.rotation * _between(generator, B, V), 1 + config.zoom * _between(generator, B, V)
    matrix = torch.zeros(B, V, 2, 3)
    matrix[..., 0, 0] = matrix[..., 1, 1] = scale * torch.cos(angle)
    matrix[..., 0, 1], matrix[..., 1, 0] = -torch.sin(angle), torch.sin(angle)
    matrix[..., 2] = 2 * config.shift * _between(generator, B, V, 2)
    # The moments of one view are channels of one sampling.
    stacked = frames.permute(0, 2, 5, 1, 3, 4).float().reshape(B * V, C * M, H, W)
    grid = functional.affine_grid(matrix.flatten(0, 1), [B * V, 1, H, W], align_corners=False)
    moved = functional.grid_sample(stacked, grid, padding_mode="border", align_corners=False)
    recoloured = recolour(moved.view(B * V, C, M * H * W), config, generator)
    return recoloured.view(B, V, C, M, H, W).permute(0, 3, 1, 2, 4, 5)


def recolour(pixels: Tensor, config: AugmentConfig, generator: torch.Generator) -> Tensor:
    """Pixels [N, 3, P] in [0, 255], in place: to each of the 3 channels a wave over the space of colours is added.

    Things of different colours change differently, each alike wherever and whenever it is seen: an offset of a whole
    picture's channel says nothing of a table that is another one than ever before under the same arm. Grey changes
    most, by how far a colour is from it the less: a thing that is called by its colour keeps it. Where all changed
    alike, what is red and what is orange was no longer learned.
    """
    if config.recolour == 0:
        return pixels
    N = len(pixels)
    frequency = WAVES * torch.randn(N, 3, 3, generator=generator) / 255
    phase = 2 * math.pi * torch.rand(N, 3, 1, generator=generator)
    size = 255 * 2**0.5 * config.recolour * torch.randn(N, 3, 1, generator=generator)
    least, most = torch.aminmax(pixels, dim=1, keepdim=True)
    grey = (1 - (most - least) / 255).square_()
    return pixels.addcmul_(size, torch.baddbmm(phase, frequency, pixels).sin_().mul_(grey))


def tint(shape: torch.Size, config: AugmentConfig, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random gain and offset for normalised pictures [B, M, V, 3, H, W]: contrast and colour of a view, flicker."""
    B, M, V, C = shape[:4]
    gain = 1 + config.colour * torch.randn(B, 1, V, 1, 1, 1, generator=generator)
    offset = config.colour * torch.randn(B, 1, V, C, 1, 1, generator=generator)
    flicker = config.flicker * torch.randn(B, M, V, 1, 1, 1, generator=generator)
    return gain, offset + flicker


def _between(generator: torch.Generator, *shape: int) -> Tensor:
    return 2 * torch.rand(shape, generator=generator) - 1


def hide_views(present: Tensor, config: AugmentConfig, generator: torch.Generator) -> Tensor:
    """`present` bool [B, M, V] with views of whole episodes hidden, never all that were there."""
    B, _, V = present.shape
    hidden = torch.rand(B, 1, V, generator=generator) < config.drop_view
    kept = present & ~hidden
    return torch.where(kept.any(dim=2, keepdim=True), kept, present)


def impostors(pictures: Tensor, shown: Tensor, at: Tensor, config: AugmentConfig, generator: torch.Generator) -> Tensor:
    """Pictures [B, M, V, ...], the last moment the goal, with photographs of it before some cameras, in place: as often
    from the first frame on as from some frame before the last.

    `at` int64 [B, M - 1]: the frames of the other moments. Only where two or more views are `shown` (bool [B, M, V]) at
    every moment: with one alone nothing gives it away.
    """
    if config.impostor == 0:
        return pictures
    B, _, V = shown.shape
    several = shown.all(dim=1).sum(dim=1) > 1
    rows = (several & (torch.rand(B, generator=generator) < config.impostor)).nonzero()[:, 0]
    view = torch.randint(V, (B,), generator=generator)[rows]
    begins = (2 * torch.rand(B, generator=generator) - 1).clamp(min=0) * at.amax(dim=1)
    covered = torch.zeros_like(shown)
    covered[rows, :-1, view] = (at >= begins[:, None])[rows]
    row, moment, column = covered.nonzero(as_tuple=True)
    pictures[row, moment, column] = pictures[row, -1, column]
    return pictures

"""Changes of images that change no label, the same for all moments of one view of one episode."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from embodied_rm.errors import UserError

COLOR_WARP_FREQUENCY_STD = 4.0
"""Standard deviation of the frequency of the waves of `color_warp`, rad over the range of values: colors half of it
apart change almost independently."""
IMAGE_AUGMENTATIONS = (
    "shift",
    "zoom",
    "rotation",
    "color_jitter",
    "color_warp_std",
    "brightness_jitter",
    "goal_image_spoof_prob",
)
"""What of `AugmentConfig` changes images; the rest hides views and replaces words."""


@dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """How far images are changed in training. All ranges are symmetric, drawn per episode and view."""

    shift: float = 0.03
    """Largest shift, share of the image's side."""
    zoom: float = 0.0
    """Largest change of scale."""
    rotation: float = 0.0
    """Largest rotation, rad."""
    color_jitter: float = 0.15
    """Standard deviation of contrast and of each color channel's offset, in standard deviations of the pixels."""
    color_warp_std: float = 0.0
    """Standard deviation of a change of greys that is another one for every color, share of the range of values; the
    more colourful, the smaller."""
    brightness_jitter: float = 0.05
    """Standard deviation of the brightness of single moments."""
    view_dropout_prob: float = 0.1
    """Probability that a view is hidden in a whole episode; one view always stays."""
    goal_image_spoof_prob: float = 0.0
    """Probability that one view of several shows the goal image from some moment on, as a photograph before its
    camera would."""
    word_replacement_prob: float = 0.0
    """Probability that a word which tells no goals of its task apart is replaced by any other."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < 1:
                raise UserError(f"augment.{name} must be in [0, 1), got {value}")


def warp(frames: Tensor, config: AugmentConfig, generator: torch.Generator) -> Tensor:
    """Images uint8 [B, M, V, H, W, 3] -> float [B, M, V, 3, H, W], moved and color_warped, of about that range; all
    moments of a view alike."""
    B, M, V, H, W, C = frames.shape
    angle, scale = config.rotation * _uniform(generator, B, V), 1 + config.zoom * _uniform(generator, B, V)
    matrix = torch.zeros(B, V, 2, 3)
    matrix[..., 0, 0] = matrix[..., 1, 1] = scale * torch.cos(angle)
    matrix[..., 0, 1], matrix[..., 1, 0] = -torch.sin(angle), torch.sin(angle)
    matrix[..., 2] = 2 * config.shift * _uniform(generator, B, V, 2)
    # The moments of one view are channels of one sampling.
    channels = frames.permute(0, 2, 5, 1, 3, 4).float().reshape(B * V, C * M, H, W)
    grid = functional.affine_grid(matrix.flatten(0, 1), [B * V, 1, H, W], align_corners=False)
    warped = functional.grid_sample(channels, grid, padding_mode="border", align_corners=False)
    recolored = warp_colors(warped.view(B * V, C, M * H * W), config, generator)
    return recolored.view(B, V, C, M, H, W).permute(0, 3, 1, 2, 4, 5)


def warp_colors(pixels: Tensor, config: AugmentConfig, generator: torch.Generator) -> Tensor:
    """Pixels [N, 3, P] in [0, 255], in place: to each of the 3 channels a wave over the space of colors is added.

    Things of different colors change differently, each alike wherever and whenever it is seen: an offset of a whole
    image's channel says nothing of a table that is another one than ever before under the same arm. Gray changes
    most, by how far a color is from it the less: a thing that is called by its color keeps it. Where all changed
    alike, what is red and what is orange was no longer learned.
    """
    if config.color_warp_std == 0:
        return pixels
    N = len(pixels)
    frequency = COLOR_WARP_FREQUENCY_STD * torch.randn(N, 3, 3, generator=generator) / 255
    phase = 2 * math.pi * torch.rand(N, 3, 1, generator=generator)
    amplitude = 255 * 2**0.5 * config.color_warp_std * torch.randn(N, 3, 1, generator=generator)
    minimum, maximum = torch.aminmax(pixels, dim=1, keepdim=True)
    grayness = (1 - (maximum - minimum) / 255).square_()
    return pixels.addcmul_(amplitude, torch.baddbmm(phase, frequency, pixels).sin_().mul_(grayness))


def sample_color_jitter(shape: torch.Size, config: AugmentConfig, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random gain and offset for normalized images [B, M, V, 3, H, W]: contrast and color of a view, flicker."""
    B, M, V, C = shape[:4]
    gain = 1 + config.color_jitter * torch.randn(B, 1, V, 1, 1, 1, generator=generator)
    offset = config.color_jitter * torch.randn(B, 1, V, C, 1, 1, generator=generator)
    brightness = config.brightness_jitter * torch.randn(B, M, V, 1, 1, 1, generator=generator)
    return gain, offset + brightness


def _uniform(generator: torch.Generator, *shape: int) -> Tensor:
    return 2 * torch.rand(shape, generator=generator) - 1


def drop_views(present: Tensor, config: AugmentConfig, generator: torch.Generator) -> Tensor:
    """`present` bool [B, M, V] with views of whole episodes hidden, never all that were there."""
    B, _, V = present.shape
    dropped = torch.rand(B, 1, V, generator=generator) < config.view_dropout_prob
    remaining = present & ~dropped
    return torch.where(remaining.any(dim=2, keepdim=True), remaining, present)


def spoof_goal_images(
    images: Tensor, visible: Tensor, frame_index: Tensor, config: AugmentConfig, generator: torch.Generator
) -> Tensor:
    """Images [B, M, V, ...], the last moment the goal, with photographs of it before some cameras, in place: as often
    from the first frame on as from some frame before the last.

    `at` int64 [B, M - 1]: the frames of the other moments. Only where two or more views are `shown` (bool [B, M, V]) at
    every moment: with one alone nothing gives it away.
    """
    if config.goal_image_spoof_prob == 0:
        return images
    B, _, V = visible.shape
    multi_view = visible.all(dim=1).sum(dim=1) > 1
    rows = (multi_view & (torch.rand(B, generator=generator) < config.goal_image_spoof_prob)).nonzero()[:, 0]
    view = torch.randint(V, (B,), generator=generator)[rows]
    start_frame = (2 * torch.rand(B, generator=generator) - 1).clamp(min=0) * frame_index.amax(dim=1)
    spoofed = torch.zeros_like(visible)
    spoofed[rows, :-1, view] = (frame_index >= start_frame[:, None])[rows]
    row, timestep, column = spoofed.nonzero(as_tuple=True)
    images[row, timestep, column] = images[row, -1, column]
    return images

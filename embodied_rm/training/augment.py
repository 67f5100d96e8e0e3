"""Image augmentations that preserve labels, equal for all frames of one view of an episode."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from embodied_rm.errors import UserError

COLOR_WARP_FREQUENCY_STD = 4.0
"""Standard deviation of the wave frequency of `warp_colors`, rad per value range. Colors half a range apart change
almost independently."""
IMAGE_AUGMENTATIONS = (
    "shift",
    "zoom",
    "rotation",
    "color_jitter",
    "color_warp_std",
    "brightness_jitter",
    "goal_image_spoof_prob",
    "half_cover_prob",
)
"""Fields of `AugmentConfig` that change images; the others hide views and replace words."""


@dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """Strength of augmentation. All ranges are symmetric and drawn per episode and view."""

    shift: float = 0.03  # largest shift, fraction of the image side
    zoom: float = 0.0  # largest change of scale
    rotation: float = 0.0  # largest rotation, rad
    color_jitter: float = 0.15
    """Standard deviation of the contrast and of each channel offset, in standard deviations of the pixels."""
    color_warp_std: float = 0.0
    """Standard deviation of a color-dependent offset, fraction of the value range; smaller for saturated colors."""
    brightness_jitter: float = 0.05  # standard deviation of the brightness of single frames
    view_dropout_prob: float = 0.1  # probability that a view is hidden in a whole episode; one view is always kept
    goal_image_spoof_prob: float = 0.0
    """Probability that one of several views shows the goal image from some frame on, like a photograph held before its
    camera."""
    half_cover_prob: float = 0.0
    """Probability that the left or the right half of all views is black from some frame on; success is then unknown
    to an observer, so its target is 0."""
    word_replacement_prob: float = 0.0
    """Probability that a word is replaced, if it does not distinguish goals of its task."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < 1:
                raise UserError(f"augment.{name} must be in [0, 1), got {value}")


def warp(frames: Tensor, config: AugmentConfig, generator: torch.Generator) -> Tensor:
    """Warp position and color of images uint8 [B, M, V, H, W, 3], equally per view, to float32 [B, M, V, 3, H, W].

    The numbers are drawn on the CPU, so that they are the same on every device.
    """
    B, M, V, H, W, C = frames.shape
    angle, scale = config.rotation * _uniform(generator, B, V), 1 + config.zoom * _uniform(generator, B, V)
    matrix = torch.zeros(B, V, 2, 3)
    matrix[..., 0, 0] = matrix[..., 1, 1] = scale * torch.cos(angle)
    matrix[..., 0, 1], matrix[..., 1, 0] = -torch.sin(angle), torch.sin(angle)
    matrix[..., 2] = 2 * config.shift * _uniform(generator, B, V, 2)
    matrix = matrix.to(frames.device)
    # One call samples all frames of a view, as channels.
    channels = frames.permute(0, 2, 5, 1, 3, 4).float().reshape(B * V, C * M, H, W)
    grid = functional.affine_grid(matrix.flatten(0, 1), [B * V, 1, H, W], align_corners=False)
    warped = functional.grid_sample(channels, grid, padding_mode="border", align_corners=False)
    recolored = warp_colors(warped.view(B * V, C, M * H * W), config, generator)
    return recolored.view(B, V, C, M, H, W).permute(0, 3, 1, 2, 4, 5)


def warp_colors(pixels: Tensor, config: AugmentConfig, generator: torch.Generator) -> Tensor:
    """Add a wave over color space to each channel of pixels [N, 3, P] in [0, 255], in place.

    Objects of different colors change differently, each equally in all frames. A channel offset of the whole image
    cannot model a new table under the same arm. The shift is largest for gray and fades with saturation, so objects
    that are named by color keep it. With equal shifts, red and orange were no longer distinguished.
    """
    if config.color_warp_std == 0:
        return pixels
    N = len(pixels)
    frequency = COLOR_WARP_FREQUENCY_STD * torch.randn(N, 3, 3, generator=generator) / 255
    phase = 2 * math.pi * torch.rand(N, 3, 1, generator=generator)
    amplitude = 255 * 2**0.5 * config.color_warp_std * torch.randn(N, 3, 1, generator=generator)
    frequency, phase, amplitude = (values.to(pixels.device) for values in (frequency, phase, amplitude))
    minimum, maximum = torch.aminmax(pixels, dim=1, keepdim=True)
    grayness = (1 - (maximum - minimum) / 255).square_()
    return pixels.addcmul_(amplitude, torch.baddbmm(phase, frequency, pixels).sin_().mul_(grayness))


def sample_color_jitter(shape: torch.Size, config: AugmentConfig, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw gain and offset of normalized images [B, M, V, 3, H, W]: color per view, brightness per frame."""
    B, M, V, C = shape[:4]
    gain = 1 + config.color_jitter * torch.randn(B, 1, V, 1, 1, 1, generator=generator)
    offset = config.color_jitter * torch.randn(B, 1, V, C, 1, 1, generator=generator)
    brightness = config.brightness_jitter * torch.randn(B, M, V, 1, 1, 1, generator=generator)
    return gain, offset + brightness


def _uniform(generator: torch.Generator, *shape: int) -> Tensor:
    return 2 * torch.rand(shape, generator=generator) - 1


def drop_views(present: Tensor, config: AugmentConfig, generator: torch.Generator) -> Tensor:
    """Hide random views of whole episodes in `present`, bool [B, M, V]; never all that are present."""
    B, _, V = present.shape
    dropped = torch.rand(B, 1, V, generator=generator) < config.view_dropout_prob
    remaining = present & ~dropped
    return torch.where(remaining.any(dim=2, keepdim=True), remaining, present)


def spoof_goal_images(
    images: Tensor, visible: Tensor, frame_index: Tensor, config: AugmentConfig, generator: torch.Generator
) -> Tensor:
    """Replace one view of some episodes by its goal image from some frame on, in place, in images [B, M, V, ...].

    Half of the replacements begin at the first frame, the others before the last. Episodes need two or more visible
    views in every frame: a single view cannot be recognized as spoofed. The last of M images is the goal;
    `frame_index` [B, M - 1] are the frames of the others.
    """
    if config.goal_image_spoof_prob == 0:
        return images
    B, _, V = visible.shape
    multi_view = visible.all(dim=1).sum(dim=1) > 1
    rows = (multi_view & (torch.rand(B, generator=generator) < config.goal_image_spoof_prob)).nonzero()[:, 0]
    view = torch.randint(V, (B,), generator=generator)[rows]
    spoofed = torch.zeros_like(visible)
    spoofed[rows, :-1, view] = draw_late_frames(frame_index, generator)[rows]
    row, timestep, column = spoofed.nonzero(as_tuple=True)
    images[row, timestep, column] = images[row, -1, column]
    return images


def draw_late_frames(frame_index: Tensor, generator: torch.Generator) -> Tensor:
    """Draw the frame per episode from which on images change; return which frames are later, bool [B, M].

    Half of the draws are the first frame, the others before the last.
    """
    start_frame = (2 * torch.rand(len(frame_index), generator=generator) - 1).clamp(min=0) * frame_index.amax(dim=1)
    return frame_index >= start_frame[:, None]

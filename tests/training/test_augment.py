"""Image augmentation."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from embodied_rm.errors import UserError
from embodied_rm.training.augment import AugmentConfig, drop_views, sample_color_jitter, spoof_goal_images, warp

OFF = AugmentConfig(shift=0, zoom=0, rotation=0, color_jitter=0, brightness_jitter=0, view_dropout_prob=0)
FRAMES = torch.randint(0, 256, (2, 3, 2, 16, 24, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def test_disabled_augmentation_changes_nothing():
    moved = warp(FRAMES, OFF, rng())
    torch.testing.assert_close(moved, FRAMES.permute(0, 1, 2, 5, 3, 4).float(), atol=1e-2, rtol=0)
    gain, offset = sample_color_jitter(moved.shape, OFF, rng())
    assert (gain == 1).all() and (offset == 0).all()


def test_frames_of_a_view_change_equally_and_views_differently():
    still = FRAMES[:, :1].expand(-1, 3, -1, -1, -1, -1)
    config = AugmentConfig(
        shift=0.2, zoom=0.2, rotation=0.2, color_jitter=0.3, color_warp_std=0.1, brightness_jitter=0.0
    )
    moved = warp(still, config, rng())
    gain, offset = sample_color_jitter(moved.shape, config, rng())
    augmented = moved * gain + offset
    for first, second in pairwise(augmented.unbind(1)):
        torch.testing.assert_close(first, second)
    same = still[:1, :, :1].expand(2, -1, 2, -1, -1, -1)
    moved = warp(same, config, rng())[:, 0].flatten(0, 1)
    assert all(not torch.allclose(a, b, atol=1.0) for a, b in pairwise(moved))


def test_shift_is_bounded():
    frames = torch.zeros(64, 1, 1, 40, 40, 3, dtype=torch.uint8)
    frames[:, :, :, 20, 20] = 255
    moved = warp(frames, AugmentConfig(shift=0.1), rng())[:, 0, 0, 0]
    y, x = torch.meshgrid(torch.arange(40.0), torch.arange(40.0), indexing="ij")
    mass = moved.sum(dim=(1, 2))
    for axis in (y, x):
        offset = (moved * axis).sum(dim=(1, 2)) / mass - 20
        assert 3.0 < offset.abs().max() <= 4.01


def color_changes(colors: torch.Tensor) -> torch.Tensor:
    """Return the color change [N, 3, 16, 16] of images whose halves have two colors, uint8 [N, 2, 3]."""
    frames = colors[:, None, None, None].repeat_interleave(8, dim=4).expand(-1, 1, 1, 16, -1, -1)
    return (warp(frames, replace(OFF, color_warp_std=0.1), rng()) - frames.permute(0, 1, 2, 5, 3, 4))[:, 0, 0] / 255


def test_color_warp_depends_on_the_gray_level_only_and_has_the_given_std():
    grays = torch.randint(0, 256, (3000, 2, 1), dtype=torch.uint8, generator=rng()).expand(-1, -1, 3)
    change = color_changes(grays)
    left, right = change[..., :4], change[..., -4:]
    assert left.std(dim=(2, 3)).max() < 1e-3 and right.std(dim=(2, 3)).max() < 1e-3
    assert 0.09 < left.std() < 0.11
    distant = (grays[:, 0, 0].float() - grays[:, 1, 0]).abs() > 100
    pairs = torch.stack([left[distant].mean(dim=(2, 3)).flatten(), right[distant].mean(dim=(2, 3)).flatten()])
    assert torch.corrcoef(pairs)[0, 1] < 0.2


def test_saturated_colors_are_kept():
    pair = torch.tensor([[[120, 120, 120], [230, 20, 20]]], dtype=torch.uint8).expand(500, -1, -1)
    change = color_changes(pair)
    assert change[..., -4:].abs().max() < 0.1 and change[..., -4:].std() < 0.1 * change[..., :4].std()


def test_views_are_dropped_in_whole_episodes_and_one_is_kept():
    present = torch.rand(200, 1, 3, generator=rng()) < 0.7
    present[:, :, 0] |= ~present.any(dim=2)
    present = present.expand(-1, 4, -1)
    kept = drop_views(present, AugmentConfig(view_dropout_prob=0.5), rng())
    assert (kept <= present).all() and kept.any(dim=2).all()
    assert (kept == kept[:, :1]).all()
    assert 0.2 < (present & ~kept).sum() / present.sum() < 0.6


def test_goal_image_replaces_one_of_several_views():
    images = torch.rand(300, 4, 3, 2, 2, generator=rng())
    visible = torch.ones(300, 4, 3, dtype=torch.bool)
    visible[200:, :, 1:] = False
    frame_indices = torch.tensor([0, 8, 4]).repeat(300, 1)
    spoofed = spoof_goal_images(images.clone(), visible, frame_indices, AugmentConfig(goal_image_spoof_prob=0.5), rng())
    changed = (spoofed != images).flatten(3).any(dim=3)
    assert not changed[:, -1].any() and not changed[200:].any(), "the goal and single views are unchanged"
    assert changed.any(dim=1).sum(dim=1).max() == 1
    assert 0.4 < changed[:200].any(dim=2).any(dim=1).float().mean() < 0.6
    first, last, middle = changed[:200, :3].any(dim=2).unbind(dim=1)
    assert (first <= middle).all() and (middle <= last).all(), "a replacement lasts to the end"
    assert 0.4 < first.sum() / last.sum() < 0.6 and (first < middle).any() and (middle < last).any()
    rows, timesteps, views = changed.nonzero(as_tuple=True)
    assert torch.equal(spoofed[rows, timesteps, views], images[rows, -1, views])
    assert torch.equal(spoof_goal_images(images.clone(), visible, frame_indices, AugmentConfig(), rng()), images)


def test_ranges_are_validated():
    with pytest.raises(UserError, match=r"augment.shift must be in \[0, 1\), got 2"):
        AugmentConfig(shift=2)

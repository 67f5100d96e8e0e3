"""Small image towers for robot images.

`StrideTower`: two overlapping strided convolutions from 64x64 pixels to an 8x8 map, then dense 3x3 ones (the trunk of
Mnih et al., Nature 518, 2015, with an even stride of 8). On a CPU it trains two to three times as fast as mobilenetv3,
mobilenetv4, test_efficientnet and test_byobnet at 64x64: no layer touches a map of more than 16x16 cells and none
normalizes a batch. It keeps the positions of small objects; docs/reward_model.md has the numbers.

`PatchTower`: non-overlapping patches, then separable convolutions (MobileNet, arXiv 1704.04861): a seventh of the
multiplications at the same accuracy in simulation. Its first layer has no padding, so an exported model takes raw
pixels.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from torch import Tensor, nn


class Tower(nn.Module):
    """Images float [N, 3, H, W] (H, W multiples of 8) -> map [N, num_features, H / 8, W / 8]; timm's interface."""

    def __init__(self, stages: Iterable[nn.Module], num_features: int) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.num_features = num_features
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                assert module.bias is not None
                nn.init.zeros_(module.bias)

    def forward_intermediates(self, x: Tensor, indices: list[int] | None = None, **_: Any) -> list[Tensor]:
        """The feature maps after the stages in `indices` (all when None); timm's other arguments have no effect."""
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return [features[i] for i in (range(len(features)) if indices is None else indices)]

    def prune_intermediate_layers(self, indices: list[int], **_: Any) -> list[int]:
        """Remove the stages after the last of `indices`; return the indices as non-negative numbers."""
        kept_indices = [range(len(self.stages))[i] for i in indices]
        self.stages = self.stages[: max(kept_indices) + 1]
        return kept_indices

    def forward(self, x: Tensor) -> Tensor:
        """The last feature map, without pooling."""
        return self.forward_intermediates(x)[-1]


class StrideTower(Tower):
    """Overlapping strided convolutions to a stride of 8, then dense 3x3 convolutions."""

    def __init__(self, channels: tuple[int, ...] = (32, 64, 64), in_chans: int = 3) -> None:
        shapes = [(8, 4, 2), (4, 2, 1)] + [(3, 1, 1)] * (len(channels) - 2)
        in_channels = (in_chans, *channels[:-1])
        stages = (
            nn.Sequential(nn.Conv2d(in_channel, out_channel, kernel, stride, padding), nn.ReLU(inplace=True))
            for in_channel, out_channel, (kernel, stride, padding) in zip(in_channels, channels, shapes, strict=True)
        )
        super().__init__(stages, channels[-1])


class PatchTower(Tower):
    """Patches of 4x4 pixels, then two separable convolutions, of 4x4 with stride 2 and of 3x3."""

    def __init__(self, channels: tuple[int, int, int] = (32, 64, 64), in_chans: int = 3) -> None:
        patch_channels, mid_channels, out_channels = channels
        stages = (
            nn.Sequential(nn.Conv2d(in_chans, patch_channels, 4, 4), nn.ReLU(inplace=True)),
            separable_conv(patch_channels, mid_channels, kernel=4, stride=2),
            separable_conv(mid_channels, out_channels, kernel=3, stride=1),
        )
        super().__init__(stages, out_channels)


def separable_conv(in_channels: int, out_channels: int, *, kernel: int, stride: int) -> nn.Sequential:
    """A depthwise convolution, then a pointwise one."""
    depthwise = nn.Conv2d(in_channels, in_channels, kernel, stride, 1, groups=in_channels)
    return nn.Sequential(depthwise, nn.Conv2d(in_channels, out_channels, 1), nn.ReLU(inplace=True))


TowerT = TypeVar("TowerT", bound=type[Tower])
TOWERS: dict[str, Callable[[], Tower]] = {"patch_tower_tiny": PatchTower, "stride_tower_tiny": StrideTower}
"""Name in a description -> tower; 9 and 76 thousand parameters, maps of 64 channels."""


def register_image_encoder(name: str) -> Callable[[TowerT], TowerT]:
    """Return a class decorator that registers an image encoder under a name, for `encoder=name`.

    Args:
        name: Name of the encoder. A checkpoint stores it: who loads the checkpoint needs the same package.

    Raises:
        ValueError: An encoder of that name exists.
    """

    def register(tower: TowerT) -> TowerT:
        if name in TOWERS:
            raise ValueError(f"the image encoder {name!r} is registered already")
        TOWERS[name] = tower
        return tower

    return register

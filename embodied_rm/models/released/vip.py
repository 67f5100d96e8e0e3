"""VIP (arXiv 2210.00030): a ResNet-50 whose embedding distances are values of a goal."""

from torch import Tensor

from embodied_rm.models.released.r3m import CROP_PX, RESIZE_PX, R3mEncoder, crop_center, normalize_colors
from embodied_rm.types import Frames


class VipEncoder(R3mEncoder):
    """VIP as released: the files and images are those of R3M, but for a last layer and a second crop."""

    key = "vip"

    def preprocess(self, frame: Frames) -> Tensor:
        """Return the center of the center of an image, normalized.

        The authors' examples crop images, and their model, which compares shapes of two types, crops them again.
        """
        from torchvision.transforms import functional  # takes a second

        larger = functional.resize(crop_center(frame), RESIZE_PX, antialias=False)
        return normalize_colors(functional.center_crop(larger, CROP_PX))

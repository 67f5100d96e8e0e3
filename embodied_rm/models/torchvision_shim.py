"""Make torchvision importable with a CPU build of torch; import this module before open_clip or timm.

torchvision wheels from PyPI are CUDA builds. With a CPU build of torch their compiled operators do not load, and the
import fails on the missing schema of `nms`. No code here calls that operator, so declaring it is enough.
"""

import torch

OPERATOR_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def declare_missing_operators() -> torch.library.Library | None:
    """Declare the operator schemas that torchvision expects; None if its own operators load."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    else:
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in OPERATOR_SCHEMAS.values():
        library.define(schema)
    return library


# The schemas live as long as this object.
OPERATOR_LIBRARY = declare_missing_operators()

"""Build the image and text encoders of a description; the libraries for them are imported on demand."""

import copy
import difflib
from collections.abc import Mapping
from typing import Any

from torch import nn

from embodied_rm.errors import UserError, unknown_name_message
from embodied_rm.models.open_clip_config import check_open_clip_config
from embodied_rm.models.small_clip import SmallClip, is_small_clip
from embodied_rm.models.towers import TOWERS
from embodied_rm.plugins import load_plugins


def build_clip(open_clip: Mapping[str, Any], transformers: Mapping[str, Any] | None) -> Any:
    """Build a model with random weights from open_clip's `model_cfg`, or from a description for `TransformersTowers`.

    `UserError` for an unknown timm tower, and for any key that `check_open_clip_config` rejects: a description can make
    nothing be downloaded or run.
    """
    if transformers is not None:
        from embodied_rm.models.transformers_towers import TransformersTowers

        return TransformersTowers(transformers)
    check_open_clip_config(open_clip)
    load_plugins("embodied_rm.encoders")
    return SmallClip(open_clip) if is_small_clip(open_clip) else _build_open_clip(open_clip)


def _build_open_clip(config: Mapping[str, Any]) -> nn.Module:
    import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
    import timm
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg, CustomTextCLIP

    tower = config["vision_cfg"].get("timm_model_name")
    if tower and not timm.is_model(tower):
        names = difflib.get_close_matches(tower, [*timm.list_models(), *TOWERS], n=8, cutoff=0.4)
        raise UserError(
            unknown_name_message(tower, names, "timm image tower") + ", and whatever timm.list_models() names"
        )
    options = {key: value for key, value in config.items() if key != "custom_text"}
    model_class = CustomTextCLIP if config.get("custom_text") else CLIP
    options = copy.deepcopy(options)  # open_clip writes into the dicts it is given
    vision, text = CLIPVisionCfg(**options.pop("vision_cfg")), CLIPTextCfg(**options.pop("text_cfg"))
    return model_class(vision_cfg=vision, text_cfg=text, **options)

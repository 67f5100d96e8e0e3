"""The small CLIP is open_clip's, bit for bit: the same weights from the same seed, the same numbers from them."""

from __future__ import annotations

import copy
import subprocess
import sys

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import pytest
import timm
import torch
from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg
from timm.models import register_model

from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.small_clip import SmallClip, is_small_clip
from embodied_rm.models.tokens import tokenize
from embodied_rm.models.towers import TOWERS

SENTENCES = ["open the drawer", "put the red cube into the bowl, then close the drawer and go back", ""]
TIMM_NAMES = {name: f"{name}_for_timm" for name in TOWERS}
for tower_name, timm_name in TIMM_NAMES.items():
    if not timm.is_model(timm_name):
        factory = lambda pretrained=False, tower=TOWERS[tower_name], **_: tower()  # noqa: E731
        factory.__name__ = timm_name
        factory.__module__ = __name__
        globals()[timm_name] = factory
        globals().setdefault("__all__", []).append(timm_name)
        register_model(factory)


def open_clip_model(tower: str, seed: int) -> CLIP:
    """open_clip's model of the same description."""
    config = copy.deepcopy(dict(small_encoder_config(tower, (64, 64)).open_clip))
    vision, text = config["vision_cfg"], config["text_cfg"]
    vision["timm_model_name"] = TIMM_NAMES[tower]
    torch.manual_seed(seed)
    return CLIP(embed_dim=config["embed_dim"], vision_cfg=CLIPVisionCfg(**vision), text_cfg=CLIPTextCfg(**text))


@pytest.mark.parametrize("tower", TOWERS)
@pytest.mark.parametrize("seed", [0, 1])
def test_weights_and_outputs_are_those_of_open_clip(tower: str, seed: int) -> None:
    theirs = open_clip_model(tower, seed).eval()
    config = small_encoder_config(tower, (64, 64)).open_clip
    assert is_small_clip(config)
    torch.manual_seed(seed)
    ours = SmallClip(config).eval()
    states = ours.state_dict(), theirs.state_dict()
    assert list(states[0]) == list(states[1])
    for name, tensor in states[0].items():
        assert torch.equal(tensor, states[1][name]), name
    images, ids = torch.randn(5, 3, 64, 64), tokenize(SENTENCES, 32, 4096)
    with torch.no_grad():
        assert torch.equal(ours.encode_text(ids), theirs.encode_text(ids))
        levels = (
            model.visual.forward_intermediates(images, indices=[2], intermediates_only=True) for model in (ours, theirs)
        )
        (our_map,), (their_map,) = (level["image_intermediates"] for level in levels)
    assert torch.equal(our_map, their_map)


def test_training_takes_the_same_step() -> None:
    ids = tokenize(SENTENCES, 32, 4096)
    gradients = []
    torch.manual_seed(3)
    for model in (
        SmallClip(small_encoder_config("patch_tower_tiny", (64, 64)).open_clip),
        open_clip_model("patch_tower_tiny", 3),
    ):
        model.encode_text(ids).square().sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        assert torch.equal(gradient, gradients[1][name]), name


@pytest.mark.parametrize("part", ["vision_cfg", "text_cfg"])
def test_a_description_with_another_key_is_built_by_open_clip(part: str) -> None:
    config = copy.deepcopy(dict(small_encoder_config("patch_tower_tiny", (64, 64)).open_clip))
    config[part]["mlp_ratio"] = 2.0
    assert not is_small_clip(config)


def test_the_bundled_model_loads_without_the_large_libraries() -> None:
    """They take seconds to import; the bundled model scores without any of them."""
    code = """
import sys, numpy as np
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.scoring import score_episodes
from embodied_rm.paths import BUNDLED_CHECKPOINT
from embodied_rm.types import Episode
frames = {name: np.zeros((3, 64, 64, 3), np.uint8) for name in ("front", "wrist")}
score_episodes(load_progress_net(BUNDLED_CHECKPOINT), [Episode(name="a", views=frames, instruction="lift it", fps=10)])
print(sorted({"open_clip", "timm", "torchvision", "transformers", "mujoco", "matplotlib", "hydra"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

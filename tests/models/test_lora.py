"""Low-rank adaptation: nothing at first, little to learn, part of the tower in the end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sprites import episodes
from test_encoders import pretrained  # noqa: F401 (a fixture)
from test_transformers_towers import clip, eye

from embodied_rm.errors import UserError
from embodied_rm.models import lora
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.pretrained import make_encoder
from embodied_rm.models.scoring import score_episodes
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.train import CHECKPOINT_DIR, TrainConfig, train
from embodied_rm.train.augment import AugmentConfig

import timm  # isort: skip
import transformers  # isort: skip

CONFIG = TrainConfig(
    train_tower=False,
    lora_rank=2,
    steps=8,
    batch_size=4,
    frames_per_episode=4,
    augment=AugmentConfig(),
    checkpoint_seconds=1e-9,
)


@pytest.fixture(params=["clip", "dinov2", "timm"])
def tower(request, tmp_path) -> torch.nn.Module:
    torch.manual_seed(0)
    if request.param == "timm":
        small = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}
        return timm.create_model("vit_tiny_patch16_224", **small).requires_grad_(False)
    folder = clip(tmp_path) if request.param == "clip" else eye(tmp_path, "dinov2")
    model = transformers.AutoModel.from_pretrained(folder)
    return (model.vision_model if request.param == "clip" else model).requires_grad_(False)


def seen(tower: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    said = tower(images)
    return said if isinstance(said, torch.Tensor) else said.last_hidden_state


def test_it_begins_as_the_tower_learns_little_and_ends_as_one_tower(tower):
    names = set(tower.state_dict())
    images = torch.randn(2, 3, 32, 32)
    before = seen(tower.eval(), images)
    count = lora.add_lora(tower, 2)
    torch.testing.assert_close(seen(tower, images), before)
    learning = [(name, p) for name, p in tower.named_parameters() if p.requires_grad]
    assert len(learning) == 2 * count and all(name.endswith((".up", ".down")) for name, _ in learning)
    assert sum(p.numel() for _, p in learning) < sum(p.numel() for p in tower.parameters()) / 5
    seen(tower, images).square().sum().backward()
    with torch.no_grad():
        for name, parameter in learning:
            assert parameter.grad is not None
            parameter += 0.1 * torch.randn_like(parameter) if name.endswith(".up") else 0
    changed = seen(tower, images)
    assert not torch.allclose(changed, before, atol=1e-3)
    lora.merge_lora(tower)
    torch.testing.assert_close(seen(tower, images), changed, rtol=1e-4, atol=1e-5)
    assert set(tower.state_dict()) == names and not any(p.requires_grad for p in tower.parameters())


def test_an_open_clip_tower_has_attention_too(pretrained):  # noqa: F811
    folder, _ = pretrained
    encoder = make_encoder(f"local-dir:{folder}", (64, 64), trainable=False)
    if hasattr(encoder.clip.visual, "trunk"):
        with pytest.raises(UserError, match="this one has none: choose a transformer"):
            lora.add_lora(encoder.clip.visual, 2)
    else:
        assert lora.add_lora(encoder.clip.visual, 2) == 2


def test_a_trained_model_is_an_ordinary_one_and_an_interrupted_run_ends_the_same(tmp_path):
    (tmp_path / "clip").mkdir()
    config = replace(CONFIG, tower=f"transformers:{clip(tmp_path / 'clip')}")
    known = episodes(6)
    net = train(known, config, RunFolder.open(tmp_path / "run"), NullReporter())
    frozen = train(known, replace(config, lora_rank=0), RunFolder.open(tmp_path / "frozen"), NullReporter())
    theirs = frozen.encoder.clip.visual.state_dict()
    moved = {n for n, w in net.encoder.clip.visual.state_dict().items() if not torch.equal(w, theirs[n])}
    assert moved and all(name.split(".")[-2] in lora.ATTENTION_PROJECTIONS for name in moved)
    stored = load_progress_net(tmp_path / "run" / CHECKPOINT_DIR)
    for one, other in zip(score_episodes(net, known), score_episodes(stored, known), strict=True):
        assert np.array_equal(one.progress, other.progress)
    interrupted = RunFolder.open(tmp_path / "interrupted")
    with pytest.raises(KeyboardInterrupt):
        train(known, config, interrupted, Dying())
    again = train(known, config, RunFolder.open(tmp_path / "interrupted", resume=True), NullReporter())
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, net.state_dict()[name]), name


class Dying(NullReporter):
    """A reporter whose training is interrupted half-way."""

    def track(self, items, description, total=None):
        for count, item in enumerate(items):
            if description == "train" and count == 50:
                raise KeyboardInterrupt
            yield item


def test_what_makes_no_sense_is_refused(tmp_path):
    with pytest.raises(UserError, match="lora is a rank > 0 beside a tower with train_tower=false"):
        TrainConfig(lora_rank=4)
    with pytest.raises(UserError, match="and no lora"):
        TrainConfig(train_tower=False, lora_rank=4, feature_cache_dir=tmp_path)
    with pytest.raises(UserError, match="this one has none"):
        train(
            episodes(4), replace(CONFIG, tower="mobilenetv3_small_050"), RunFolder.open(tmp_path / "r"), NullReporter()
        )

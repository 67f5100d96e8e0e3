"""Low-rank adaptation: no effect at first, few parameters, merged in the end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sprites import episodes
from test_encoders import pretrained  # noqa: F401 (a fixture)
from test_transformers_towers import save_clip, save_vision_model

from embodied_rm.errors import UserError
from embodied_rm.models import lora
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.make_encoder import make_encoder
from embodied_rm.models.scoring import score_episodes
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.training import CHECKPOINT_DIR, TrainConfig, train
from embodied_rm.training.augment import AugmentConfig

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip (of which timm needs definitions)
import timm  # isort: skip
import transformers  # isort: skip

CONFIG = TrainConfig(
    train_encoder=False,
    train_text_encoder=False,
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
    folder = save_clip(tmp_path) if request.param == "clip" else save_vision_model(tmp_path, "dinov2")
    model = transformers.AutoModel.from_pretrained(folder)
    return (model.vision_model if request.param == "clip" else model).requires_grad_(False)


def run_tower(tower: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    output = tower(images)
    return output if isinstance(output, torch.Tensor) else output.last_hidden_state


def test_lora_starts_at_zero_and_merges_into_the_tower(tower):
    names = set(tower.state_dict())
    images = torch.randn(2, 3, 32, 32)
    before = run_tower(tower.eval(), images)
    count = lora.add_lora(tower, 2)
    torch.testing.assert_close(run_tower(tower, images), before)
    trainable = [(name, p) for name, p in tower.named_parameters() if p.requires_grad]
    assert len(trainable) == 2 * count and all(name.endswith((".up", ".down")) for name, _ in trainable)
    assert sum(p.numel() for _, p in trainable) < sum(p.numel() for p in tower.parameters()) / 5
    run_tower(tower, images).square().sum().backward()
    with torch.no_grad():
        for name, parameter in trainable:
            assert parameter.grad is not None
            parameter += 0.1 * torch.randn_like(parameter) if name.endswith(".up") else 0
    changed = run_tower(tower, images)
    assert not torch.allclose(changed, before, atol=1e-3)
    lora.merge_lora(tower)
    torch.testing.assert_close(run_tower(tower, images), changed, rtol=1e-4, atol=1e-5)
    assert set(tower.state_dict()) == names and not any(p.requires_grad for p in tower.parameters())


def test_open_clip_towers(pretrained):  # noqa: F811
    folder, _ = pretrained
    encoder = make_encoder(f"local-dir:{folder}", (64, 64), trainable=False)
    if hasattr(encoder.clip.visual, "trunk"):
        with pytest.raises(UserError, match="this one has none: choose a transformer"):
            lora.add_lora(encoder.clip.visual, 2)
    else:
        assert lora.add_lora(encoder.clip.visual, 2) == 2


def test_trained_model_is_merged_and_a_resumed_run_is_identical(tmp_path):
    (tmp_path / "clip").mkdir()
    config = replace(CONFIG, encoder=f"transformers:{save_clip(tmp_path / 'clip')}")
    dataset = episodes(6)
    net = train(dataset, config, RunFolder.open(tmp_path / "run"), NullReporter())
    frozen = train(dataset, replace(config, lora_rank=0), RunFolder.open(tmp_path / "frozen"), NullReporter())
    frozen_weights = frozen.encoder.clip.visual.state_dict()
    changed_names = {
        n for n, w in net.encoder.clip.visual.state_dict().items() if not torch.equal(w, frozen_weights[n])
    }
    assert changed_names and all(name.split(".")[-2] in lora.ATTENTION_PROJECTIONS for name in changed_names)
    stored = load_progress_net(tmp_path / "run" / CHECKPOINT_DIR)
    for one, other in zip(score_episodes(net, dataset), score_episodes(stored, dataset), strict=True):
        assert np.array_equal(one.progress, other.progress)
    interrupted = RunFolder.open(tmp_path / "interrupted")
    with pytest.raises(KeyboardInterrupt):
        train(dataset, config, interrupted, InterruptedReporter())
    resumed = train(dataset, config, RunFolder.open(tmp_path / "interrupted", resume=True), NullReporter())
    for name, tensor in resumed.state_dict().items():
        assert torch.equal(tensor, net.state_dict()[name]), name


class InterruptedReporter(NullReporter):
    """A reporter that interrupts training half-way."""

    def track(self, items, description, total=None):
        for count, item in enumerate(items):
            if description == "train" and count == 50:
                raise KeyboardInterrupt
            yield item


def test_invalid_configs_raise(tmp_path):
    with pytest.raises(UserError, match="lora_rank must be 0, or > 0 with train_encoder=false"):
        TrainConfig(lora_rank=4)
    with pytest.raises(UserError, match="lora_rank=0"):
        TrainConfig(train_encoder=False, train_text_encoder=False, lora_rank=4, feature_cache_dir=tmp_path)
    with pytest.raises(UserError, match="this one has none"):
        train(
            episodes(4),
            replace(CONFIG, encoder="mobilenetv3_small_050"),
            RunFolder.open(tmp_path / "r"),
            NullReporter(),
        )

"""The frozen encoder: the same cells in every runtime, from every cache, at every image size."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from real_data import REAL_DATA
from real_videos import bridge

from embodied_rm.errors import UserError
from embodied_rm.metrics import voc
from embodied_rm.models.in_context import frozen_encoder
from embodied_rm.models.in_context.demonstration_model import DemonstrationModel
from embodied_rm.models.in_context.frozen_encoder import CachingEncoder, FrozenEncoder, open_frozen_encoder
from embodied_rm.models.in_context.quantized_encoder import quantize_encoder
from embodied_rm.models.scoring import score_episodes


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (5, 224, 224, 3), np.uint8)


def test_onnx_runtime_equals_torch(images):
    fast, plain = open_frozen_encoder(), FrozenEncoder(use_onnx=False)
    for first, second in zip(fast.encode(images), plain.encode(images), strict=True):
        torch.testing.assert_close(first, second, atol=1e-4, rtol=0)


def test_cells_are_unit_vectors_of_three_levels(images):
    levels = open_frozen_encoder().encode(images)
    assert [tuple(level.shape) for level in levels] == [(5, 196, 40), (5, 196, 112), (5, 49, 320)]
    for level in levels:
        torch.testing.assert_close(level.norm(dim=2), torch.ones(level.shape[:2]))


def test_any_image_size_is_resized():
    photographs = [Image.open(path).convert("RGB") for path in sorted((REAL_DATA / "bridge_rollouts/goals").glob("*"))]
    encoder = open_frozen_encoder()
    for photograph in photographs:
        large = photograph.resize((640, 480), Image.Resampling.BICUBIC)
        small = photograph.resize((224, 224), Image.Resampling.BICUBIC)
        levels = [encoder.encode(np.array(image)[None]) for image in (large, small)]
        for first, second in zip(*levels, strict=True):
            assert (first * second).sum(dim=2).mean() > 0.9


def test_integers_of_8_bits_are_near_and_order_a_real_video_alike():
    demonstration, rollout = bridge("drawer_gcbc_success"), bridge("drawer_ddpm_success")
    images = demonstration.views["front"]
    exact = open_frozen_encoder()
    quantized = quantize_encoder(exact, images)
    for first, second in zip(quantized.encode(images[:8]), exact.encode(images[:8]), strict=True):
        assert 0.95 < (first * second).sum(dim=2).mean() < 0.9999
    orders = [
        voc(score_episodes(DemonstrationModel([demonstration], encoder), [rollout])[0].progress)
        for encoder in (exact, quantized)
    ]
    assert abs(orders[0] - orders[1]) < 0.05


def test_integers_need_a_graph(images):
    with pytest.raises(UserError, match="precision=int8 needs onnx"):
        quantize_encoder(FrozenEncoder(use_onnx=False), images)


def test_the_cache_returns_what_the_encoder_does(images):
    caching = CachingEncoder(open_frozen_encoder())
    order = [3, 1, 3, 0]
    for _ in range(2):
        for first, second in zip(
            caching.encode(images[order]), open_frozen_encoder().encode(images[order]), strict=True
        ):
            torch.testing.assert_close(first, second, atol=1e-3, rtol=0)


def test_a_damaged_graph_is_exported_again(images, tmp_path, monkeypatch):
    expected, cache = open_frozen_encoder().encode(images), frozen_encoder.graph_cache_dir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shutil.copytree(cache, frozen_encoder.graph_cache_dir())
    damaged = {}
    for path in frozen_encoder.graph_cache_dir().iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))
        damaged[path] = bytes(content)
    for first, second in zip(FrozenEncoder().encode(images), expected, strict=True):
        torch.testing.assert_close(first, second)
    assert sum(path.read_bytes() != content for path, content in damaged.items()) == 1

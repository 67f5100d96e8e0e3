"""The feature cache: each video is encoded once, and training from cached maps equals training from images."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sprites import episodes

from embodied_rm.errors import DataError, UserError
from embodied_rm.models.encoders import Encoder
from embodied_rm.models.feature_cache import FeatureCache
from embodied_rm.models.make_encoder import make_encoder
from embodied_rm.models.scoring import score_episodes
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.training import TrainConfig, train
from embodied_rm.training.augment import AugmentConfig

NO_IMAGE_AUGMENTATION = AugmentConfig(shift=0.0, color_jitter=0.0, brightness_jitter=0.0, view_dropout_prob=0.3)
FROZEN = TrainConfig(
    encoder="mobilenetv3_small_050",
    train_encoder=False,
    image_size=(32, 32),
    steps=12,
    batch_size=4,
    frames_per_episode=4,
    augment=NO_IMAGE_AUGMENTATION,
    learning_rate=1e-3,
)


def frozen_encoder(seed: int = 0, tower: str = "mobilenetv3_small_050") -> Encoder:
    torch.manual_seed(seed)
    return make_encoder(tower, (32, 32), trainable=False).eval()


def noise_video(seed: int, length: int = 20) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (length, 32, 32, 3)).astype(np.uint8)


def test_cached_maps_equal_encoded_maps(tmp_path: Path) -> None:
    encoder = frozen_encoder()
    cached_maps = FeatureCache(tmp_path, encoder).get(noise_video(0))
    with torch.no_grad():
        features = encoder.encode_image(encoder.preprocess(torch.from_numpy(noise_video(0)))).numpy()
    assert cached_maps.dtype == np.float16 and cached_maps.shape == features.shape == (20, *encoder.feature_shape())
    assert np.allclose(cached_maps[:], features, rtol=1e-3, atol=1e-3)
    assert np.array_equal(cached_maps[[3, 19, 3]], cached_maps[:][[3, 19, 3]]) and np.array_equal(
        cached_maps[-1], cached_maps[:][-1]
    )


def test_more_videos_than_open_files(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path, frozen_encoder())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 20, hard))
    try:
        cached = [cache.get(noise_video(i, 2)) for i in range(40)]
        assert all(cached_maps[0].shape == cached[0].shape[1:] for cached_maps in cached)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_each_video_is_encoded_once_per_tower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = []
    real = Encoder.encode_image
    monkeypatch.setattr(Encoder, "encode_image", lambda self, images: encoded.append(len(images)) or real(self, images))
    encoder = frozen_encoder()
    for _ in range(2):
        cache = FeatureCache(tmp_path, encoder)
        encoded.clear()
        first, second = cache.get(noise_video(0)), cache.get(noise_video(1))
        assert not np.array_equal(first[:], second[:])
    assert encoded == [], "both are in the first cache"
    other = FeatureCache(tmp_path, frozen_encoder(1)).get(noise_video(0))
    assert sum(encoded) >= 20 and not np.array_equal(other[:], first[:]), "other weights give other maps"


def test_killed_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FeatureCache(tmp_path, frozen_encoder())
    complete = cache.get(noise_video(0))[:]
    real, calls = Encoder.encode_image, []

    def interrupt(self: Encoder, images: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, images)

    monkeypatch.setattr(Encoder, "encode_image", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.get(noise_video(1))
    assert not any(path.suffix == ".safetensors" for path in cache.folder.glob("*") if path.stat().st_size < 1000)
    monkeypatch.setattr(Encoder, "encode_image", real)
    assert np.isfinite(cache.get(noise_video(1))[:]).all() and np.array_equal(cache.get(noise_video(0))[:], complete)


def test_damaged_file_raises(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path, frozen_encoder())
    cache.get(noise_video(0))
    (path,) = cache.folder.glob("*.safetensors")
    for content in (path.read_bytes()[:-10], b"x" * path.stat().st_size, b""):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"{path.name}: does not hold maps"):
            cache.get(noise_video(0))


@pytest.mark.parametrize("resumed", [False, True])
def test_training_from_cached_maps_equals_training_from_images(tmp_path: Path, resumed: bool) -> None:
    dataset = episodes(8)
    config = replace(FROZEN, feature_cache_dir=tmp_path / "maps")
    expected = train(dataset, FROZEN, RunFolder.open(tmp_path / "plain"), NullReporter())
    if resumed:
        train(dataset, config, RunFolder.open(tmp_path / "before"), NullReporter())
    cached = train(dataset, config, RunFolder.open(tmp_path / "kept"), NullReporter())
    for one, other in zip(score_episodes(expected, dataset), score_episodes(cached, dataset), strict=True):
        assert np.abs(one.progress - other.progress).max() < 5e-3


def test_large_maps_of_frozen_towers_are_pooled() -> None:
    torch.manual_seed(0)
    config = {"encoder": "patch_tower_tiny", "image_size": (128, 96)}
    free, pooled = make_encoder(**config, trainable=True), make_encoder(**config, trainable=False)
    pooled.load_state_dict(free.state_dict())
    images = torch.randn(2, 3, 128, 96)
    with torch.no_grad():
        complete, cells = free.eval().encode_image(images), pooled.eval().encode_image(images)
    assert complete.shape[2] > 8 and cells.shape[2:] == (8, min(8, complete.shape[3]))
    torch.testing.assert_close(cells, torch.nn.functional.adaptive_avg_pool2d(complete, cells.shape[2:]))


def test_frozen_text_encoder_caches_sentences_until_its_weights_change(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, encoded = frozen_encoder(), []
    real = Encoder.encode_tokens
    monkeypatch.setattr(Encoder, "encode_tokens", lambda self, ids: encoded.append(len(ids)) or real(self, ids))
    with torch.inference_mode():
        before = encoder.encode_text(["lift it", "drop it", "lift it"])
    assert torch.equal(encoder.encode_text(["drop it"])[0], before[1]) and encoded == [2]
    assert not encoder.encode_text(["lift it"]).is_inference(), "vectors cached in inference mode can be trained on"
    encoder.load_state_dict(frozen_encoder(1).state_dict())
    assert not torch.equal(encoder.encode_text(["drop it"])[0], before[1])
    trained = make_encoder("mobilenetv3_small_050", (32, 32)).eval()
    for _ in range(2):
        assert trained.encode_text(["lift it"]).requires_grad
    assert encoded == [2, 1, 1, 1]


def test_uncacheable_features_raise(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="set train_encoder=false"):
        TrainConfig(feature_cache_dir=tmp_path)
    with pytest.raises(UserError, match=r"add augment\.shift=0 augment\.color_jitter=0 augment\.brightness_jitter=0"):
        TrainConfig(feature_cache_dir=tmp_path, train_encoder=False)
    with pytest.raises(UserError, match="needs a frozen image tower"):
        FeatureCache(tmp_path, make_encoder("mobilenetv3_small_050", (32, 32)))

"""A frozen tower looks once: what it saw is kept, found again, and learned from as if it had looked anew."""

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
from embodied_rm.models.pretrained import make_encoder
from embodied_rm.models.scoring import score_episodes
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.train import TrainConfig, train
from embodied_rm.train.augment import AugmentConfig

STILL = AugmentConfig(shift=0.0, color_jitter=0.0, brightness_jitter=0.0, view_dropout_prob=0.3)
FROZEN = TrainConfig(
    tower="mobilenetv3_small_050",
    train_tower=False,
    image_size=(32, 32),
    steps=12,
    batch_size=4,
    frames_per_episode=4,
    augment=STILL,
    learning_rate=1e-3,
)


def frozen(seed: int = 0, tower: str = "mobilenetv3_small_050") -> Encoder:
    torch.manual_seed(seed)
    return make_encoder(tower, (32, 32), trainable=False).eval()


def video(seed: int, length: int = 20) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (length, 32, 32, 3)).astype(np.uint8)


def test_what_is_kept_is_what_the_tower_sees(tmp_path: Path) -> None:
    encoder = frozen()
    maps = FeatureCache(tmp_path, encoder).get(video(0))
    with torch.no_grad():
        seen = encoder.encode_image(encoder.preprocess(torch.from_numpy(video(0)))).numpy()
    assert maps.dtype == np.float16 and maps.shape == seen.shape == (20, *encoder.feature_shape())
    assert np.allclose(maps[:], seen, rtol=1e-3, atol=1e-3)
    assert np.array_equal(maps[[3, 19, 3]], maps[:][[3, 19, 3]]) and np.array_equal(maps[-1], maps[:][-1])


def test_a_process_may_have_more_videos_than_open_files(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path, frozen())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 20, hard))
    try:
        kept = [cache.get(video(i, 2)) for i in range(40)]
        assert all(maps[0].shape == kept[0].shape[1:] for maps in kept)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_it_looks_once_at_each_video_with_each_tower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    real = Encoder.encode_image
    monkeypatch.setattr(Encoder, "encode_image", lambda self, images: looked.append(len(images)) or real(self, images))
    encoder = frozen()
    for _ in range(2):
        cache = FeatureCache(tmp_path, encoder)
        looked.clear()
        first, second = cache.get(video(0)), cache.get(video(1))
        assert not np.array_equal(first[:], second[:])
    assert looked == [], "both were kept by the first cache"
    other = FeatureCache(tmp_path, frozen(1)).get(video(0))
    assert sum(looked) >= 20 and not np.array_equal(other[:], first[:]), "other weights see otherwise"


def test_a_run_that_was_killed_while_it_looked_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FeatureCache(tmp_path, frozen())
    whole = cache.get(video(0))[:]
    real, calls = Encoder.encode_image, []

    def dies(self: Encoder, images: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, images)

    monkeypatch.setattr(Encoder, "encode_image", dies)
    with pytest.raises(KeyboardInterrupt):
        cache.get(video(1))
    assert not any(path.suffix == ".safetensors" for path in cache.folder.glob("*") if path.stat().st_size < 1000)
    monkeypatch.setattr(Encoder, "encode_image", real)
    assert np.isfinite(cache.get(video(1))[:]).all() and np.array_equal(cache.get(video(0))[:], whole)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path, frozen())
    cache.get(video(0))
    (path,) = cache.folder.glob("*.safetensors")
    for content in (path.read_bytes()[:-10], b"x" * path.stat().st_size, b""):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"{path.name}: does not hold maps"):
            cache.get(video(0))


@pytest.mark.parametrize("resumed", [False, True])
def test_training_from_kept_maps_is_training_from_images(tmp_path: Path, resumed: bool) -> None:
    known = episodes(8)
    config = replace(FROZEN, feature_cache_dir=tmp_path / "maps")
    plain = train(known, FROZEN, RunFolder.open(tmp_path / "plain"), NullReporter())
    if resumed:
        train(known, config, RunFolder.open(tmp_path / "before"), NullReporter())
    kept = train(known, config, RunFolder.open(tmp_path / "kept"), NullReporter())
    for one, other in zip(score_episodes(plain, known), score_episodes(kept, known), strict=True):
        assert np.abs(one.progress - other.progress).max() < 5e-3


def test_a_large_map_is_pooled_to_as_many_cells_as_a_net_looks_at() -> None:
    torch.manual_seed(0)
    config = {"tower": "patch_tower_tiny", "image_size": (128, 96)}
    free, pooled = make_encoder(**config, trainable=True), make_encoder(**config, trainable=False)
    pooled.load_state_dict(free.state_dict())
    images = torch.randn(2, 3, 128, 96)
    with torch.no_grad():
        whole, cells = free.eval().encode_image(images), pooled.eval().encode_image(images)
    assert whole.shape[2] > 8 and cells.shape[2:] == (8, min(8, whole.shape[3]))
    torch.testing.assert_close(cells, torch.nn.functional.adaptive_avg_pool2d(whole, cells.shape[2:]))


def test_a_frozen_tower_reads_a_sentence_once_until_its_weights_change(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, read = frozen(), []
    real = Encoder.encode_tokens
    monkeypatch.setattr(Encoder, "encode_tokens", lambda self, ids: read.append(len(ids)) or real(self, ids))
    with torch.inference_mode():
        before = encoder.encode_text(["lift it", "drop it", "lift it"])
    assert torch.equal(encoder.encode_text(["drop it"])[0], before[1]) and read == [2]
    assert not encoder.encode_text(["lift it"]).is_inference(), "what was read while judging can be learned from"
    encoder.load_state_dict(frozen(1).state_dict())
    assert not torch.equal(encoder.encode_text(["drop it"])[0], before[1])
    trained = make_encoder("mobilenetv3_small_050", (32, 32)).eval()
    for _ in range(2):
        assert trained.encode_text(["lift it"]).requires_grad
    assert read == [2, 1, 1, 1]


def test_what_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"add train_tower=false"):
        TrainConfig(feature_cache_dir=tmp_path)
    with pytest.raises(UserError, match=r"add augment\.shift=0 augment\.color_jitter=0 augment\.brightness_jitter=0"):
        TrainConfig(feature_cache_dir=tmp_path, train_tower=False)
    with pytest.raises(UserError, match="needs a frozen image tower"):
        FeatureCache(tmp_path, make_encoder("mobilenetv3_small_050", (32, 32)))

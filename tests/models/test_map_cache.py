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
from embodied_rm.models.augment import AugmentConfig
from embodied_rm.models.encoders import Encoder
from embodied_rm.models.fold import fold
from embodied_rm.models.map_cache import MapCache
from embodied_rm.models.pretrained import make_encoder
from embodied_rm.run import RunFolder, Silent
from embodied_rm.train import TrainConfig, train

STILL = AugmentConfig(shift=0.0, colour=0.0, flicker=0.0, drop_view=0.3)
FROZEN = TrainConfig(
    tower="mobilenetv3_small_050",
    train_tower=False,
    image_size=(32, 32),
    updates=12,
    batch=4,
    moments=4,
    augment=STILL,
    learning_rate=1e-3,
)


def frozen(seed: int = 0, tower: str = "mobilenetv3_small_050") -> Encoder:
    torch.manual_seed(seed)
    return make_encoder(tower, (32, 32), trained=False).eval()


def film(seed: int, length: int = 20) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (length, 32, 32, 3)).astype(np.uint8)


def test_what_is_kept_is_what_the_tower_sees(tmp_path: Path) -> None:
    encoder = frozen()
    maps = MapCache(tmp_path, encoder).of(film(0))
    with torch.no_grad():
        seen = encoder.look(encoder.prepare(torch.from_numpy(film(0)))).numpy()
    assert maps.dtype == np.float16 and maps.shape == seen.shape == (20, *encoder.map_shape())
    assert np.allclose(maps[:], seen, rtol=1e-3, atol=1e-3)
    assert np.array_equal(maps[[3, 19, 3]], maps[:][[3, 19, 3]]) and np.array_equal(maps[-1], maps[:][-1])


def test_a_process_may_have_more_films_than_open_files(tmp_path: Path) -> None:
    cache = MapCache(tmp_path, frozen())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 20, hard))
    try:
        kept = [cache.of(film(i, 2)) for i in range(40)]
        assert all(maps[0].shape == kept[0].shape[1:] for maps in kept)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_it_looks_once_at_each_film_with_each_tower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    real = Encoder.look
    monkeypatch.setattr(Encoder, "look", lambda self, pictures: looked.append(len(pictures)) or real(self, pictures))
    encoder = frozen()
    for _ in range(2):
        cache = MapCache(tmp_path, encoder)
        looked.clear()
        first, second = cache.of(film(0)), cache.of(film(1))
        assert not np.array_equal(first[:], second[:])
    assert looked == [], "both were kept by the first cache"
    other = MapCache(tmp_path, frozen(1)).of(film(0))
    assert sum(looked) >= 20 and not np.array_equal(other[:], first[:]), "other weights see otherwise"


def test_a_run_that_was_killed_while_it_looked_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = MapCache(tmp_path, frozen())
    whole = cache.of(film(0))[:]
    real, calls = Encoder.look, []

    def dies(self: Encoder, pictures: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, pictures)

    monkeypatch.setattr(Encoder, "look", dies)
    with pytest.raises(KeyboardInterrupt):
        cache.of(film(1))
    assert not any(path.suffix == ".safetensors" for path in cache.folder.glob("*") if path.stat().st_size < 1000)
    monkeypatch.setattr(Encoder, "look", real)
    assert np.isfinite(cache.of(film(1))[:]).all() and np.array_equal(cache.of(film(0))[:], whole)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    cache = MapCache(tmp_path, frozen())
    cache.of(film(0))
    (path,) = cache.folder.glob("*.safetensors")
    for content in (path.read_bytes()[:-10], b"x" * path.stat().st_size, b""):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"{path.name}: does not hold maps"):
            cache.of(film(0))


@pytest.mark.parametrize("resumed", [False, True])
def test_training_from_kept_maps_is_training_from_pictures(tmp_path: Path, resumed: bool) -> None:
    known = episodes(8)
    config = replace(FROZEN, cache=tmp_path / "maps")
    plain = train(known, FROZEN, RunFolder.open(tmp_path / "plain"), Silent())
    if resumed:
        train(known, config, RunFolder.open(tmp_path / "before"), Silent())
    kept = train(known, config, RunFolder.open(tmp_path / "kept"), Silent())
    for one, other in zip(fold(plain, known), fold(kept, known), strict=True):
        assert np.abs(one.value - other.value).max() < 5e-3


def test_a_large_map_is_pooled_to_as_many_cells_as_a_net_looks_at() -> None:
    torch.manual_seed(0)
    config = {"tower": "patch_tower_tiny", "image_size": (128, 96)}
    free, pooled = make_encoder(**config, trained=True), make_encoder(**config, trained=False)
    pooled.load_state_dict(free.state_dict())
    pictures = torch.randn(2, 3, 128, 96)
    with torch.no_grad():
        whole, cells = free.eval().look(pictures), pooled.eval().look(pictures)
    assert whole.shape[2] > 8 and cells.shape[2:] == (8, min(8, whole.shape[3]))
    torch.testing.assert_close(cells, torch.nn.functional.adaptive_avg_pool2d(whole, cells.shape[2:]))


def test_a_frozen_tower_reads_a_sentence_once_until_its_weights_change(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, read = frozen(), []
    real = Encoder.read
    monkeypatch.setattr(Encoder, "read", lambda self, ids: read.append(len(ids)) or real(self, ids))
    with torch.inference_mode():
        before = encoder.hear(["lift it", "drop it", "lift it"])
    assert torch.equal(encoder.hear(["drop it"])[0], before[1]) and read == [2]
    assert not encoder.hear(["lift it"]).is_inference(), "what was read while judging can be learned from"
    encoder.load_state_dict(frozen(1).state_dict())
    assert not torch.equal(encoder.hear(["drop it"])[0], before[1])
    trained = make_encoder("mobilenetv3_small_050", (32, 32)).eval()
    for _ in range(2):
        assert trained.hear(["lift it"]).requires_grad
    assert read == [2, 1, 1, 1]


def test_what_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"add train_tower=false"):
        TrainConfig(cache=tmp_path)
    with pytest.raises(UserError, match=r"add augment\.shift=0 augment\.colour=0 augment\.flicker=0"):
        TrainConfig(cache=tmp_path, train_tower=False)
    with pytest.raises(UserError, match="and that of this model does"):
        MapCache(tmp_path, make_encoder("mobilenetv3_small_050", (32, 32)))

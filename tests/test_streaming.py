"""The streaming window is seeded and bounded, and models train through it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sprites import episode, episodes

from embodied_rm.data.block_reader import PREFETCH_COUNT
from embodied_rm.data.fingerprint import fingerprint, hash_last_frame
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.distributed import SINGLE_PROCESS, DistContext
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.labels.labeled_episode import label
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.training import Execution, TrainConfig, train
from embodied_rm.training.batches import LabeledBatchSampler
from embodied_rm.training.streaming import BYTES_PER_GB, MEAN_DRAWS_PER_EPISODE, StreamingEpisodes
from embodied_rm.types import Episode

EPISODES = [episode(i, success=i % 3 != 2, task=("carry", "return")[i % 2]) for i in range(24)]
EPISODE_BYTES = [sum(frames.nbytes for frames in video.views.values()) for video in EPISODES]
BATCH_SIZE = 4
WINDOW_BYTES = 10 * max(EPISODE_BYTES)
QUICK_CONFIG = TrainConfig(
    image_size=(32, 32), steps=24, batch_size=BATCH_SIZE, frames_per_episode=4, checkpoint_seconds=1e-9
)


def start_window(
    window_bytes: float = WINDOW_BYTES, dist_context: DistContext = SINGLE_PROCESS, seed: int = 0
) -> tuple[StreamingEpisodes, list[Episode], list[int]]:
    """Return a started window, its indexed episodes, and the list of dataset indices read since then."""
    read_indices: list[int] = []

    def read_episode(index: int) -> Episode:
        read_indices.append(index)
        return EPISODES[index]

    window = StreamingEpisodes(read_episode, window_bytes / BYTES_PER_GB)
    indexed: list[Episode] = [window.index_episode(index) for index in range(len(EPISODES))]
    window.start(seed, BATCH_SIZE, dist_context)
    read_indices.clear()
    return window, indexed, read_indices


def rank_pools(window: StreamingEpisodes, step: int) -> list[list[int]]:
    pools = window.rank_pools(step)
    assert pools is not None
    return [pool.tolist() for pool in pools]


def test_window_depends_only_on_seed_and_step() -> None:
    window, *_ = start_window()
    pools_per_step = [rank_pools(window, step) for step in range(60)]
    window.close()
    for step in (0, 7, 59):
        late_window, *_ = start_window()
        assert rank_pools(late_window, step) == pools_per_step[step], "a late start gives the same window"
        late_window.close()
    other_window, *_ = start_window(seed=1)
    assert rank_pools(other_window, 0) != pools_per_step[0]
    other_window.close()
    visited = {index for (pool,) in pools_per_step for index in pool}
    assert visited == set(range(len(EPISODES)))


def test_window_respects_its_size_limit() -> None:
    window, indexed, read_indices = start_window()
    for step in range(60):
        (resident,) = rank_pools(window, step)
        num_bytes = sum(EPISODE_BYTES[index] for index in resident) + PREFETCH_COUNT * min(EPISODE_BYTES)
        assert num_bytes <= WINDOW_BYTES and len(resident) >= BATCH_SIZE
        assert len(read_indices) - window._resident.stop <= PREFETCH_COUNT, "prefetching is limited"
        for index, indexed_episode in enumerate(indexed):
            if index in resident:
                assert np.array_equal(indexed_episode.views["front"][[0, -1]], EPISODES[index].views["front"][[0, -1]])
            else:
                with pytest.raises(KeyError):
                    indexed_episode.views["front"][0]
    window.close()
    drawn = 60 * BATCH_SIZE / (window._resident.stop - 8)
    assert drawn == pytest.approx(MEAN_DRAWS_PER_EPISODE, rel=0.2), "mean number of draws per episode"
    for thread in threading.enumerate():
        if thread.name.startswith("video"):
            thread.join(60)
            assert not thread.is_alive()


def test_each_rank_reads_its_own_episodes() -> None:
    windows = [start_window(dist_context=DistContext(rank=rank, world_size=2)) for rank in (0, 1)]
    for step in range(30):
        first, second = (rank_pools(window, step) for window, *_ in windows)
        assert first == second and len(first) == 2
    for rank, (window, indexed, read_indices) in enumerate(windows):
        resident = set(rank_pools(window, 29)[rank])
        assert resident == set(window._cache)
        labeled = label(indexed)
        batch = LabeledBatchSampler(labeled, ("front", "top")).sample(
            BATCH_SIZE,
            4,
            np.random.default_rng(0),
            window.rank_pools(29),
            DistContext(rank=rank, world_size=2).local_rows(2),
        )
        local_frames, other_frames = batch.frames[2 * rank :][:2], batch.frames[2 * (1 - rank) :][:2]
        assert local_frames.any(axis=(1, 2, 3, 4, 5)).all() and not other_frames.any() and batch.present.all()
        assert len(read_indices) < 30, "episodes of the other rank are not read"
        window.close()
    assert len(set(windows[0][2]) | set(windows[1][2])) == len(EPISODES)


def test_indexed_episodes_need_no_images() -> None:
    window, indexed, _ = start_window()
    for original, indexed_episode in zip(EPISODES, indexed, strict=True):
        assert fingerprint(indexed_episode) == fingerprint(original)
        assert hash_last_frame(indexed_episode) == hash_last_frame(original)
        assert len(indexed_episode) == len(original)
    for a, b in zip(label(EPISODES), label(indexed), strict=True):
        assert np.array_equal(a.progress, b.progress) and a.instructions == b.instructions and a.goal == b.goal
    assert not window._cache


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train_weights(
    run: Path, window_bytes: float | None, config: TrainConfig = QUICK_CONFIG, resume: bool = False, **keys
) -> dict:
    """Train and return the final weights."""
    folder = RunFolder.open(run, resume=resume)
    if window_bytes is None:
        return train(EPISODES, config, folder, keys.get("reporter", NullReporter())).state_dict()
    window = StreamingEpisodes(EPISODES.__getitem__, window_bytes / BYTES_PER_GB)
    indexed = [window.index_episode(index) for index in range(len(EPISODES))]
    execution = Execution(stream=window)
    return train(indexed, config, folder, keys.get("reporter", NullReporter()), execution=execution).state_dict()


def test_window_with_all_episodes_trains_the_same_model(tmp_path: Path) -> None:
    without_window = train_weights(tmp_path / "memory", None)
    with_window = train_weights(tmp_path / "window", 2 * sum(EPISODE_BYTES))
    assert all(torch.equal(without_window[name], with_window[name]) for name in without_window)
    moving_window = train_weights(tmp_path / "moved", WINDOW_BYTES)
    assert not all(torch.equal(without_window[name], moving_window[name]) for name in without_window)


class InterruptingReporter(NullReporter):
    """Interrupts training at half of its steps."""

    def track(self, items, description, total=None):
        for percent in items:
            yield percent
            if description == "train" and percent >= 50:
                raise KeyboardInterrupt


def test_resumed_run_equals_uninterrupted_run(tmp_path: Path) -> None:
    uninterrupted = train_weights(tmp_path / "straight", WINDOW_BYTES)
    with pytest.raises(KeyboardInterrupt):
        train_weights(tmp_path / "broken", WINDOW_BYTES, reporter=InterruptingReporter())
    with pytest.raises(CheckpointError, match="another configuration: frame_cache_gb"):
        train_weights(tmp_path / "broken", WINDOW_BYTES + 1000, resume=True)
    with pytest.raises(CheckpointError, match="another configuration: frame_cache_gb, world_size"):
        train_weights(tmp_path / "broken", None, resume=True)
    resumed = train_weights(tmp_path / "broken", WINDOW_BYTES, resume=True)
    assert all(torch.equal(uninterrupted[name], resumed[name]) for name in uninterrupted)


def test_invalid_settings_are_rejected_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"frame_cache_gb=0.0001 may hold fewer episodes than the 4 .* set frame_cache_gb=0.00"
    ):
        train_weights(tmp_path / "small", 1e5)
    with pytest.raises(UserError, match="frame_cache_gb must be > 0 or null, got -1"):
        StreamingEpisodes(EPISODES.__getitem__, -1)
    for keys, key in (
        ({"label_schemes": ("hops", "change_points")}, "change_points"),
        ({"label_schemes": ("visual_change",)}, "visual_change"),
        ({"label_schemes": ("preferences",), "preference_model": tmp_path, "fusion": "forward"}, "preference_model"),
    ):
        with pytest.raises(UserError, match=f"frame_cache_gb keeps a part .* but .*{key}.* reads all of them"):
            train_weights(tmp_path / key, WINDOW_BYTES, replace(QUICK_CONFIG, **keys))


def test_peak_memory_is_bounded_by_the_window(tmp_path: Path) -> None:
    """Peak numpy memory for a dataset of 48 MB, measured by tracemalloc in separate processes."""
    folder = tmp_path / "data"
    with DatasetWriter(folder) as writer:
        for recorded in episodes(20):
            writer.add(recorded)
    side = 128  # larger than stored: only the size in memory counts
    total_bytes = sum(2 * side * side * 3 * meta.length for meta in LeRobotDataset(folder).meta)
    assert total_bytes > 40e6
    peaks = {}
    for cache_gb in ("null", "0.012"):
        overrides = [f"data={folder}", f"out={tmp_path / cache_gb}", f"frame_cache_gb={cache_gb}"]
        overrides += ["image_size=[128,128]", "batch_size=2", "frames_per_episode=3", "steps=8"]
        # Modules are imported before: tracing their memory would take a minute.
        script = "import json, torch._dynamo, tracemalloc; import embodied_rm.cli.commands.train; "
        script += "from embodied_rm.cli.main import main; tracemalloc.start(); "
        script += f"main({['train', *overrides]!r}); print(json.dumps(tracemalloc.get_traced_memory()[1]))"
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", script]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stderr
        peaks[cache_gb] = json.loads(result.stdout.splitlines()[-1])
    assert peaks["null"] > total_bytes, peaks
    assert peaks["null"] - peaks["0.012"] > 0.6 * (total_bytes - 12e6), peaks

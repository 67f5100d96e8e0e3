"""A window over videos: seeded, bounded, the same whenever it is asked; a model that learns through it."""

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
from embodied_rm.train import TrainConfig, train
from embodied_rm.train.batches import LabeledBatchSampler
from embodied_rm.train.streaming import BYTES_PER_GB, MEAN_DRAWS_PER_EPISODE, StreamingEpisodes
from embodied_rm.types import Episode

VIDEOS = [episode(i, success=i % 3 != 2, task=("carry", "return")[i % 2]) for i in range(24)]
BYTES = [sum(frames.nbytes for frames in video.views.values()) for video in VIDEOS]
BATCH, ROOM = 4, 10 * max(BYTES)
QUICK = TrainConfig(image_size=(32, 32), steps=24, batch_size=BATCH, frames_per_episode=4, checkpoint_seconds=1e-9)


def opened(
    memory: float = ROOM, group: DistContext = SINGLE_PROCESS, seed: int = 0
) -> tuple[StreamingEpisodes, list[Episode], list[int]]:
    """A window over the videos that has begun, the episodes glimpsed, and the rows read since, in order."""
    read: list[int] = []

    def reading(row: int) -> Episode:
        read.append(row)
        return VIDEOS[row]

    window = StreamingEpisodes(reading, memory / BYTES_PER_GB)
    glimpsed: list[Episode] = [window.index_episode(row) for row in range(len(VIDEOS))]
    window.start(seed, BATCH, group)
    read.clear()
    return window, glimpsed, read


def lanes(window: StreamingEpisodes, update: int) -> list[list[int]]:
    found = window.rank_pools(update)
    assert found is not None
    return [lane.tolist() for lane in found]


def test_which_videos_are_there_depends_on_seed_and_update_alone() -> None:
    window, *_ = opened()
    walked = [lanes(window, update) for update in range(60)]
    window.close()
    for update in (0, 7, 59):
        late, *_ = opened()
        assert lanes(late, update) == walked[update], "whoever comes late finds the same"
        late.close()
    other, *_ = opened(seed=1)
    assert lanes(other, 0) != walked[0]
    other.close()
    assert {video for (lane,) in walked for video in lane} == set(range(len(VIDEOS))), "all videos come in turn"


def test_it_fits_and_holds_what_it_says_and_nothing_else() -> None:
    window, glimpsed, read = opened()
    for update in range(60):
        (videos,) = lanes(window, update)
        assert sum(BYTES[video] for video in videos) + PREFETCH_COUNT * min(BYTES) <= ROOM and len(videos) >= BATCH
        assert len(read) - window._resident.stop <= PREFETCH_COUNT, "no more is read ahead"
        for video, shown in enumerate(glimpsed):
            if video in videos:
                assert np.array_equal(shown.views["front"][[0, -1]], VIDEOS[video].views["front"][[0, -1]])
            else:
                with pytest.raises(KeyError):
                    shown.views["front"][0]
    window.close()
    drawn = 60 * BATCH / (window._resident.stop - 8)
    assert drawn == pytest.approx(MEAN_DRAWS_PER_EPISODE, rel=0.2), "a video is worth reading"
    assert threading.active_count() == 1 or not [t for t in threading.enumerate() if t.name.startswith("video")]


def test_each_of_a_group_reads_its_own_videos_and_all_know_of_all() -> None:
    several = [opened(group=DistContext(rank=rank, world_size=2)) for rank in (0, 1)]
    for update in range(30):
        first, second = (lanes(window, update) for window, *_ in several)
        assert first == second and len(first) == 2
    for rank, (window, glimpsed, read) in enumerate(several):
        held = set(lanes(window, 29)[rank])
        assert held == set(window._cache)
        labeled = label(glimpsed)
        batch = LabeledBatchSampler(labeled, ("front", "top")).sample(
            BATCH,
            4,
            np.random.default_rng(0),
            window.rank_pools(29),
            DistContext(rank=rank, world_size=2).local_rows(2),
        )
        mine, others = batch.frames[2 * rank :][:2], batch.frames[2 * (1 - rank) :][:2]
        assert mine.any(axis=(1, 2, 3, 4, 5)).all() and not others.any() and batch.present.all()
        assert len(read) < 30, "not what the other reads"
        window.close()
    assert len(set(several[0][2]) | set(several[1][2])) == len(VIDEOS)


def test_what_was_glimpsed_is_known_without_its_images() -> None:
    window, glimpsed, _ = opened()
    for video, shown in zip(VIDEOS, glimpsed, strict=True):
        assert (
            fingerprint(shown) == fingerprint(video)
            and hash_last_frame(shown) == hash_last_frame(video)
            and len(shown) == len(video)
        )
    for a, b in zip(label(VIDEOS), label(glimpsed), strict=True):
        assert np.array_equal(a.progress, b.progress) and a.instructions == b.instructions and a.goal == b.goal
    assert not window._cache


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def learned(run: Path, memory: float | None, config: TrainConfig = QUICK, resume: bool = False, **keys) -> dict:
    """The weights at the end."""
    folder = RunFolder.open(run, resume=resume)
    if memory is None:
        return train(VIDEOS, config, folder, keys.get("reporter", NullReporter())).state_dict()
    window = StreamingEpisodes(VIDEOS.__getitem__, memory / BYTES_PER_GB)
    glimpsed = [window.index_episode(row) for row in range(len(VIDEOS))]
    return train(glimpsed, config, folder, keys.get("reporter", NullReporter()), stream=window).state_dict()


def test_a_window_that_holds_everything_teaches_the_same_model(tmp_path: Path) -> None:
    one, other = learned(tmp_path / "memory", None), learned(tmp_path / "window", 2 * sum(BYTES))
    assert all(torch.equal(one[name], other[name]) for name in one)
    moved = learned(tmp_path / "moved", ROOM)
    assert not all(torch.equal(one[name], moved[name]) for name in one)


class Killed(NullReporter):
    """Ends the process after half of the training."""

    def track(self, items, description, total=None):
        for percent in items:
            yield percent
            if description == "train" and percent >= 50:
                raise KeyboardInterrupt


def test_an_interrupted_run_ends_as_one_that_was_not(tmp_path: Path) -> None:
    straight = learned(tmp_path / "straight", ROOM)
    with pytest.raises(KeyboardInterrupt):
        learned(tmp_path / "broken", ROOM, reporter=Killed())
    with pytest.raises(CheckpointError, match="another configuration: frame_cache_gb"):
        learned(tmp_path / "broken", ROOM + 1000, resume=True)
    with pytest.raises(CheckpointError, match="another configuration: frame_cache_gb, world_size"):
        learned(tmp_path / "broken", None, resume=True)
    resumed = learned(tmp_path / "broken", ROOM, resume=True)
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


def test_what_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"frame_cache_gb=0.0001 may hold fewer episodes than the 4 .* set frame_cache_gb=0.00"):
        learned(tmp_path / "small", 1e5)
    with pytest.raises(UserError, match="frame_cache_gb must be > 0 or null, got -1"):
        StreamingEpisodes(VIDEOS.__getitem__, -1)
    for keys, named in (
        ({"label_schemes": ("hops", "change_points")}, "change_points"),
        ({"label_schemes": ("visual_change",)}, "visual_change"),
        ({"label_schemes": ("preferences",), "preference_model": tmp_path, "fusion": "forward"}, "preference_model"),
    ):
        with pytest.raises(UserError, match=f"frame_cache_gb keeps a part .* and .*{named}.* looks at all of them first"):
            learned(tmp_path / named, ROOM, replace(QUICK, **keys))


def test_peak_memory_is_bounded_by_the_window_and_not_by_the_data(tmp_path: Path) -> None:
    """Of a dataset of 48 MB: what numpy has at most while training, by tracemalloc in processes of their own."""
    folder = tmp_path / "data"
    with DatasetWriter(folder) as writer:
        for one in episodes(80):
            writer.add(one)
    side = 64  # bigger than they are stored: what counts is what is held
    held = sum(2 * side * side * 3 * meta.length for meta in LeRobotDataset(folder).meta)
    assert held > 40e6
    peaks = {}
    for memory in ("null", "0.012"):
        words = [f"data={folder}", f"out={tmp_path / memory}", f"frame_cache_gb={memory}", "image_size=[64,64]"]
        words += ["batch_size=4", "frames_per_episode=3", "steps=80"]
        script = f"import json, tracemalloc; from embodied_rm.cli.main import main; tracemalloc.start(); main({['train', *words]!r}); print(json.dumps(tracemalloc.get_traced_memory()[1]))"
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        line = [sys.executable, "-c", script]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        peaks[memory] = json.loads(done.stdout.splitlines()[-1])
    assert peaks["null"] > held, peaks
    assert peaks["null"] - peaks["0.012"] > 0.6 * (held - 12e6), peaks

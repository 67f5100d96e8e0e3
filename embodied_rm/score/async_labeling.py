"""Label episodes in a background thread while they are collected: videos and scores to train on.

Source: ONI (arXiv 2410.23022), where a large model labels the observations of a policy during its training.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.lerobot.parquet import read_parquet
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.score_table import MAX_SCORES_BYTES
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import UserError, check_minimum
from embodied_rm.models.scoring import episode_views, score_video
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.score.scorer import Scorer
from embodied_rm.score.write_scores import TABLE_FILE, episode_table, write_table
from embodied_rm.types import Episode, RewardOutput

VIDEOS_DIR, CONFIG_FILE = "videos", "config.json"
"""In the folder: the datasets, and the identity of the judge whose scores are in the table."""


@dataclass(frozen=True, kw_only=True)
class LabelingConfig:
    """Which episodes of a training run are labeled, and how they are stored."""

    num_envs: int = 4  # number of environments that are recorded, the first ones
    frame_stride: int = 5  # control steps between two recorded frames; all recorded frames are scored
    max_queue: int = 16  # Maximum number of waiting videos. Further ones are dropped and counted.
    episodes_per_dataset: int = 16  # number of videos per stored dataset

    def __post_init__(self) -> None:
        check_minimum(self, 1, *vars(self), prefix="labeling.")


class AsyncLabeler:
    """Scores episodes in a thread and stores them; an existing folder is extended.

    The folder holds one dataset per `episodes_per_dataset` episodes and a table of scores as `embodied-rm score` writes
    it. Both can be used for training at any time. An interrupted run loses less than one dataset. `judge_digest` is the
    identity of the judge; another judge's folder raises `UserError`.

    Example:
        >>> with AsyncLabeler(scorer, folder, config, judge_digest) as labeler:
        ...     labeler.submit(episode)
        ...     labeler.finish(reporter)
    """

    def __init__(self, scorer: Scorer, folder: Path, config: LabelingConfig, judge_digest: str) -> None:
        self.num_dropped = 0
        """Number of episodes that were submitted while the queue was full."""
        self._scorer, self._config, self._run = scorer, config, RunFolder(folder)
        self._videos_dir = folder / VIDEOS_DIR
        self._buffer: list[tuple[Episode, RewardOutput]] = []
        self._futures: deque[Future[None]] = deque()
        self._record_judge(judge_digest)
        self._num_datasets, self._num_episodes, self._num_frames, self._tables = self._load_existing()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="labels")

    def __len__(self) -> int:
        """Number of labeled episodes, stored or buffered."""
        return self._num_episodes + len(self._buffer)

    def __enter__(self) -> AsyncLabeler:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._executor.shutdown(cancel_futures=True)

    def submit(self, episode: Episode) -> None:
        """Queue an episode, or drop it if the queue is full. Raises the exception of an earlier episode, if any."""
        while self._futures and self._futures[0].done():
            self._futures.popleft().result()
        if len(self._futures) < self._config.max_queue:
            self._futures.append(self._executor.submit(self._label, episode))
        else:
            self.num_dropped += 1

    def finish(self, reporter: Reporter) -> None:
        """Wait for the queue and store all buffered episodes. Raises the exception of an episode, if any."""
        for future in reporter.track(self._futures, "label", total=len(self._futures)):
            future.result()
        self._futures.clear()
        if self._buffer:
            self._flush()

    def _label(self, episode: Episode) -> None:
        self._buffer.append((episode, score_video(self._scorer.model, episode.instruction, [episode_views(episode)])))
        if len(self._buffer) == self._config.episodes_per_dataset:
            self._flush()

    def _flush(self) -> None:
        """Store the buffer: scores first, because scores without videos are ignored, but videos need their scores."""
        tables, num_frames, interval_scale = [], self._num_frames, self._scorer.model.capabilities.interval_scale
        for number, (episode, prediction) in enumerate(self._buffer, self._num_episodes):
            meta = EpisodeMeta(name=episode.name, length=len(episode), instruction=episode.instruction)
            tables.append(episode_table(number, prediction, meta, num_frames, interval_scale))
            num_frames += len(episode)
        write_table(self._run.file_path(TABLE_FILE), [*self._tables, *tables])
        with DatasetWriter(self._videos_dir / f"{self._num_datasets:05d}") as writer:
            for number, (episode, _) in enumerate(self._buffer, self._num_episodes):
                writer.add(replace(episode, name=f"episode_{number:06d}"))
        self._num_datasets += 1
        self._num_episodes += len(self._buffer)
        self._num_frames = num_frames
        self._tables = [*self._tables, *tables]
        self._buffer = []

    def _record_judge(self, judge_digest: str) -> None:
        """Store the identity of the judge; raise `UserError` if the folder has that of another one."""
        if (self._run.path / CONFIG_FILE).exists():
            previous_digest = self._run.read_json(CONFIG_FILE)["config"]["judge_digest"]
            if previous_digest != judge_digest:
                digests = f"{previous_digest[:12]}, now {judge_digest[:12]}"
                raise UserError(f"{self._run.path}: another judge labeled this ({digests})")
        self._run.write_json(CONFIG_FILE, {"config": {"judge_digest": judge_digest, "frame_stride": 1}})

    def _load_existing(self) -> tuple[int, int, int, Sequence[pa.Table]]:
        """Return the number of stored datasets, episodes and frames, and the scores; remove incomplete datasets."""
        for partial_dir in self._videos_dir.glob(".*.partial-*"):
            shutil.rmtree(partial_dir)
        datasets = [LeRobotDataset(path) for path in sorted(self._videos_dir.glob("*"))]
        if not datasets:
            return 0, 0, 0, []
        num_episodes = sum(map(len, datasets))
        table = read_parquet(self._run.path / TABLE_FILE, max_bytes=MAX_SCORES_BYTES)
        num_frames = sum(meta.length for dataset in datasets for meta in dataset.meta)
        return len(datasets), num_episodes, num_frames, [table.filter(pc.less(table["episode_index"], num_episodes))]

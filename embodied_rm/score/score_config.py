"""Configuration of scoring: the episodes, the outputs and the engine."""

import hashlib
import json
from dataclasses import dataclass

from embodied_rm.errors import UserError, check_minimum, lookup

LOCAL_ENGINE, RAY_ENGINE = "local", "ray"
ENGINES = {LOCAL_ENGINE: "this machine", RAY_ENGINE: "Ray actors, on this machine or a cluster"}
RESUME_IGNORED_KEYS = ("engine", "num_workers", "ray_address")
"""Keys that do not affect the output; a resumed run may change them."""
SHARDING_KEYS = ("episode_indices", "shard_episodes")  # keys that assign episodes to shards


@dataclass(frozen=True, kw_only=True)
class ScoreConfig:
    """Settings of `score` and `score_corpus`."""

    episode_indices: tuple[int, ...] = ()  # Episodes of the source. Empty: all.
    frame_stride: int = 1
    """Every `frame_stride`-th frame is scored, and the last one; other frames repeat the previous score."""
    plots: bool = True  # write a PNG per episode
    videos: bool = True  # write an mp4 per episode
    max_video_frames: int = 900
    """Maximum number of frames per video; longer recordings are subsampled, which bounds the memory."""
    engine: str = LOCAL_ENGINE  # one of `ENGINES`
    num_workers: int = 1
    """Number of processes or Ray actors. Each has its own model and decodes and scores its own shards."""
    ray_address: str | None = None  # Address of the Ray cluster. None: a new Ray instance on this machine.
    shard_episodes: int = 8  # Episodes per shard. An interruption loses at most the unfinished shards of each worker.
    num_threads: int | None = None
    """Number of torch threads per worker, which affects the last bits of scores.

    None: one thread; for a judge, which may be large, the worker's share of the processors.
    """

    def __post_init__(self) -> None:
        lookup(ENGINES, self.engine, "engine")
        check_minimum(self, 1, "frame_stride", "num_workers", "shard_episodes")
        check_minimum(self, 2, "max_video_frames")
        if self.num_threads is not None:
            check_minimum(self, 1, "num_threads")
        if self.ray_address is not None and self.engine != RAY_ENGINE:
            raise UserError(f"ray_address={self.ray_address} needs engine={RAY_ENGINE}")

    def output_digest(self) -> str:
        """Return the SHA-256 of the settings that affect the output of an episode."""
        ignored_keys = (*RESUME_IGNORED_KEYS, *SHARDING_KEYS)
        settings = {name: value for name, value in vars(self).items() if name not in ignored_keys}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

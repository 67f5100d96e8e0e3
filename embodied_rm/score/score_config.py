"""What to score, what to write beside the table, and who does it."""

from __future__ import annotations

from dataclasses import dataclass

from embodied_rm.errors import UserError, lookup

LOCAL_ENGINE, RAY_ENGINE = "local", "ray"
ENGINES = {LOCAL_ENGINE: "this machine", RAY_ENGINE: "actors of Ray, here or on a cluster"}
RESUME_IGNORED_KEYS = ("engine", "num_workers", "ray_address")
"""Keys that decide who does the work and not what comes out: a run may go on with others."""
SHARDING_KEYS = ("episode_indices", "shard_episodes")
"""Keys that decide which episodes lie in which shard."""


@dataclass(frozen=True, kw_only=True)
class ScoreConfig:
    """See the module."""

    episode_indices: tuple[int, ...] = ()
    """Which episodes of the source; none: all."""
    frame_stride: int = 1
    """Every how many frames are scored, and the last; between two of them what was said is carried."""
    plots: bool = True
    """A png for every episode."""
    videos: bool = True
    """An mp4 for every episode."""
    max_video_frames: int = 900
    """Most frames of a video; of a longer recording every n-th is shown, so that memory stays bounded."""
    engine: str = LOCAL_ENGINE
    """One of `ENGINES`."""
    num_workers: int = 1
    """Processes, or actors of Ray, that each hold the model and decode and judge shards of their own."""
    ray_address: str | None = None
    """Of the Ray cluster; None: a Ray of this run's own, on this machine."""
    shard_episodes: int = 8
    """Episodes of a shard: what a kill may cost each worker."""
    num_threads: int | None = None
    """Of torch, in each worker. They move the last bits of a score. None: one; of a judge of other people's, which may
    be large, its share of the processors."""

    def __post_init__(self) -> None:
        lookup(ENGINES, self.engine, "engine")
        for name, minimum in (
            ("frame_stride", 1),
            ("max_video_frames", 2),
            ("num_workers", 1),
            ("shard_episodes", 1),
            ("num_threads", 1),
        ):
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise UserError(f"{name} must be >= {minimum}, got {value}")
        if self.ray_address is not None and self.engine != RAY_ENGINE:
            raise UserError(f"ray_address={self.ray_address} is of a Ray cluster: it needs engine={RAY_ENGINE}")

    def output_settings(self) -> dict[str, object]:
        """All of it that decides what is written of an episode."""
        return {name: value for name, value in vars(self).items() if name not in (*RESUME_IGNORED_KEYS, *SHARDING_KEYS)}

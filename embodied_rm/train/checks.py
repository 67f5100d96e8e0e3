"""What cannot be learned, told before anything is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.schemes import select_schemes
from embodied_rm.models.progress_net import NetConfig
from embodied_rm.models.subgoals import split_subgoals
from embodied_rm.train.train_config import TrainConfig
from embodied_rm.types import Episode


def check_streamable(config: TrainConfig) -> None:
    """Raises `UserError` for what looks at all images before anything is learned, and so needs them in memory."""
    names = [name for name, scheme in select_schemes(config.label_schemes).items() if scheme.needs_all_frames]
    conflicts = [f"labels=[{name}]" for name in names]
    conflicts += [f"{key}=" for key in ("label_judge", "cache") if getattr(config, key) is not None]
    if conflicts:
        raise UserError(
            f"memory_gb keeps a part of the videos in memory, and {conflicts[0]} looks at all of them first"
        )


def check_single_subgoal(episodes: Iterable[Episode]) -> None:
    """Raises `DataError` naming an episode of several wishes: as one sentence, they are never read when judging."""
    for episode in episodes:
        if len(subgoals := split_subgoals(episode.instruction)) > 1:
            raise DataError(
                f"{episode.name}: its instruction {episode.instruction!r} names {len(subgoals)} wishes, which a model "
                "judges one after the other: train on episodes of each, or join them by other words"
            )


def require_incremental_labels(net_config: NetConfig, label_schemes: Sequence[str]) -> None:
    """Raises `UserError` when the net reads hops from the previous frame, but none of the labels teaches them."""
    if net_config.fusion != "forward" and not any(
        scheme.incremental for scheme in select_schemes(label_schemes).values()
    ):
        raise UserError(
            f"labels [{', '.join(label_schemes)}] teach no hops from the previous frame, which fusion={net_config.fusion} reads: "
            "train with fusion=forward, or with further labels such as hops"
        )

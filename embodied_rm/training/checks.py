"""Checks before training."""

from collections.abc import Iterable, Sequence

from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.schemes import select_schemes
from embodied_rm.models.progress_net import NetConfig
from embodied_rm.models.subgoals import split_subgoals
from embodied_rm.training.train_config import TrainConfig
from embodied_rm.types import Episode


def check_streamable(config: TrainConfig) -> None:
    """Raise `UserError` if a part of the configuration reads all images before training."""
    names = [name for name, scheme in select_schemes(config.label_schemes).items() if scheme.needs_all_frames]
    conflicts = [f"label_schemes=[{name}]" for name in names]
    conflicts += [f"{key}=" for key in ("preference_model", "feature_cache_dir") if getattr(config, key) is not None]
    if conflicts:
        raise UserError(
            f"frame_cache_gb keeps a part of the videos in memory, but {conflicts[0]} reads all of them before training"
        )


def check_single_subgoal(episodes: Iterable[Episode]) -> None:
    """Raise `DataError` if an instruction has several subgoals: inference encodes each subgoal separately."""
    for episode in episodes:
        if len(subgoals := split_subgoals(episode.instruction)) > 1:
            raise DataError(
                f"{episode.name}: its instruction {episode.instruction!r} has {len(subgoals)} subgoals, which a model "
                "scores one after the other: train on episodes of each, or join them by other words"
            )


def require_incremental_labels(net_config: NetConfig, label_schemes: Sequence[str]) -> None:
    """Raise `UserError` if the fusion uses hops from the previous frame and no label scheme teaches them."""
    incremental = any(scheme.incremental for scheme in select_schemes(label_schemes).values())
    if net_config.fusion != "forward" and not incremental:
        raise UserError(
            f"label_schemes [{', '.join(label_schemes)}] teach no hops from the previous frame, which "
            f"fusion={net_config.fusion} uses: train with fusion=forward, or add a scheme such as hops"
        )

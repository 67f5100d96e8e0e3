"""What cannot be learned, told before anything is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.schemes import chosen
from embodied_rm.models.plans import wishes_of
from embodied_rm.models.progress_net import NetConfig
from embodied_rm.train.config import TrainConfig
from embodied_rm.types import Episode


def refuse_looks(config: TrainConfig) -> None:
    """Raises `UserError` for what looks at all pictures before anything is learned, and so needs them in memory."""
    names = [name for name, scheme in chosen(config.labels).items() if scheme.looks]
    found = [f"labels=[{name}]" for name in names]
    found += [f"{key}=" for key in ("label_judge", "cache") if getattr(config, key) is not None]
    if found:
        raise UserError(f"memory_gb keeps a part of the films in memory, and {found[0]} looks at all of them first")


def refuse_several_wishes(episodes: Iterable[Episode]) -> None:
    """Raises `DataError` naming an episode of several wishes: as one sentence, they are never read when judging."""
    for episode in episodes:
        if len(wishes := wishes_of(episode.instruction)) > 1:
            raise DataError(
                f"{episode.name}: its instruction {episode.instruction!r} names {len(wishes)} wishes, which a model "
                "judges one after the other: train on episodes of each, or join them by other words"
            )


def need_perspectives(net: NetConfig, labels: Sequence[str]) -> None:
    """Raises `UserError` when the net reads hops from the previous frame, but none of the labels teaches them."""
    if net.fusion != "forward" and not any(scheme.incremental for scheme in chosen(labels).values()):
        raise UserError(
            f"labels [{', '.join(labels)}] teach no hops from the previous frame, which fusion={net.fusion} reads: "
            "train with fusion=forward, or with further labels such as hops"
        )

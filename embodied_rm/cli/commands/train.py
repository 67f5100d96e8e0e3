"""`embodied-rm train`: recorded episodes become a reward model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from embodied_rm.cli.command import Command, narrow
from embodied_rm.cli.recordings import recordings, sound
from embodied_rm.cli.splits import NONE, Split, check_split, refuse_leaks
from embodied_rm.cli.trial import opened_net
from embodied_rm.data.judgements import Judgements
from embodied_rm.data.names import Names
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import UserError
from embodied_rm.group import joined
from embodied_rm.labels.reversal import with_reversals
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.train import TrainConfig, refuse_looks, train
from embodied_rm.types import Episode
from embodied_rm.window import Window


@dataclass(frozen=True, kw_only=True)
class TrainCommand(TrainConfig):
    """Training on stored episodes."""

    data: Path
    held_out: Path | None = None
    start: Path | None = None
    """Run folder or checkpoint folder of a model that learns on."""
    stride: int = 1
    split: Split = field(default_factory=Split)
    """What the data must be recordings of; "none": of anything."""
    names: Names = field(default_factory=Names)
    """What stored views and columns are called here."""
    judged: Path | None = None
    """Run folder of scoring, whose scores labels=[judged] teaches."""
    shard: bool = False
    """Whether processes share the towers' weights, gradients and moments, instead of holding all of them each."""
    memory_gb: float | None = None
    """Pictures that are in memory at once, GB a process; None: all."""
    reversals: bool = False
    """Whether films are played backwards too, see `embodied_rm.labels.reversal`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.judged is None) == ("judged" in self.labels):
            raise UserError(
                f"labels=[judged] teaches what was said in judged=<run folder of embodied-rm score>, got labels="
                f"[{', '.join(self.labels)}] and judged={self.judged}"
            )
        if self.judged is not None and self.reversals:
            raise UserError("reversals=true plays films backwards, which nobody has judged: leave it out with judged=")


def start(config: TrainCommand, run: RunFolder, reporter: Reporter) -> None:
    """Train, and leave checkpoint and metrics in the run folder. Raises `DataError` where the data leaves its split."""
    started = time.monotonic()
    if config.memory_gb is not None:
        refuse_looks(config)
        if config.reversals:
            raise UserError("memory_gb keeps a part of the films in memory, and reversals= looks at all of them first")
    check_split(config.split)
    data = recordings(config.data, reporter, names=config.names)
    if config.split.name != NONE:
        refuse_leaks(config.split, data.meta)
    begin, facts = (None, None) if config.start is None else opened_net(config.start)
    if begin is not None:
        config = replace(config, image_size=begin.config.encoder.image_size)
    seen = partial(data.episode, size=config.image_size, stride=config.stride)
    window = None if config.memory_gb is None else Window(seen, config.memory_gb)
    known: list[Episode] = list(read(data, f"{config.data}", window.glimpse if window else seen, reporter))
    if config.judged is not None:
        known = list(with_judgements(data, config.judged, known, config.stride))
    known = with_reversals(known) if config.reversals else known
    held_out: Iterator[Episode] = iter(())
    if config.held_out is not None:
        unseen = recordings(config.held_out, reporter, names=config.names)
        how = partial(unseen.episode, size=config.image_size, stride=config.stride)
        held_out = read(unseen, f"{config.held_out}", how, reporter)
    with joined("cpu") as group:
        net = train(
            known, narrow(config, TrainConfig), run, reporter, held_out, begin, facts, group, window, config.shard
        )
    if group.rank:
        return
    numbers = {
        "episodes": len(known),
        "frames": sum(map(len, known)),
        "parameters": sum(parameter.numel() for parameter in net.parameters()),
        "seconds": time.monotonic() - started,
    }
    run.write_json("metrics.json", {"train": numbers})


def read(data: EpisodeSource, where: str, how: Callable[[int], Episode], reporter: Reporter) -> Iterator[Episode]:
    """The episodes of a dataset; `where` they lie, for who waits."""
    yield from sound(data, range(len(data)), how, reporter, f"read {where}")


def with_judgements(data: EpisodeSource, run: Path, episodes: Iterable[Episode], stride: int) -> Iterator[Episode]:
    """The episodes of a dataset with what was said of them in a run of scoring, those of them that were scored."""
    told, rows = Judgements.read(run), {meta.name: row for row, meta in enumerate(data.meta)}
    for episode in episodes:
        row = rows[episode.name]
        number = data.meta[row].number
        yield told.beside(episode, row if number is None else number, data.meta[row].length, stride)


COMMAND = Command(schema=TrainCommand, start=start, distributed=True)

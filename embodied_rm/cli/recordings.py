"""Recordings for commands: opened and read, and what is left out of them told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from embodied_rm.cli.places import dataset_in
from embodied_rm.data.catalog import open_data
from embodied_rm.data.faults import SHOWN, Fault, named
from embodied_rm.data.names import AS_STORED, Names
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError
from embodied_rm.run import Reporter
from embodied_rm.types import Episode


def recordings(
    folder: Path, reporter: Reporter, instruction: str | None = None, names: Names = AS_STORED
) -> EpisodeSource:
    """The episodes in a folder, see `open_data`; which of them are left out is told."""
    source = open_data(dataset_in(folder), instruction, names)
    tell(source.faults, reporter)
    return source


def tell(faults: Sequence[Fault], reporter: Reporter, most: int | None = SHOWN) -> None:
    """One line a fault, `most` of them (None: all)."""
    for fault in faults[:most]:
        who = f"left out: {', '.join(fault.episodes)}" if fault.episodes else "note"
        reporter.note(f"{who}: {fault}")
    if most is not None and len(faults) > most:
        reporter.note(
            f"and {len(faults) - most} more faults; {len(named(faults))} episodes are left out in all: embodied-rm "
            "inspect lists every one"
        )


def sound(
    source: EpisodeSource, rows: Sequence[int], read: Callable[[int], Episode], reporter: Reporter, description: str
) -> Iterator[Episode]:
    """These episodes, read one by one; one that cannot be read to its end is left out, and told.

    Raises `DataError` when none is left.
    """
    count, faults = 0, []
    for row in reporter.track(rows, description, total=len(rows)):
        try:
            episode = read(row)
        except DataError as error:
            faults.append(Fault.told_by(error, (source.meta[row].name,)))
            continue
        count += 1
        yield episode
    tell(faults, reporter)
    if faults and not count:
        raise DataError(f"no episode can be read: {faults[0]}")

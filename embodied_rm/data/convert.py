"""Any layout in, LeRobot v3.0 out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from embodied_rm.data.faults import Fault
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError
from embodied_rm.run import Reporter
from embodied_rm.types import Episode


def convert(
    source: EpisodeSource,
    target: Path,
    reporter: Reporter,
    *,
    size: tuple[int, int] | None = None,
    robot_type: str = "unknown",
) -> list[Fault]:
    """Write the episodes of a source as a new dataset; `size` (height, width) resizes while decoding.

    An episode that cannot be read, or does not fit the first one, is left out: returns what is wrong with each. Raises
    `DataError` when nothing is left, or `target` exists.
    """
    faults = []
    with DatasetWriter(target, robot_type=robot_type) as writer:
        for index in reporter.track(range(len(source)), "convert"):
            name = source.meta[index].name
            try:
                writer.add(even(source.episode(index, size=size), source.views))
            except DataError as error:
                faults.append(Fault.told_by(error, (name,)))
    return faults


def even(episode: Episode, views: Sequence[str]) -> Episode:
    """The episode with pictures of even height and width, as mp4 needs them: an odd last row or column is left out."""
    shown = {view: episode.views[view] for view in views}
    cut = {v: f[:, : f.shape[1] // 2 * 2, : f.shape[2] // 2 * 2] for v, f in shown.items()}
    return replace(episode, views=cut)

"""Convert a dataset of any layout to LeRobot v3.0."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from embodied_rm.data.issues import DataIssue
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError
from embodied_rm.run_folder import Reporter
from embodied_rm.types import Episode


def convert_dataset(
    source: EpisodeSource,
    target_path: Path,
    reporter: Reporter,
    *,
    size: tuple[int, int] | None = None,
    robot_type: str = "unknown",
) -> list[DataIssue]:
    """Write the episodes of a source, resized to (height, width) unless None, as a new dataset.

    Return one issue per excluded episode: it cannot be read, or does not fit the first one. Raise `DataError` if no
    episode is left, or `target_path` exists.
    """
    issues = []
    with DatasetWriter(target_path, robot_type=robot_type) as writer:
        for index in reporter.track(range(len(source)), "convert"):
            name = source.meta[index].name
            try:
                writer.add(crop_to_even(source.episode(index, size=size), source.views))
            except DataError as error:
                issues.append(DataIssue.from_error(error, (name,)))
    return issues


def crop_to_even(episode: Episode, views: Sequence[str]) -> Episode:
    """Crop the images to even height and width, as mp4 requires."""
    selected = {view: episode.views[view] for view in views}
    return replace(episode, views={name: f[:, : f.shape[1] & ~1, : f.shape[2] & ~1] for name, f in selected.items()})

"""Convert a dataset of any layout to LeRobot v3.0."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from embodied_rm.data.issues import DataIssue, check_not_empty
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.source import EpisodeSource, ImageSize, equal_rates
from embodied_rm.errors import DataError
from embodied_rm.run_folder import Reporter
from embodied_rm.types import Episode


def convert_dataset(
    source: EpisodeSource,
    target_path: Path,
    reporter: Reporter,
    *,
    indices: Sequence[int] | None = None,
    size: ImageSize | None = None,
    robot_type: str = "unknown",
) -> list[DataIssue]:
    """Write episodes of a source, None: all, resized to (height, width) unless None, as a new dataset.

    Its image size and frame rate are those of most episodes. Return one issue per excluded episode: it cannot be read,
    or does not fit. Raise `DataError` if no episode is left, or `target_path` exists.
    """
    issues: list[DataIssue] = []
    indices = range(len(source)) if indices is None else indices
    with DatasetWriter(target_path, robot_type=robot_type) as writer:
        common_size, common_rate = size or most_common_size(source, indices), most_common_rate(source, indices)
        for index in reporter.track(indices, "convert"):
            name, rate = source.meta[index].name, source.frame_rate(index)
            try:
                if size is None and (own_size := source.image_size(index)) != common_size:
                    raise DataError(f"{name}: {describe_size_mismatch(own_size, common_size)}")
                if not equal_rates(rate, common_rate):
                    raise DataError(f"{name}: has {rate:.4g} frames per second, most episodes have {common_rate:.4g}")
                episode = replace(source.episode(index, size=size), fps=common_rate)
                writer.add(crop_to_even(episode, source.views))
            except DataError as error:
                issues.append(DataIssue.from_error(error, (name,)))
        check_not_empty(target_path, range(len(writer)), issues)
    return issues


def most_common_size(source: EpisodeSource, indices: Sequence[int]) -> ImageSize:
    """Return the image size (height, width) that most of these episodes have."""
    return Counter(map(source.image_size, indices)).most_common(1)[0][0]


def most_common_rate(source: EpisodeSource, indices: Sequence[int]) -> float:
    """Return the frame rate (Hz) that most of these episodes have, as far as `equal_rates` tells."""
    counts = Counter(map(source.frame_rate, indices))
    return max(counts, key=lambda rate: sum(counts[other] for other in counts if equal_rates(other, rate)))


def describe_size_mismatch(size: ImageSize, common_size: ImageSize) -> str:
    """Return the issue of an episode whose images have another size (height, width) than most."""
    (height, width), (common_height, common_width) = size, common_size
    common = f"most episodes {common_height}x{common_width}: image_size=[{common_height},{common_width}] resizes all"
    return f"its images have {height}x{width} pixels (height x width), those of {common}"


def crop_to_even(episode: Episode, views: Sequence[str]) -> Episode:
    """Crop the images to even height and width, as mp4 requires."""
    selected = {view: episode.views[view] for view in views}
    return replace(episode, views={name: f[:, : f.shape[1] & ~1, : f.shape[2] & ~1] for name, f in selected.items()})

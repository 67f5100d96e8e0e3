"""Sets of real recordings, and which of their episodes show the same task in the same scene."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from embodied_rm.data.feature_map import DEFAULT_FEATURE_MAP
from embodied_rm.errors import DataError, UserError
from embodied_rm.experiments.load import load_videos
from embodied_rm.models.in_context.encoded_demonstration import demonstration_stride
from embodied_rm.run_folder import Reporter
from embodied_rm.types import Episode, Frames


@dataclass(frozen=True, kw_only=True)
class RealSet:
    """A set of real recordings, thinned to the rate at which demonstrations are encoded."""

    name: str
    groups: tuple[tuple[Episode, ...], ...]
    """Episodes that show the same task in the same scene, so that one can be the demonstration of another."""
    seconds: Mapping[str, float]  # episode name -> length of its recording, s

    @property
    def views(self) -> tuple[str, ...]:
        """View names."""
        return tuple(self.groups[0][0].views)


def read_real_set(folder: Path, size: tuple[int, int], listed: Sequence[Sequence[str]], reporter: Reporter) -> RealSet:
    """Read a set at an image size.

    Args:
        folder: The dataset.
        size: Height and width, pixels.
        listed: Names of the episodes of each group. Empty: episodes with one instruction are a group.
        reporter: Shows the progress.

    Raises:
        UserError: When the folder does not exist, or a listed episode is not in it.
        DataError: When no success shows the same task as another episode.
    """
    source = load_videos(folder, reporter, None, DEFAULT_FEATURE_MAP)
    rows = {meta.name: row for row, meta in enumerate(source.meta)}
    for name in (name for group in listed for name in group):
        if name not in rows:
            raise UserError(f"{folder}: there is no episode {name}; it has {', '.join(rows)}")
    groups = [list(group) for group in listed] or names_by_instruction(source.meta)
    groups = [
        group
        for group in groups
        if len(group) > 1 and any(source.meta[rows[name]].success is not False for name in group)
    ]
    if not groups:
        raise DataError(f"{folder}: no success in it shows the same task as another episode")
    stride = demonstration_stride(min(source.meta[rows[name]].length for group in groups for name in group))
    names = [name for group in groups for name in group]
    episodes = {}
    for name in reporter.track(names, f"read {folder.name}", total=len(names)):
        episodes[name] = source.episode(rows[name], size=size, stride=stride)
    seconds = {name: source.meta[rows[name]].length / source.frame_rate(rows[name]) for name in names}
    grouped = tuple(tuple(episodes[name] for name in group) for group in groups)
    return RealSet(name=folder.name, groups=grouped, seconds=seconds)


def names_by_instruction(meta: Sequence[object]) -> list[list[str]]:
    """Return the names of the episodes of each instruction."""
    pairs = sorted((str(entry.instruction), str(entry.name)) for entry in meta)  # type: ignore[attr-defined]
    return [[name for _, name in group] for _, group in groupby(pairs, key=lambda pair: pair[0])]


def stack_views(episode: Episode, views: Sequence[str]) -> Frames:
    """Frames uint8 [T, V, H, W, 3] of an episode."""
    return np.stack([episode.views[name] for name in views], axis=1)

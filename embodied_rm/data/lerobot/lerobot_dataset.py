"""Read LeRobot datasets v3.0 and v2.1, including third-party ones: metadata at once, frames on demand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embodied_rm.data.base_dataset import BaseDataset
from embodied_rm.data.feature_map import DEFAULT_FEATURE_MAP, FeatureMap, resolve_columns
from embodied_rm.data.issues import DataIssue, affected_episodes, check_not_empty
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot import v21, v30
from embodied_rm.data.lerobot.check import StoredDataset, check_files, check_totals
from embodied_rm.data.lerobot.episode_index import EpisodeIndexRow
from embodied_rm.data.lerobot.frame_columns import add_frame_annotations
from embodied_rm.data.lerobot.image_features import ImageReader, find_views
from embodied_rm.data.lerobot.parquet import is_list_type, read_parquet
from embodied_rm.data.source import EpisodeColumns, ImageSize, check_finite
from embodied_rm.data.video.decoder import VideoDecoder
from embodied_rm.errors import DataError
from embodied_rm.types import Array, Frames, IntArray

VERSION_READERS = {fmt.MAJOR_VERSION: v30, 2: v21}


class LeRobotDataset(BaseDataset):
    """A LeRobot dataset, an `EpisodeSource`. It is opened read-only.

    Opening checks tables, totals, order, files, the frame times of every video, and its first and last frame. Episodes
    with issues are excluded and listed in `issues`. Success and subtasks of datasets of others are read where LeRobot's
    tools write them.
    """

    def __init__(
        self, path: Path | str, feature_map: FeatureMap = DEFAULT_FEATURE_MAP, instruction: str | None = None
    ) -> None:
        """Open a dataset; `instruction` is that of episodes without one, which are excluded if it is None."""
        self.path = Path(path)
        info = fmt.read_info(self.path)
        self._features: dict[str, Any] = info["features"]
        images = ImageReader()
        available, unavailable = find_views(self.path, self._features, images)
        keys = {name: available[view] for name, view in feature_map.resolve_views(available, self.path).items()}
        self._stored = StoredDataset(
            root=self.path,
            features=self._features,
            fps=float(info["fps"]),
            video_keys={view: key for view, key in keys.items() if self._features[key]["dtype"] == fmt.VIDEO},
            image_keys={view: key for view, key in keys.items() if self._features[key]["dtype"] == fmt.IMAGE},
            decoder=VideoDecoder(),
            images=images,
        )
        version_reader = VERSION_READERS[fmt.major_version(info)]
        rows, issues = version_reader.read_rows(self.path, info, self._stored.video_keys)
        num_tasks, total_issues = check_totals(self.path, info, rows, version_reader.count_tasks)
        unique_rows = list({row.index: row for row in rows}.values())
        check = check_files(self._stored, unique_rows, num_tasks, feature_map.max_drift_s)
        issues += [*total_issues, *check.issues]
        self._episode_rows = check.rows
        excluded = set(affected_episodes(issues))
        readable = [replace(row, videos=check.segments[row.index]) for row in rows if row.meta.name not in excluded]
        annotated, unread = add_frame_annotations(self.path, self._stored.fps, readable, self._episode_rows)
        self._rows, unnamed = fill_instructions(self.path, annotated, instruction)
        self.issues: tuple[DataIssue, ...] = (*unavailable, *issues, *unread, *unnamed)
        check_not_empty(self.path, self._rows, self.issues)
        self._state_columns = resolve_columns(feature_map.state, fmt.STATE_KEY, self._features, self.path)
        self._action_columns = resolve_columns(feature_map.action, fmt.ACTION_KEY, self._features, self.path)
        self.views = tuple(keys)
        self.fps = self._stored.fps
        self.meta = tuple(
            replace(row.meta, episode_index=row.index, dataset_from_index=self._episode_rows[row.index].dataset_index)
            for row in self._rows
        )
        self._cached_table: tuple[Path, pa.Table] | None = None

    def files(self, index: int) -> tuple[Path, ...]:
        row = self._rows[index]
        images = (row.videos[view].path if view in row.videos else row.data_path for view in self.views)
        return (*images, row.data_path)

    def _stored_image_size(self, index: int) -> ImageSize:
        row, view = self._rows[index], self.views[0]
        if view in row.videos:
            info = self._stored.decoder.probe(row.videos[view].path)
            return info.height, info.width
        first = self._episode_rows[row.index].file_row
        return self._stored.images.image_size(self.path, row.data_path, self._stored.image_keys[view], [first])

    def _read_view(self, index: int, view: str, frame_indices: IntArray, size: ImageSize | None) -> Frames:
        row = self._rows[index]
        if view in row.videos:
            segment = row.videos[view]
            return self._stored.decoder.read(segment.path, segment.times_of(frame_indices, self.fps), self.fps, size)
        rows = self._episode_rows[row.index].file_row + frame_indices
        return self._stored.images.read(self.path, row.data_path, self._stored.image_keys[view], rows, size)

    def columns(self, index: int) -> EpisodeColumns:
        """Progress is read only from datasets of this package, which also have subtasks."""
        row, has_progress = self._rows[index], {fmt.PROGRESS_KEY, fmt.SUBTASK_KEY} <= set(self._features)
        state, action = (
            np.concatenate([self._read_column(row, key) for key in keys], axis=1) if keys else None
            for keys in (self._state_columns, self._action_columns)
        )
        progress = self._read_progress(row) if has_progress else None
        return EpisodeColumns(state=state, action=action, progress=progress)

    def _read_progress(self, row: EpisodeIndexRow) -> Array:
        """Read the true progress of one episode, float32 [T] in [0, 1]."""
        values = self._read_column(row, fmt.PROGRESS_KEY)
        if values.shape[1] != 1 or values.min() < 0 or values.max() > 1:
            found = f"{values.shape[1]} values per frame, in [{values.min():g}, {values.max():g}]"
            raise DataError(f"{row.data_path}: progress of episode {row.index} has {found}: one in [0, 1] was expected")
        return values[:, 0]

    def _read_column(self, row: EpisodeIndexRow, key: str) -> Array:
        """Read a numeric column of one episode as float32 [T, D]."""
        table = self._load_table(row.data_path).slice(self._episode_rows[row.index].file_row, row.meta.length)
        column = table[key].combine_chunks()
        if column.null_count:
            raise DataError(f"{row.data_path}: {key} is missing in a row of episode {row.index}")
        if is_list_type(column.type):
            lengths = pc.unique(pc.list_value_length(column)).to_pylist()
            if len(lengths) > 1 or lengths == [0]:
                rows = "rows of different length" if len(lengths) > 1 else "rows without values"
                raise DataError(f"{row.data_path}: {key} has {rows} in episode {row.index}")
            column = pc.list_flatten(column)
        if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
            raise DataError(f"{row.data_path}: {key} holds {column.type}, numbers were expected")
        values = column.to_numpy(zero_copy_only=False).astype(np.float32)
        values = values.reshape(row.meta.length, -1)
        check_finite(values, f"{key} of episode {row.index}", row.data_path)
        return values

    def _load_table(self, path: Path) -> pa.Table:
        """Read the numeric columns of a data file; the last file is cached."""
        if self._cached_table is None or self._cached_table[0] != path:
            columns = dict.fromkeys((*self._state_columns, *self._action_columns, fmt.PROGRESS_KEY))
            self._cached_table = path, read_parquet(path, [key for key in columns if key in self._features])
        return self._cached_table[1]


def fill_instructions(
    path: Path, rows: Sequence[EpisodeIndexRow], instruction: str | None
) -> tuple[list[EpisodeIndexRow], list[DataIssue]]:
    """Give an instruction to the episodes without one; without it, return an issue per such episode."""
    if instruction is not None:
        filled = [replace(row, meta=replace(row.meta, instruction=row.meta.instruction or instruction)) for row in rows]
        return filled, []
    message = "has no instruction, its tasks are blank; set instruction="
    issues = [
        DataIssue(file=path, message=f"{row.meta.name} {message}", episodes=(row.meta.name,))
        for row in rows
        if not row.meta.instruction
    ]
    return [row for row in rows if row.meta.instruction], issues

"""Reads LeRobot v3.0 datasets, ours and foreign ones: metadata at once, frames on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.check import check_all, footer, read_info, read_parquet
from embodied_rm.data.lerobot.index import Row, needed_columns, to_row, video_keys
from embodied_rm.data.source import chosen_views
from embodied_rm.data.stride import kept_frames, thin_steps
from embodied_rm.data.video.decoder import Decoder
from embodied_rm.errors import DataError
from embodied_rm.types import Array, Episode, Views


class LeRobotDataset:
    """A LeRobot v3.0 folder, an `EpisodeSource`. Nothing is ever written into it.

    Opening checks the whole folder (tables, totals, order, files, every video's frames, its first and its last
    picture) and raises one `DataError` that lists what is wrong. Of foreign datasets success and steps are unknown.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._decoder = Decoder()
        info = read_info(self.path)
        self._features: dict[str, Any] = info["features"]
        keys = video_keys(self._features)
        if not keys:
            raise DataError(f"{self.path}: the dataset has no videos; features: {', '.join(self._features)}")
        self._rows = _read_rows(self.path, keys)
        check_all(self.path, info, self._rows, self._decoder)
        self.views = tuple(keys)
        self.fps = float(info["fps"])
        self.meta = tuple(row.meta for row in self._rows)
        self._cached: tuple[Path, pa.Table] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Episode]:
        return (self.episode(i) for i in range(len(self)))

    def picture_size(self, index: int) -> tuple[int, int]:
        """(height, width) at which an episode's first view is stored."""
        info = self._decoder.probe(self._rows[index].videos[self.views[0]][0])
        return info.height, info.width

    def frame_rate(self, index: int) -> float:
        """Frames a second, of all episodes."""
        return self.fps

    def moments(self, index: int, start: int, stop: int, *, views: Sequence[str], size: tuple[int, int]) -> Views:
        """Read some frames of one episode; see `EpisodeSource.moments`."""
        names, videos = chosen_views(views, self.views, str(self.path)), self._rows[index].videos
        seconds = np.arange(start, stop) / self.fps
        frames = [self._decoder.read(videos[v][0], videos[v][1] + seconds, self.fps, size) for v in names]
        return Views(names=names, frames=np.stack(frames, axis=1))

    def episode(
        self,
        index: int,
        *,
        views: Sequence[str] | None = None,
        size: tuple[int, int] | None = None,
        stride: int = 1,
    ) -> Episode:
        """Read one episode; see `EpisodeSource.episode`. Episodes read in order are decoded without seeking."""
        row = self._rows[index]
        kept = kept_frames(row.meta.length, stride)
        frames = {}
        for view in chosen_views(views, self.views, str(self.path)):
            path, start = row.videos[view]
            frames[view] = self._decoder.read(path, start + kept / self.fps, self.fps, size)
        return Episode(
            name=row.meta.name,
            views=frames,
            instruction=row.meta.instruction,
            fps=self.fps / stride,
            steps=row.meta.steps if stride == 1 else thin_steps(row.meta.steps, kept),
            success=row.meta.success,
            progress=self._column(row, fmt.PROGRESS, kept, wanted=fmt.STEP in self._features),
            state=self._column(row, fmt.STATE, kept, vector=True),
            action=self._column(row, fmt.ACTION, kept, vector=True),
            meta=row.meta.text,
        )

    def _column(
        self, row: Row, key: str, kept: np.ndarray, *, vector: bool = False, wanted: bool = True
    ) -> Array | None:
        """A numeric column of one episode, float32 [T] or [T, D]; None where the dataset has none."""
        if key not in self._features or not wanted:
            return None
        table = self._table(row.data)
        first = row.start - int(table["index"][0].as_py())
        column = table[key].slice(first, row.meta.length).combine_chunks()
        if column.null_count:
            raise DataError(f"{row.data}: {key} is missing in a row of episode {row.index}")
        if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
            column = pc.list_flatten(column)
        if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
            raise DataError(f"{row.data}: {key} holds {column.type}, numbers were expected")
        values = column.to_numpy(zero_copy_only=False).astype(np.float32)
        if len(values) % row.meta.length:
            raise DataError(f"{row.data}: {key} has rows of different length in episode {row.index}")
        return (values.reshape(row.meta.length, -1) if vector else values)[kept]

    def _table(self, path: Path) -> pa.Table:
        """The numeric columns of a data file; the last one used is kept."""
        if self._cached is None or self._cached[0] != path:
            keys = ["index", *(key for key in (fmt.STATE, fmt.ACTION, fmt.PROGRESS) if key in self._features)]
            self._cached = path, read_parquet(path, keys)
        return self._cached[1]


def _read_rows(root: Path, keys: dict[str, str]) -> list[Row]:
    """All rows of `meta/episodes`, in order of their index."""
    paths = sorted((root / "meta" / "episodes").glob("chunk-*/file-*.parquet"))
    if not paths:
        raise DataError(f"{root / 'meta' / 'episodes'}: no episodes are listed there (no chunk-*/file-*.parquet)")
    records = [record for path in paths for record in _records(path, keys)]
    try:
        rows = [to_row(root, record, keys) for record in records]
    except DataError as error:
        raise DataError(f"{root / 'meta' / 'episodes'}: {error}") from None
    return sorted(rows, key=lambda row: row.index)


def _records(path: Path, keys: dict[str, str]) -> list[dict[str, Any]]:
    schema = footer(path).schema.to_arrow_schema()
    for name, kind in needed_columns(keys).items():
        if name not in schema.names:
            raise DataError(f"{path}: column {name} is missing")
        if not _holds(schema.field(name).type, kind):
            raise DataError(f"{path}: column {name} holds {schema.field(name).type}, {kind} was expected")
    return read_parquet(path, [name for name in schema.names if not name.startswith("stats/")]).to_pylist()


def _holds(found: pa.DataType, kind: str) -> bool:
    if kind == "int64":
        return pa.types.is_integer(found)
    if kind == "double":
        return pa.types.is_floating(found)
    return pa.types.is_list(found) and (
        pa.types.is_string(found.value_type) or pa.types.is_large_string(found.value_type)
    )

"""Where everything of a LeRobot v3.0 dataset is: `meta/episodes` as rows with paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError, UserError
from embodied_rm.types import Step


@dataclass(frozen=True, kw_only=True)
class Row:
    """One episode and the files that hold it."""

    index: int
    meta: EpisodeMeta
    start: int
    """First row in the dataset's frames."""
    data: Path
    videos: Mapping[str, tuple[Path, float]]
    """View -> file, and the time in it of the first frame, s."""


def video_keys(features: Mapping[str, Any]) -> dict[str, str]:
    """View name -> feature, for every feature stored as (colour) video."""
    return {fmt.view_name(key): key for key, f in features.items() if f["dtype"] == "video" and not _is_depth(f)}


def _is_depth(feature: Mapping[str, Any]) -> bool:
    info = feature.get("info") or {}
    return bool(info.get("video.is_depth_map") or info.get("is_depth_map"))


def needed_columns(keys: Mapping[str, str]) -> dict[str, str]:
    """Columns without which `meta/episodes` cannot be read -> what they hold."""
    counts = ["episode_index", "length", "dataset_from_index", "data/chunk_index", "data/file_index"]
    counts += [f"videos/{key}/{part}_index" for key in keys.values() for part in ("chunk", "file")]
    times = [f"videos/{key}/from_timestamp" for key in keys.values()]
    return dict.fromkeys(counts, "int64") | dict.fromkeys(times, "double") | {"tasks": "list<string>"}


def to_row(root: Path, record: Mapping[str, Any], keys: Mapping[str, str]) -> Row:
    """One row of `meta/episodes` with its files. Raises `DataError` when it makes no sense in itself."""
    index = record["episode_index"]
    empty = [key for key in needed_columns(keys) if record[key] is None]
    if empty or not record["tasks"]:
        raise DataError(f"episode {index} has no {(empty or ['tasks'])[0]}")
    if record["length"] < 1:
        raise DataError(f"episode {index} has length {record['length']}")
    place = {"chunk_index": record["data/chunk_index"], "file_index": record["data/file_index"]}
    return Row(
        index=index,
        meta=_to_meta(record),
        start=record["dataset_from_index"],
        data=root / fmt.DATA_PATH.format(**place),
        videos={view: _video_place(root, record, key) for view, key in keys.items()},
    )


def _video_place(root: Path, record: Mapping[str, Any], key: str) -> tuple[Path, float]:
    chunk, file, start = (record[f"videos/{key}/{part}"] for part in ("chunk_index", "file_index", "from_timestamp"))
    return root / fmt.VIDEO_PATH.format(video_key=key, chunk_index=chunk, file_index=file), start


def _to_meta(record: Mapping[str, Any]) -> EpisodeMeta:
    index, length = record["episode_index"], record["length"]
    columns = (record.get(key) or () for key in (fmt.STEP_NAMES, fmt.STEP_STARTS, fmt.STEP_ENDS))
    try:
        steps = tuple(Step(name=n, start=a, end=b) for n, a, b in zip(*columns, strict=True))
    except (UserError, ValueError) as error:
        raise DataError(f"the steps of episode {index} make no sense ({error})") from None
    if steps and steps[-1].end > length:
        raise DataError(f"step {steps[-1].name!r} of episode {index} ends at {steps[-1].end}, after the last frame")
    success = record.get(fmt.SUCCESS)
    return EpisodeMeta(
        name=record.get(fmt.NAME) or f"episode_{index:06d}",
        length=length,
        instruction=record["tasks"][0],
        success=success if isinstance(success, bool) else None,
        steps=steps,
        text={
            key.removeprefix(fmt.TEXT): text
            for key, text in record.items()
            if key.startswith(fmt.TEXT) and text is not None
        },
    )

"""Read and check `meta/info.json` of a LeRobot dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embodied_rm.data.dataset_files import read_json
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.errors import DataError


def read_info(root: Path) -> dict[str, Any]:
    """Read `meta/info.json` and check the keys that this package uses."""
    path = root / fmt.INFO_PATH
    info: dict[str, Any] = read_json(path, "dataset description", dict)
    version = info.get("codebase_version")
    if version not in fmt.PATH_TEMPLATES:
        supported = " or ".join(map(repr, fmt.PATH_TEMPLATES))
        raise DataError(f"{path}: the dataset has LeRobot version {version!r}; only {supported} can be read")
    expected_types = {"total_episodes": int, "total_frames": int, "fps": int | float, "features": dict}
    for key, expected_type in expected_types.items():
        if not isinstance(info.get(key), expected_type) or isinstance(info[key], bool):
            raise DataError(f"{path}: {key!r} is {info.get(key)!r}")
    if "total_tasks" in info and type(info["total_tasks"]) is not int:
        raise DataError(f"{path}: 'total_tasks' is {info['total_tasks']!r}")
    if not 0 < info["fps"] < 10_000:
        raise DataError(f"{path}: fps is {info['fps']}")
    for key, template in fmt.PATH_TEMPLATES[version].items():
        if info.get(key) != template:
            raise DataError(f"{path}: {key!r} is {info.get(key)!r}; only {template!r} can be read")
    for key, feature in info["features"].items():
        if not isinstance(feature, dict) or not isinstance(feature.get("dtype"), str) or "shape" not in feature:
            raise DataError(f"{path}: feature {key!r} has no dtype and shape")
    return info


def video_keys(features: Mapping[str, Any]) -> dict[str, str]:
    """Return view name -> feature for every color video."""
    videos = {key: feature.get("info") for key, feature in features.items() if feature["dtype"] == "video"}
    return {fmt.view_name(key): key for key, info in videos.items() if not _is_depth(info)}


def _is_depth(info: Any) -> bool:
    return isinstance(info, dict) and bool(info.get("video.is_depth_map") or info.get("is_depth_map"))

"""Datasets of the Hugging Face hub, downloaded for paths `hub:owner/name`."""

import re
from pathlib import Path
from typing import NamedTuple

from embodied_rm.errors import DataError
from embodied_rm.hub_download import DEFAULT_REVISION, REPOSITORY_PATTERN, download_repository

HUB_PREFIX = "hub:"
HUB_NAME_PATTERN = re.compile(HUB_PREFIX + REPOSITORY_PATTERN)
ALLOW_PATTERNS = ("meta/**", "data/**", "videos/**")
"""Files of a LeRobot dataset; other files of the repository are not downloaded."""


def is_hub_path(path: Path) -> bool:
    """Whether a path names a dataset of the hub."""
    return str(path).startswith(HUB_PREFIX)


class HubDataset(NamedTuple):
    """A dataset on the hub."""

    repo_id: str  # owner/name
    revision: str  # branch, tag or commit


def parse_hub_dataset(path: Path) -> HubDataset:
    """Return the dataset that a path of the hub names; `DataError` for another form of name."""
    match = HUB_NAME_PATTERN.fullmatch(str(path))
    if match is None:
        raise DataError(f"{path}: a dataset of the hub is named hub:owner/name or hub:owner/name@revision")
    return HubDataset(match["repo_id"], match["revision"] or DEFAULT_REVISION)


def download_dataset(path: Path) -> Path:
    """Download the dataset `hub:owner/name` or `hub:owner/name@revision` (branch, tag or commit); return its folder.

    Cached files are not downloaded again.
    """
    repo_id, revision = parse_hub_dataset(path)
    from huggingface_hub import constants  # takes 0.3 s, see `download_repository`

    # Not the shared cache: its files are links to other folders, and readers reject links out of the dataset.
    folder = Path(constants.HF_HOME) / "embodied_rm" / repo_id.replace("/", "--") / revision.replace("/", "--")
    target, patterns = {"repo_type": "dataset", "revision": revision, "local_dir": folder}, list(ALLOW_PATTERNS)
    return download_repository(repo_id, str(path), DataError, allow_patterns=patterns, **target)

"""Datasets of the Hugging Face hub, downloaded for paths `hub:owner/name`."""

import re
from pathlib import Path

from embodied_rm.errors import DataError
from embodied_rm.hub_download import DEFAULT_REVISION, REPOSITORY_PATTERN, download_repository

HUB_PREFIX = "hub:"
HUB_NAME_PATTERN = re.compile(HUB_PREFIX + REPOSITORY_PATTERN)
ALLOW_PATTERNS = ("meta/**", "data/**", "videos/**")
"""Files of a LeRobot dataset; other files of the repository are not downloaded."""


def is_hub_path(path: Path) -> bool:
    """Whether a path names a dataset of the hub."""
    return str(path).startswith(HUB_PREFIX)


def download_dataset(path: Path) -> Path:
    """Download the dataset `hub:owner/name` or `hub:owner/name@revision` (branch, tag or commit); return its folder.

    Cached files are not downloaded again.
    """
    match = HUB_NAME_PATTERN.fullmatch(str(path))
    if match is None:
        raise DataError(f"{path}: a dataset of the hub is named hub:owner/name or hub:owner/name@revision")
    from huggingface_hub import constants  # takes 0.3 s, see `download_repository`

    repo_id, revision = match["repo_id"], match["revision"] or DEFAULT_REVISION
    # Not the shared cache: its files are links to other folders, and readers reject links out of the dataset.
    folder = Path(constants.HF_HOME) / "embodied_rm" / repo_id.replace("/", "--") / revision.replace("/", "--")
    target, patterns = {"repo_type": "dataset", "revision": revision, "local_dir": folder}, list(ALLOW_PATTERNS)
    return download_repository(repo_id, str(path), DataError, allow_patterns=patterns, **target)

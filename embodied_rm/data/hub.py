"""Datasets of the Hugging Face hub, downloaded for paths `hub:owner/name`."""

from __future__ import annotations

import re
from pathlib import Path

from embodied_rm.errors import DataError

HUB_PREFIX = "hub:"
HUB_NAME_PATTERN = re.compile(r"hub:(?P<owner>\w[\w.-]*)/(?P<name>\w[\w.-]*)(@(?P<revision>\w[\w./-]*))?")
ALLOW_PATTERNS = ("meta/**", "data/**", "videos/**")
"""Files of a LeRobot dataset; other files of the repository are not downloaded."""


def is_hub_path(path: Path) -> bool:
    """Whether a path names a dataset of the hub."""
    return str(path).startswith(HUB_PREFIX)


def download_dataset(path: Path) -> Path:
    """Download the dataset `hub:owner/name` or `hub:owner/name@revision` (branch, tag or commit); return its folder.

    Uses the hub at `HF_ENDPOINT` with the token of the hub's own tools. Cached files are not downloaded again.
    """
    match = HUB_NAME_PATTERN.fullmatch(str(path))
    if match is None or ".." in str(path):
        raise DataError(f"{path}: a dataset of the hub is named hub:owner/name or hub:owner/name@revision")
    # Imported here because the import takes 0.3 s, which only commands that use the hub should pay.
    import httpx
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    owner, name, revision = match["owner"], match["name"], match["revision"] or "main"
    # Not the shared cache: its files are links to other folders, and readers reject links out of the dataset.
    folder = Path(constants.HF_HOME) / "embodied_rm" / f"{owner}--{name}" / revision.replace("/", "--")
    try:
        snapshot_download(
            f"{owner}/{name}",
            repo_type="dataset",
            revision=revision,
            local_dir=folder,
            allow_patterns=list(ALLOW_PATTERNS),
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, httpx.HTTPError, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: cannot be downloaded: {reason}") from error
    return folder

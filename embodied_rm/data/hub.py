"""Datasets of the Hugging Face hub: fetched where one is named `hub:owner/name`, and never else."""

from __future__ import annotations

import re
from pathlib import Path

from embodied_rm.errors import DataError

HUB_PREFIX = "hub:"
HUB_NAME_PATTERN = re.compile(r"hub:(?P<owner>\w[\w.-]*)/(?P<name>\w[\w.-]*)(@(?P<revision>\w[\w./-]*))?")
ALLOW_PATTERNS = ("meta/**", "data/**", "videos/**")
"""What a LeRobot dataset is made of; nothing else of a repository is fetched."""


def is_hub_path(path: Path) -> bool:
    """Whether a dataset is named by its place on the hub."""
    return str(path).startswith(HUB_PREFIX)


def download_dataset(path: Path) -> Path:
    """The folder of the dataset `hub:owner/name` or `hub:owner/name@revision` (branch, tag or commit), fetched into the
    cache of the hub; what is there already is not fetched again.

    Asks the hub that `HF_ENDPOINT` names, with the token that its own tools would use. Raises `DataError` for what is
    no such name, and with what the hub says where it cannot be had.
    """
    match = HUB_NAME_PATTERN.fullmatch(str(path))
    if match is None or ".." in str(path):
        raise DataError(f"{path}: a dataset of the hub is named hub:owner/name or hub:owner/name@revision")
    # Here: three hundred milliseconds that no command but one which reads from the hub should wait for.
    import httpx
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    owner, name, revision = match["owner"], match["name"], match["revision"] or "main"
    # A folder of its own: the shared cache links its files to elsewhere, and readers refuse links that lead out.
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
        raise DataError(f"{path}: cannot be fetched: {reason}") from error
    return folder

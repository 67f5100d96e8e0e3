"""Checkpoints on the Hugging Face Hub: their names and their download."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from embodied_rm.checkpoint_io import CARD_FILE, MANIFEST_NAME, list_files, read_manifest
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.hub_download import DEFAULT_REVISION, REPOSITORY_PATTERN, download_repository

HUB_PREFIX = "hf:"
HUB_NAME_PATTERN = re.compile(HUB_PREFIX + REPOSITORY_PATTERN + r"(#sha256=(?P<manifest_sha256>[0-9a-f]{64}))?")


@dataclass(frozen=True, kw_only=True)
class HubCheckpoint:
    """A checkpoint on the Hugging Face Hub."""

    repo_id: str
    """`owner/name`."""
    revision: str = DEFAULT_REVISION
    """Branch, tag or commit."""
    manifest_sha256: str | None = None
    """The SHA-256 that its manifest must have. None: any."""


def is_hub_checkpoint(source: str | Path) -> bool:
    """Whether a name is that of a checkpoint on the hub."""
    return str(source).startswith(HUB_PREFIX)


def parse_hub_checkpoint(source: str) -> HubCheckpoint:
    """Return the checkpoint that a name stands for; `UserError` for another form of name."""
    match = HUB_NAME_PATTERN.fullmatch(source)
    if match is None:
        raise UserError(
            f"{source}: a model of the hub is named hf:owner/name, hf:owner/name@revision or "
            "hf:owner/name@revision#sha256=<64 lowercase hexadecimal digits>"
        )
    return HubCheckpoint(**{"revision": DEFAULT_REVISION, **{k: v for k, v in match.groupdict().items() if v}})


def download_checkpoint(source: str) -> Path:
    """Download a checkpoint, or find it in the cache; return its folder.

    Only the files that its manifest lists are downloaded, and its card. Where the hub does not answer, a branch or tag
    is the one that was downloaded last.

    Args:
        source: `hf:owner/name`, with `@revision` and `#sha256=` as the user requires.

    Returns:
        The folder. Loading checks every file against the manifest.

    Raises:
        UserError: For a name of another form.
        CheckpointError: When the download fails, or the manifest is absent, damaged or not the one that is required.
    """
    checkpoint = parse_hub_checkpoint(source)
    download = partial(download_repository, checkpoint.repo_id, source, CheckpointError)
    folder = download(allow_patterns=[MANIFEST_NAME], revision=checkpoint.revision)
    if not (folder / MANIFEST_NAME).is_file():
        raise CheckpointError(f"{source}: the repository has no {MANIFEST_NAME}, so it holds no model of embodied_rm")
    manifest = read_manifest(folder)
    if checkpoint.manifest_sha256 not in (None, manifest["manifest_sha256"]):
        raise CheckpointError(
            f"{source}: the manifest on the hub has the SHA-256 {manifest['manifest_sha256']}, so nothing is loaded"
        )
    # The cache names the folder after the commit: a push between the two downloads cannot mix two versions.
    return download(allow_patterns=[MANIFEST_NAME, *list_files(folder), CARD_FILE], revision=folder.name)

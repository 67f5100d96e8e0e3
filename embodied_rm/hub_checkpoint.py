"""Checkpoints on the Hugging Face Hub: their names, download and upload."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from embodied_rm.checkpoint_io import CARD_FILE, MANIFEST_NAME, list_files, read_checkpoint, read_manifest
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.hub_download import DEFAULT_REVISION, REPOSITORY_PATTERN, convert_hub_errors, download_repository

HUB_PREFIX = "hf:"
HUB_NAME_PATTERN = re.compile(HUB_PREFIX + REPOSITORY_PATTERN + r"(#sha256=(?P<manifest_sha256>[0-9a-f]{64}))?")
STALE_PATTERN = re.compile(r"tensors-[0-9a-f]{16}\.safetensors")
"""Names that only files of checkpoints have; those of the previous version are deleted by the next one."""


@dataclass(frozen=True, kw_only=True)
class HubCheckpoint:
    """A checkpoint on the Hugging Face Hub. Its `str()` is what `load_reward_model` and `checkpoint=` take."""

    repo_id: str
    """`owner/name`."""
    revision: str = DEFAULT_REVISION
    """Branch, tag or commit."""
    manifest_sha256: str | None = None
    """The SHA-256 that its manifest must have. None: any."""

    def __str__(self) -> str:
        pin = "" if self.manifest_sha256 is None else f"#sha256={self.manifest_sha256}"
        return f"{HUB_PREFIX}{self.repo_id}@{self.revision}{pin}"

    @property
    def url(self) -> str:
        """Its page on the hub."""
        from huggingface_hub import constants  # takes 0.3 s, see `download_repository`

        return f"{constants.ENDPOINT}/{self.repo_id}/tree/{self.revision}"


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


def push_checkpoint(folder: Path, card: str, target: HubCheckpoint, *, private: bool | None = None) -> HubCheckpoint:
    """Upload a checkpoint in one commit: its manifest, the files that this lists, and a card.

    Args:
        folder: A checkpoint folder. No other file in it is uploaded.
        card: The model card, Markdown with front matter.
        target: Repository and branch, which are created if they are absent.
        private: Whether a new repository is private. None: as the owner's settings say.

    Returns:
        The checkpoint at its commit.

    Raises:
        CheckpointError: When a file of the checkpoint is absent or damaged.
        UserError: When the hub does not answer, or rejects the upload.
    """
    files = {**read_checkpoint(folder), CARD_FILE: card.encode()}
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    api, repo_id, branch = HfApi(), target.repo_id, target.revision
    additions = [CommitOperationAdd(name, content) for name, content in files.items()]
    with convert_hub_errors(f"{repo_id}: cannot be pushed", UserError):
        api.create_repo(repo_id, private=private, exist_ok=True)
        if branch != DEFAULT_REVISION:
            api.create_branch(repo_id, branch=branch, exist_ok=True)
        names = set(api.list_repo_files(repo_id, revision=branch)) - set(files)
        deletions = [CommitOperationDelete(name) for name in names if STALE_PATTERN.fullmatch(name)]
        commit = api.create_commit(
            repo_id, [*additions, *deletions], commit_message="Upload reward model", revision=branch
        )
    return replace(target, revision=commit.oid)

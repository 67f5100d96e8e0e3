"""Upload a checkpoint folder to the Hugging Face Hub, with its card or a new one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from embodied_rm.checkpoint_io import CARD_FILE, read_manifest
from embodied_rm.errors import CheckpointError, DataError
from embodied_rm.hub_checkpoint import HUB_PREFIX, HubCheckpoint, parse_hub_checkpoint, push_checkpoint
from embodied_rm.models.reward_model import InputSpec
from embodied_rm.report.checkpoint_card import complete_card
from embodied_rm.text_file import read_text


def push_folder(
    folder: Path,
    card: str | None,
    input_spec: InputSpec,
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
) -> HubCheckpoint:
    """Upload a checkpoint folder; see `push_checkpoint`.

    Args:
        folder: The checkpoint folder.
        card: The card of the model, which gets a head if it has none. None: a new one is written.
        input_spec: The views and the image size of the model, for a new card.
        repo_id: `owner/name` of the repository, which is created if it is absent.
        private: Whether a new repository is private. None: as the owner's settings say.
        revision: The branch, which is created if it is absent. None: main.

    Returns:
        The checkpoint at its commit, with the SHA-256 of its manifest.

    Raises:
        CheckpointError: When a file of the checkpoint is absent or damaged.
        UserError: When the name has another form, or the hub does not answer or rejects the upload.
    """
    manifest = read_manifest(folder)
    target = parse_hub_checkpoint(f"{HUB_PREFIX}{repo_id}" if revision is None else f"{HUB_PREFIX}{repo_id}@{revision}")
    target = replace(target, manifest_sha256=manifest["manifest_sha256"])
    full_card = complete_card(card, manifest, str(target), input_spec.views, input_spec.image_size)
    return push_checkpoint(folder, full_card, target, private=private)


def read_card(folder: Path) -> str | None:
    """Return the card of a checkpoint folder; None where there is none. `CheckpointError` if it is no text."""
    path = folder / CARD_FILE
    if not path.is_file():
        return None
    try:
        return read_text(path)
    except (OSError, DataError) as error:
        raise CheckpointError(f"{path}: cannot be read as text ({error})") from None

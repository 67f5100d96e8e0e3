"""Load a reward model: the bundled one, one from a folder, or one from the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path

from embodied_rm.api.progress_reward_model import ProgressRewardModel
from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.errors import CheckpointError
from embodied_rm.hub_download import download_repository
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.paths import resolve_reward_model

HUB_PREFIX = "hf:"
CHECKPOINT_PATTERNS = ("manifest.json", "tensors-*.safetensors", "*.onnx")
"""Files of a repository that are downloaded. All of them are data."""


def load_reward_model(source: str | Path | None = None) -> ProgressRewardModel:
    """Load a reward model. Nothing that is read can run code.

    Args:
        source: None: the bundled model, which knows the views front, side and wrist of the simulated tabletop tasks. A
            checkpoint folder, or the run folder of a training. Or "hf:owner/name", a model on the Hugging Face Hub.

    Returns:
        The model, in eval mode on the CPU.

    Raises:
        UserError: When the folder holds no model.
        CheckpointError: When a checkpoint is damaged, or cannot be downloaded.
    """
    if isinstance(source, str) and source.startswith(HUB_PREFIX):
        name, patterns = source.removeprefix(HUB_PREFIX), list(CHECKPOINT_PATTERNS)
        folder = download_repository(name, source, CheckpointError, allow_patterns=patterns)
    else:
        folder = resolve_reward_model(None if source is None else Path(source))
    return ProgressRewardModel(load_progress_net(folder), read_manifest(folder)["facts"])

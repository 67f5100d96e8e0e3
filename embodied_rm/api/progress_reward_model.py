"""The reward model that `embodied_rm.load_reward_model` and `embodied_rm.train` return."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embodied_rm.api.base_reward_model import BaseRewardModel, check_overwrite
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.progress_net import ProgressNet


class ProgressRewardModel(BaseRewardModel[ProgressNet]):
    """A trained progress reward model: score, evaluate, audit, save.

    It is a `RewardModel` too (`reset`, `step`), so that environments and services take it as it is.
    """

    def __init__(self, net: ProgressNet, metadata: Mapping[str, Any] | None = None) -> None:
        """
        Args:
            net: The network.
            metadata: What its checkpoint states about it: the data it was trained on, their hashes.
        """
        super().__init__(net)
        self.metadata = dict(metadata or {})

    @property
    def net(self) -> ProgressNet:
        """The network."""
        return self.model

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write a checkpoint: safetensors and a JSON manifest with SHA-256 sums.

        Args:
            folder: Where to write it; `load_reward_model` and `checkpoint=` read it.
            overwrite: Replace the checkpoint that is in the folder.

        Raises:
            UserError: When the folder holds something and `overwrite` is not set.
            CheckpointError: When a weight is not finite.
        """
        check_overwrite(Path(folder), overwrite=overwrite)
        save_progress_net(folder, self.net, self.metadata)

"""The reward model that `embodied_rm.load_reward_model` and `embodied_rm.train` return."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embodied_rm.api.base_reward_model import BaseRewardModel
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.progress_net import ProgressNet


class ProgressRewardModel(BaseRewardModel[ProgressNet]):
    """A trained progress reward model: score, evaluate, audit, save, push to the hub.

    It is a `RewardModel` too (`reset`, `step`), so that environments and services take it as it is. One that was
    exported to ONNX cannot be saved: copy its folder, or `embodied-rm push` it.
    """

    def __init__(self, net: ProgressNet, metadata: Mapping[str, Any] | None = None, card: str | None = None) -> None:
        """
        Args:
            net: The network.
            metadata: What its checkpoint states about it: the data it was trained on, their hashes.
            card: Its model card, Markdown. None: it has none.
        """
        super().__init__(net, metadata, card)

    @property
    def net(self) -> ProgressNet:
        """The network."""
        return self.model

    def _write_checkpoint(self, folder: Path) -> None:
        save_progress_net(folder, self.net, self.metadata)

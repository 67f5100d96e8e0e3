"""The reward model in LeRobot: rewards of batches, which are the progress of episodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from lerobot.configs.rewards import RewardModelConfig
from lerobot.rewards.pretrained import PreTrainedRewardModel
from lerobot.utils.constants import OBS_IMAGE, OBS_IMAGES
from torch import Tensor

from embodied_rm.api.local_client import to_views
from embodied_rm.api.sources import load_reward_model
from embodied_rm.data.lerobot.format import view_name
from embodied_rm.errors import UserError
from embodied_rm.lerobot.configuration_embodied_rm import EmbodiedRMConfig
from embodied_rm.models.encoders import resize_frames
from embodied_rm.models.reward_model import RewardState, first_outputs
from embodied_rm.models.subgoals import SubgoalRewardModel
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.types import RewardOutput, Views

TASK_KEY = "task"
CLIP_DIMENSIONS = 5  # of [B, T, C, H, W]


class EmbodiedRMRewardModel(PreTrainedRewardModel):
    """A reward model of `embodied_rm.load_reward_model`, which follows episodes from their first frames."""

    config_class = EmbodiedRMConfig
    name = "embodied_rm"

    def __init__(
        self,
        config: EmbodiedRMConfig,
        checkpoint: str | Path | None = None,
        dataset_stats: object = None,
        dataset_meta: object = None,
    ) -> None:
        """Load the model.

        Args:
            config: Its configuration.
            checkpoint: As for `load_reward_model`.
            dataset_stats: Unused, since the model scales its images itself; LeRobot's trainer passes it.
            dataset_meta: As `dataset_stats`.

        Raises:
            UserError: There is no such model.
            CheckpointError: The checkpoint is damaged, or cannot be downloaded.
        """
        super().__init__(config)
        self.reward_model = load_reward_model(checkpoint)
        self.net = self.reward_model.model  # an attribute of its own, so that `to` moves its parameters
        rule = RewardConfig.success_threshold, RewardConfig.success_patience
        self._follower = SubgoalRewardModel(self.reward_model, *rule)
        self.reset()

    @classmethod
    def from_pretrained(
        cls,
        pretrained_name_or_path: str | Path,
        *,
        config: RewardModelConfig | None = None,
        revision: str | None = None,
        **options: Any,
    ) -> EmbodiedRMRewardModel:
        """Load the model from any source of `load_reward_model`; without `config`, from a folder that holds one."""
        config = config or RewardModelConfig.from_pretrained(pretrained_name_or_path)
        checkpoint = f"{pretrained_name_or_path}@{revision}" if revision else pretrained_name_or_path
        return cls(config, checkpoint, **options).to(config.device)

    def _save_pretrained(self, save_directory: Path) -> None:
        self.reward_model.save(save_directory, overwrite=True)
        self.config._save_pretrained(save_directory)

    def reset(self) -> None:
        """Forget the running episodes: the next frames are the first ones of new episodes."""
        self._state: RewardState | None = None

    def compute_reward(self, batch: dict[str, Any]) -> Tensor:
        """Return the progress of B episodes at their last frames, float32 [B] in [0, 1].

        Args:
            batch: `observation.images.<view>` [B, C, H, W], the next frames of the episodes that run since `reset`, or
                [B, T, C, H, W], clips from the first frames of episodes; uint8, or float in [0, 1]. And `task`, the B
                instructions, which are read with first frames.

        Raises:
            UserError: The batch has no view that the model knows, no instructions, another number of episodes than
                those that run, images of other shapes, or views that differ in their number.
        """
        images = {view_name(key): value for key, value in batch.items() if is_image(key)}
        if not images or TASK_KEY not in batch:
            raise UserError(f"a batch needs observation.images.<view> and task, got {', '.join(batch)}")
        spec = self.reward_model.input_spec
        images = {view: images[view] for view in spec.select_views(images, "the batch")}
        clips = {view: to_clips(view, value, spec.image_size) for view, value in images.items()}
        if len({value.shape[:-3] for value in images.values()}) != 1:
            shapes = ", ".join(f"{view} {list(value.shape)}" for view, value in images.items())
            raise UserError(f"all views must show the same frames of the same episodes, got {shapes}")
        is_clip = next(iter(images.values())).ndim == CLIP_DIMENSIONS
        state = None if is_clip else self._state
        for t in range(next(iter(clips.values())).shape[1]):
            frames = to_views({view: clip[:, t] for view, clip in clips.items()}, accepts_tensors=False)
            output, state = self._score(state, frames, batch[TASK_KEY])
        if not is_clip:
            self._state = state
        return torch.from_numpy(output.progress).to(self.config.device)

    def _score(
        self, state: RewardState | None, frames: Views, instructions: Sequence[str]
    ) -> tuple[RewardOutput, RewardState]:
        if state is not None:
            return self._follower.step(state, frames)
        state = self._follower.reset(frames, instructions)
        return first_outputs(self._follower, state), state


def is_image(key: str) -> bool:
    """Return whether a key of a batch holds images; those of padding masks end in `_is_pad`."""
    return (key == OBS_IMAGE or key.startswith(f"{OBS_IMAGES}.")) and not key.endswith("_is_pad")


def to_clips(view: str, images: Tensor, size: tuple[int, int] | None) -> npt.NDArray[np.uint8]:
    """Return images of a view as uint8 [B, T, H, W, 3], resized to a size unless it is None.

    They are [B, C, H, W] or [B, T, C, H, W], uint8 or float in [0, 1]; `UserError` for another shape.
    """
    if images.ndim not in (CLIP_DIMENSIONS - 1, CLIP_DIMENSIONS) or images.shape[-3] != 3:
        shape = list(images.shape)
        raise UserError(f"images of view {view!r} must be [B, 3, H, W] or [B, T, 3, H, W], got {shape}")
    if images.is_floating_point():
        images = (images * 255).round().clamp(0, 255).byte()
    clips = images if images.ndim == CLIP_DIMENSIONS else images[:, None]
    frames = clips.movedim(-3, -1).flatten(0, 1).cpu().numpy()
    frames = frames if size is None else resize_frames(frames, size)
    return frames.reshape(*clips.shape[:2], *frames.shape[1:])

"""SARM (arXiv 2509.25358) in LeRobot's layout: stage and progress of a window of CLIP embeddings of one camera."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import numpy as np
import torch
import transformers
from torch import Tensor

from embodied_rm.client.arrays import to_numpy
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.judges.local import load_processor
from embodied_rm.models.load_pretrained import load_pretrained
from embodied_rm.models.released.sarm_net import load_sarm
from embodied_rm.models.reward_model import (
    Capabilities,
    Demonstration,
    InputSpec,
    RewardState,
    check_reset,
    check_step,
    make_plain_output,
)
from embodied_rm.models.tensor_state import TensorState
from embodied_rm.models.view_fusion import visible_views
from embodied_rm.types import Array, BoolArray, Frames, RewardOutput, Views


@dataclass(frozen=True, kw_only=True)
class SarmState(TensorState):
    """State of `SarmJudge`."""

    images: Tensor  # embeddings of the latest frames, the current one last; float [N, frames, D]
    text: Tensor  # embedding of the instruction, float [N, D]
    progress: Tensor  # progress of the last scored frame, float [N]
    started: Tensor  # whether the camera was visible before, bool [N]

    def __len__(self) -> int:
        return len(self.progress)

    def potential(self) -> Array:
        """float32 [N]: the last progress."""
        return self.progress.cpu().numpy()


class SarmJudge:
    """A `RewardModel` with a SARM. It predicts no success, ignores goal images and demonstrations, and gets no states.

    A window reaches as far into the future as into the past. Future frames are the current one, as in LeRobot's
    windows at the end of an episode, so that a score depends on past frames only.
    """

    def __init__(
        self, folder: Path, base_model: Path, input_spec: InputSpec | None = None, *, device: str = "cpu"
    ) -> None:
        """Load the released files, and the CLIP in `base_model`; `CheckpointError` if a file is not as released."""
        self.input_spec, self._device = input_spec or InputSpec(), device
        self.capabilities = Capabilities(predicts_success=False, serializable_state=True)
        self.net = load_sarm(folder).to(device).eval()
        self.config = self.net.config
        self.clip, missing = load_pretrained(transformers.CLIPModel, base_model, "cannot be loaded as CLIP")
        if missing or (dim := self.clip.config.projection_dim) != self.config.image_dim:
            reason = f"{missing[0]} is missing" if missing else f"its embeddings have dimension {dim}"
            raise CheckpointError(f"{base_model}: {reason}; SARM needs a CLIP of dimension {self.config.image_dim}")
        self.clip.to(device).eval()
        self.processor: Any = load_processor(base_model, "its processor cannot be loaded")

    @property
    def num_past_frames(self) -> int:
        """Number of frames between the first one of a window and the current one."""
        return self.config.n_obs_steps // 2 * self.config.frame_gap

    def reset(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Demonstration | None = None,
    ) -> SarmState:
        """Start N episodes at their first frames. Frames before them are the first ones, as in LeRobot's windows."""
        check_reset(len(views), instructions)
        frames, visible = self.camera_frames(views)
        images = self.encode_images(frames)[:, None].expand(-1, self.num_past_frames + 1, -1)
        progress, text = torch.zeros(len(views), device=self._device), self.encode_text(instructions)
        return SarmState(images=images, text=text, progress=progress, started=self._to_tensor(visible))

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, SarmState]:
        """Score one new frame per row; where the camera is not visible, the frame before counts again, unscored."""
        assert isinstance(state, SarmState)
        check_step(len(state), len(views))
        frames, is_visible = self.camera_frames(views)
        visible, current = self._to_tensor(is_visible), self.encode_images(frames)[:, None]
        latest = torch.where(visible[:, None, None], current, state.images[:, -1:])
        shifted = torch.cat([state.images[:, 1:], latest], dim=1)
        images = torch.where(state.started[:, None, None], shifted, current)
        progress = torch.where(visible, self.predict_progress(images, state.text), state.progress)
        new_state = replace(state, images=images, progress=progress, started=state.started | visible)
        success = np.full(len(views), np.nan, np.float32)
        return make_plain_output(new_state.potential(), is_visible, success), new_state

    @torch.inference_mode()
    def predict_progress(self, images: Tensor, text: Tensor) -> Tensor:
        """Return the progress [N] at the last of `num_past_frames` + 1 frames [N, frames, D]."""
        num_steps = self.config.n_obs_steps // 2
        past = images[:, :: self.config.frame_gap]
        return self.net(torch.cat([past, past[:, -1:].expand(-1, num_steps, -1)], dim=1), text)[:, num_steps]

    def camera_frames(self, views: Views) -> tuple[Frames, BoolArray]:
        """Return the images of the camera, uint8 [N, H, W, 3], and whether each is visible, bool [N].

        It is the first view of the input specification, else the one that the model was trained on, else the only one.
        """
        only_name = views.names if len(views.names) == 1 else ()
        candidates = self.input_spec.views or (self.config.image_key.split(".")[-1], *only_name)
        name = next((name for name in candidates if name in views.names), None)
        if name is None:
            raise UserError(f"SARM takes one view: set judge.views=[...] to one of {', '.join(views.names)}")
        index = views.names.index(name)
        frames = to_numpy(views.frames)
        return frames[:, index], visible_views(views)[:, index]

    @torch.inference_mode()
    def encode_images(self, frames: Frames) -> Tensor:
        """Return the embeddings [N, D] of images uint8 [N, H, W, 3]."""
        inputs = self.processor(images=list(frames), return_tensors="pt").to(self._device)
        return self.clip.get_image_features(**inputs).pooler_output

    @torch.inference_mode()
    def encode_text(self, instructions: Sequence[str]) -> Tensor:
        """Return the embeddings [N, D] of instructions."""
        inputs = self.processor(text=list(instructions), return_tensors="pt", padding=True, truncation=True)
        return self.clip.get_text_features(**inputs.to(self._device)).pooler_output

    def _to_tensor(self, mask: BoolArray) -> Tensor:
        return torch.from_numpy(mask).to(self._device)

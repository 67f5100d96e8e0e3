"""A reward model of this process, with the interface of the service's client."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from embodied_rm.client.arrays import is_tensor, to_numpy
from embodied_rm.client.episode_scorer import ShapingConfig
from embodied_rm.client.wire import Frames, RewardPrediction
from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import RewardModel, RewardState, first_outputs
from embodied_rm.models.subgoals import SubgoalRewardModel
from embodied_rm.types import Views


class LocalClient:
    """A `RewardClient` without a service: a model of this process answers, without HTTP and without a copy.

    Environments are numbered from 0. The state of each episode stays here.
    """

    def __init__(
        self,
        model: RewardModel,
        success_threshold: float | None = ShapingConfig.success_threshold,
        success_patience: int = ShapingConfig.success_patience,
    ) -> None:
        """
        Args:
            model: A reward model, for example of `load_reward_model`.
            success_threshold: Success probability in (0, 1] from which a sub-goal of an instruction counts as done.
                None: as fitted for the model, else 0.5.
            success_patience: Consecutive such predictions that make the sub-goal done, at least 1.
        """
        self.model = SubgoalRewardModel(model, success_threshold, success_patience)
        self._capabilities = model.capabilities
        self._state: RewardState | None = None

    def get_metadata(self) -> dict[str, Any]:
        """The model's parameters, as `/v1/metadata` of a service gives them."""
        names = ("predicts_success", "success_threshold")
        parameters = {name: getattr(self._capabilities, name) for name in names}
        return {"parameters": {**parameters, "supports_restore": False}}

    def reset(
        self,
        env_ids: Sequence[int],
        episode_ids: Sequence[int],
        instructions: Sequence[str],
        frames: Frames,
        *,
        return_state: bool = False,
    ) -> RewardPrediction:
        """Start an episode in each environment, at its first frame; the first call starts all of them."""
        state = self.model.reset(to_views(frames, self._capabilities.accepts_tensors), instructions)
        if self._state is None:
            if list(env_ids) != list(range(len(env_ids))):
                raise UserError(f"the first reset starts every environment, got {list(env_ids)}")
            self._state = state
        else:
            self._state = self._state.put(np.array(env_ids), state)
        return RewardPrediction(**vars(first_outputs(self.model, state)), state=None)

    def step(
        self,
        env_ids: Sequence[int],
        episode_ids: Sequence[int],
        steps: Sequence[int],
        frames: Frames,
        *,
        return_state: bool = False,
    ) -> RewardPrediction:
        """Score one more frame of each environment."""
        if self._state is None:
            raise UserError("an environment was stepped that was never reset")
        rows = np.array(env_ids)
        output, state = self.model.step(self._state.take(rows), to_views(frames, self._capabilities.accepts_tensors))
        self._state = self._state.put(rows, state)
        return RewardPrediction(**vars(output), state=None)

    def end(self, env_ids: Sequence[int], episode_ids: Sequence[int]) -> None:
        """Forget the episodes. Their states are overwritten by the next reset."""


def to_views(frames: Frames, accepts_tensors: bool) -> Views:
    """Frames by view, uint8 [N, H, W, 3], as `Views`: tensors stay on their device if the model accepts them.

    Raises `UserError` where the views differ in size, or hold no images.
    """
    keeps_tensors = accepts_tensors and all(map(is_tensor, frames.values()))
    images: list[Any] = [view if keeps_tensors else to_numpy(view) for view in frames.values()]
    shapes = {name: tuple(view.shape) for name, view in zip(frames, images, strict=True)}
    if len(set(shapes.values())) != 1:
        raise UserError(f"the views of a step must have one shape [N, H, W, 3], got {shapes}")
    if len(images[0].shape) != 4 or images[0].shape[-1] != 3 or str(images[0].dtype).split(".")[-1] != "uint8":
        raise UserError(f"frames must be uint8 [N, H, W, 3], got {images[0].dtype} {list(images[0].shape)}")
    stacked = torch.stack(images, dim=1) if is_tensor(images[0]) else np.stack(images, axis=1)
    return Views(names=tuple(frames), frames=stacked)

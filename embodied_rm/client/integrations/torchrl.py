"""The learned reward as a transform of torchrl's environments."""

from __future__ import annotations

import warnings
from typing import Any, Optional

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from tensordict import TensorDictBase
from torchrl.data import Composite, TensorSpec, Unbounded
from torchrl.envs import AutoResetEnv, Compose, EnvBase, Transform, TransformedEnv, VecGymEnvTransform

from ..arrays import like, to_numpy
from ..episode_reward import BoolArray, RowIndices
from ..episode_scorer import ENV_SUCCESS, EpisodeScorer, ShapingConfig
from ..frame_getters import FrameGetter
from ..instructions import Instructions, resolve_instructions
from ..reward_client import RewardClient
from ..vector_reward import check_model_ends
from ..wire import Array, Frames

POTENTIAL_KEY, SUCCESS_KEY = "potential", "predicted_success"


class LearnedRewardTransform(Transform):
    """The reward of a torchrl environment plus progress, as potential-based shaping.

    torchrl resets ended rows after the step, so the frames of a terminal state are in its own next observation. The
    transform adds entries of the shape of "done": `potential`, of the state, and `predicted_success`, whether the model
    predicted success often enough in a row. Append it after the transforms that end episodes, such as `StepCounter`,
    and before those that change images.
    """

    def __init__(
        self,
        client: RewardClient,
        shaping: ShapingConfig,
        *,
        get_frames: FrameGetter,
        instructions: Instructions,
        success_source: str = ENV_SUCCESS,
    ) -> None:
        """Create a transform of one environment, of any batch size.

        Args:
            client: Client of a reward service.
            shaping: Settings of the reward.
            get_frames: Getter of the current frames, from the base environment or a TensorDict [N] of the state, whose
                rows are those of the batch in order.
            instructions: Instruction of each row.
            success_source: "environment": its rewards and ends stay. "model": its rewards are ignored; sustained
                success according to the model terminates the episode and earns `shaping.success_reward`.
        """
        super().__init__()
        self.scorer: Optional[EpisodeScorer] = None
        self._client, self._shaping, self._success_source = client, shaping, success_source
        self._get_frames, self._instructions = get_frames, instructions

    def set_container(self, container: Any) -> None:
        """Set the environment whose episodes are scored from now on."""
        super().set_container(container)
        self.scorer = None

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Raise `ValueError`: a batch of a replay buffer is no running episode."""
        raise ValueError("LearnedRewardTransform scores running episodes: append it to an environment")

    def transform_reward_spec(self, reward_spec: Composite) -> Composite:
        """Return the spec with a reward of floating-point numbers without bounds."""
        spec = reward_spec[self.parent.reward_key]
        dtype = spec.dtype if spec.dtype.is_floating_point else torch.float32
        reward_spec[self.parent.reward_key] = Unbounded(shape=spec.shape, device=spec.device, dtype=dtype)
        return reward_spec

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        """Return the spec with the entries that the transform adds."""
        done_spec = read_done_spec(self.parent)
        observation_spec[POTENTIAL_KEY] = Unbounded(shape=done_spec.shape, device=done_spec.device)
        observation_spec[SUCCESS_KEY] = done_spec.clone()
        return observation_spec

    def _reset(self, tensordict: TensorDictBase, tensordict_reset: TensorDictBase) -> TensorDictBase:
        """Open new episodes in the rows of "_reset", or in all rows."""
        env = self.parent.base_env
        if self.scorer is None:
            check_resets(self.container, self._success_source)
            num_envs = self.parent.batch_size.numel()
            self.scorer = EpisodeScorer(self._client, num_envs, self._shaping, self._success_source)
        done = tensordict_reset["done"]
        rows = np.flatnonzero(read_mask(tensordict, "_reset", done))
        instructions = resolve_instructions(self._instructions, env, done.numel())
        frames = self._get_frames(env, to_rows(tensordict_reset), rows)
        self.scorer.reset(rows, [instructions[row] for row in rows.tolist()], frames)
        tensordict_reset.set(POTENTIAL_KEY, like(done, self.scorer.potential))
        return tensordict_reset.set(SUCCESS_KEY, torch.zeros_like(done))

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        """Replace the reward, and the ends if the model decides on them."""
        if self.scorer is None:
            raise ValueError("the environment was stepped before its first reset")
        reward, done = next_tensordict[self.parent.reward_key], next_tensordict["done"]
        terminated = to_numpy(next_tensordict["terminated"]).reshape(-1)
        truncated = to_numpy(next_tensordict.get("truncated", done & ~next_tensordict["terminated"])).reshape(-1)
        valid_transition = read_mask(tensordict, "_step", done)
        flat = to_rows(next_tensordict)

        def next_frames(rows: RowIndices) -> Frames:
            frames = self._get_frames(self.parent.base_env, flat, rows)
            warn_of_blank_frames(frames, (terminated | truncated)[rows])
            return frames

        flags = terminated, truncated, valid_transition
        step = self.scorer.step(next_frames, to_numpy(reward).reshape(-1), *flags)
        entries = {
            POTENTIAL_KEY: step.transitions.next_potential,
            SUCCESS_KEY: step.predicted_success,
            "terminated": step.transitions.terminated,
            "truncated": truncated & ~step.transitions.is_success,
            "done": terminated | truncated | step.transitions.is_success,
        }
        for key in (POTENTIAL_KEY, SUCCESS_KEY, *self.parent.full_done_spec.keys()):
            next_tensordict.set(key, like(done, entries[key]))
        return next_tensordict.set(self.parent.reward_key, like(reward, np.where(valid_transition, step.reward, 0.0)))


def wrap_env(env: EnvBase, client: RewardClient, shaping: ShapingConfig, **options: Any) -> TransformedEnv:
    """Return an environment with a learned reward; the arguments are those of `LearnedRewardTransform`."""
    return TransformedEnv(env, LearnedRewardTransform(client, shaping, **options), auto_unwrap=False)


def to_rows(tensordict: TensorDictBase) -> TensorDictBase:
    """Return a TensorDict with one batch dimension, [N]."""
    return tensordict.reshape(tensordict.batch_size.numel())


def read_mask(tensordict: TensorDictBase, key: str, done: torch.Tensor) -> BoolArray:
    """Return the rows of a mask, bool [N]: all rows if the TensorDict has none."""
    return to_numpy(tensordict.get(key, torch.ones_like(done))).astype(bool).reshape(-1)


def read_done_spec(env: EnvBase) -> TensorSpec:
    """Return the spec of "done"; `ValueError` if the rows do not end as one, as those of several agents."""
    if "done" not in env.done_keys:
        raise ValueError(f"a learned reward needs one entry 'done' per row; the environment has {env.done_keys}")
    return env.full_done_spec["done"]


def check_resets(env: Any, success_source: str) -> None:
    """Raise `ValueError` for an environment of torchrl that resets rows itself, if its last observations are lost.

    A vector of Gymnasium with SAME_STEP autoreset keeps them; there, the model cannot end episodes.
    """
    while isinstance(env, TransformedEnv):
        if isinstance(env, AutoResetEnv) or env.__dict__.get("_torchrl_native_autoreset", False):
            raise ValueError(
                "this environment resets an ended row within the step, and torchrl drops its last observation: make it "
                "without auto_reset and native_autoreset"
            )
        transforms = env.transform if isinstance(env.transform, Compose) else [env.transform]
        if any(isinstance(transform, VecGymEnvTransform) for transform in transforms):
            check_model_ends(AutoresetMode.SAME_STEP, success_source)
        env = env.base_env


def warn_of_blank_frames(frames: Frames, ended: BoolArray) -> None:
    """Warn if the last frames of an episode are 0 everywhere, as torchrl fills observations that a vector lost."""
    if not ended.any():
        return
    has_values: list[Array] = [to_numpy(view.reshape(len(view), -1).any(1)) for view in frames.values()]
    if (ended & ~np.any(has_values, axis=0)).any():
        warnings.warn(
            "the last frames of an ended episode are black: does the environment reset itself, without a final "
            "observation? Make it with autoreset_mode DISABLED",
            stacklevel=2,
        )

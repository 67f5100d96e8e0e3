"""Observations of a robot: proprioception, and embeddings of its camera images by a frozen reward model."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector.utils import batch_space

from embodied_rm.checkpoint_io import add_prefix, strip_prefix
from embodied_rm.models.reward_model import RewardModel
from embodied_rm.models.subgoal_state import SubgoalState
from embodied_rm.models.subgoals import SubgoalRewardModel
from embodied_rm.rl.envs.env_checks import check_env
from embodied_rm.types import Array, Episode, IntArray, Views

ObsMode = Literal["state", "proprio+embeddings"]
"""Observation of a policy: the simulator's state, or proprioception and embeddings of the views."""
REQUIRED_ATTRS = ("view_names", "render_views", "instructions", "proprio_size")


class EmbeddingObservation(gym.vector.VectorWrapper):
    """A vector environment whose observations [N, P + D] are proprioception and embeddings of the camera images.

    The first P = `proprio_size` columns are those of the wrapped environment, which has `REQUIRED_ATTRS` and disabled
    autoreset. The others are the embeddings of the frozen reward model. `infos["state"]` [N, S] is the full state.
    """

    def __init__(self, env: gym.vector.VectorEnv, model: RewardModel) -> None:
        check_env(env, REQUIRED_ATTRS)
        super().__init__(env)
        self.model = SubgoalRewardModel(model)
        self._proprio_size: int = env.proprio_size  # type: ignore[attr-defined]
        self._reward_state: SubgoalState
        self._frames: npt.NDArray[np.uint8]
        observation, _ = self.reset(seed=0)
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, observation.shape[1:], np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        state, infos = self.env.reset(seed=seed, options=options)
        reset_mask = np.ones(self.num_envs, bool) if not options else np.asarray(options["reset_mask"])
        self._render_frames()
        rows, instructions = np.flatnonzero(reset_mask), self.instructions
        new_state = self.model.reset(self._views(rows), [instructions[row] for row in rows])
        self._reward_state = new_state if reset_mask.all() else self._reward_state.put(rows, new_state)
        return self._make_observation(state), {**infos, "state": np.array(state, np.float32)}

    def step(self, actions: npt.NDArray[Any]) -> Any:
        state, reward, terminated, truncated, infos = self.env.step(actions)
        self._render_frames()
        _, self._reward_state = self.model.step(self._reward_state, self._views(np.arange(self.num_envs)))
        infos = {**infos, "state": np.array(state, np.float32)}
        return self._make_observation(state), reward, terminated, truncated, infos

    @property
    def view_names(self) -> tuple[str, ...]:
        """Names of the cameras."""
        return tuple(self.env.view_names)  # type: ignore[attr-defined]

    @property
    def instructions(self) -> tuple[str, ...]:
        """Instructions of the running episodes, one per row."""
        return tuple(self.env.instructions)  # type: ignore[attr-defined]

    @property
    def max_episode_steps(self) -> int:
        """Time limit of an episode, in steps."""
        return self.env.max_episode_steps  # type: ignore[attr-defined]

    def render_views(self, rows: IntArray) -> npt.NDArray[np.uint8]:
        """Return the current camera images of `rows`, uint8 [n, V, H, W, 3]; they are rendered once per step."""
        return self._frames[rows]

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Return the snapshot of the environment and the model's state."""
        tensors = add_prefix("reward_state", self._reward_state.state_dict())
        reward_state = {name: tensor.numpy() for name, tensor in tensors.items()}
        return {**add_prefix("envs", self.env.snapshot()), **reward_state}  # type: ignore[attr-defined, dict-item]

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> Array:
        """Continue from a snapshot of such an environment, and return the observation."""
        env_state: Any = strip_prefix("envs", snapshot)  # type: ignore[arg-type]
        state = self.env.restore(env_state)  # type: ignore[attr-defined]
        arrays: Any = strip_prefix("reward_state", snapshot)  # type: ignore[arg-type]
        tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        self._reward_state = self._reward_state.from_state_dict(tensors)
        self._render_frames()
        return self._make_observation(state)

    def _render_frames(self) -> None:
        self._frames = self.env.render_views(np.arange(self.num_envs))  # type: ignore[attr-defined]

    def _views(self, rows: IntArray) -> Views:
        return Views(names=self.view_names, frames=self._frames[rows])

    def _make_observation(self, state: npt.NDArray[Any]) -> Array:
        return concat_observation(np.asarray(state, np.float32), self._proprio_size, self._reward_state.embedding())


def concat_observation(state: Array, proprio_size: int, embedding: Array) -> Array:
    """Concatenate the first columns of states [N, S] and embeddings [N, D] to float32 [N, proprio_size + D]."""
    return np.concatenate([state[:, :proprio_size], embedding], axis=1)


def embed_observations(model: RewardModel, episode: Episode, proprio_size: int) -> Episode:
    """Return a demonstration whose state [T, proprio_size + D] is the observation of `EmbeddingObservation`.

    The demonstration must have a state, and the views that the model needs.
    """
    assert episode.state is not None
    subgoal_model, names = SubgoalRewardModel(model), tuple(episode.views)
    frames = np.stack([episode.views[name] for name in names], axis=1)
    reward_state = subgoal_model.reset(Views(names=names, frames=frames[:1]), [episode.instruction])
    embeddings = [reward_state.embedding()]
    for t in range(1, len(frames)):
        _, reward_state = subgoal_model.step(reward_state, Views(names=names, frames=frames[t : t + 1]))
        embeddings.append(reward_state.embedding())
    state = np.asarray(episode.state, np.float32)
    return replace(episode, state=concat_observation(state, proprio_size, np.concatenate(embeddings)))

"""What a robot sees: its own body, and what a frozen reward model makes of its cameras' pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector.utils import batch_space

from embodied_rm.checkpoint_io import under_prefix, with_prefix
from embodied_rm.models.base import RewardModel
from embodied_rm.models.plan_memory import PlanMemory
from embodied_rm.models.plans import Plans
from embodied_rm.rl.envs.fit import refuse_unfit
from embodied_rm.types import Array, Episode, IntArray, Views

Sees = Literal["state", "proprio+views"]
"""What a policy acts on: the simulator's state, or what a robot has of it."""
NEEDED = ("view_names", "render_views", "instructions", "proprio_size")


class Seeing(gym.vector.VectorWrapper):
    """A vector environment with disabled autoreset whose observations [N, P + D] are the first `proprio_size` columns
    of its own and the model's embeddings of what the cameras show; `infos["state"]` [N, S] is the whole state, for a
    critic.

    Raises `UserError` for an environment that cannot show itself, and at the first reset for a model that does not tell
    its embeddings.
    """

    def __init__(self, env: gym.vector.VectorEnv, model: RewardModel) -> None:
        refuse_unfit(env, NEEDED)
        super().__init__(env)
        self.model = Plans(model)
        self._proprio: int = env.proprio_size  # type: ignore[attr-defined]
        self._memory: PlanMemory
        self._shown: npt.NDArray[np.uint8]
        observation, _ = self.reset(seed=0)
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, observation.shape[1:], np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        state, infos = self.env.reset(seed=seed, options=options)
        fresh = np.ones(self.num_envs, bool) if not options else np.asarray(options["reset_mask"])
        self._look()
        rows, instructions = np.flatnonzero(fresh), self.instructions
        begun = self.model.begin(self._views(rows), [instructions[row] for row in rows])
        self._memory = begun if fresh.all() else self._memory.put(rows, begun)
        return self._seen(state), {**infos, "state": np.array(state, np.float32)}

    def step(self, actions: npt.NDArray[Any]) -> Any:
        state, reward, terminated, truncated, infos = self.env.step(actions)
        self._look()
        _, self._memory = self.model.advance(self._memory, self._views(np.arange(self.num_envs)))
        return self._seen(state), reward, terminated, truncated, {**infos, "state": np.array(state, np.float32)}

    @property
    def view_names(self) -> tuple[str, ...]:
        """Of the cameras."""
        return tuple(self.env.view_names)  # type: ignore[attr-defined]

    @property
    def instructions(self) -> tuple[str, ...]:
        """Of the present episodes."""
        return tuple(self.env.instructions)  # type: ignore[attr-defined]

    @property
    def max_episode_steps(self) -> int:
        """Time limit of an episode."""
        return self.env.max_episode_steps  # type: ignore[attr-defined]

    def render_views(self, rows: IntArray) -> npt.NDArray[np.uint8]:
        """What the cameras of `rows` show now, drawn once a step."""
        return self._shown[rows]

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """That of the environment, and what is remembered of its pictures."""
        memory = {name: tensor.numpy() for name, tensor in with_prefix("memory", self._memory.state()).items()}
        return {**with_prefix("worlds", self.env.snapshot()), **memory}  # type: ignore[attr-defined, dict-item]

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> Array:
        """Go on from what `snapshot` of such an environment gave; the observation then."""
        worlds: Any = under_prefix("worlds", snapshot)  # type: ignore[arg-type]
        state = self.env.restore(worlds)  # type: ignore[attr-defined]
        memory: Any = under_prefix("memory", snapshot)  # type: ignore[arg-type]
        self._memory = self._memory.restored({name: torch.from_numpy(a.copy()) for name, a in memory.items()})
        self._look()
        return self._seen(state)

    def _look(self) -> None:
        self._shown = self.env.render_views(np.arange(self.num_envs))  # type: ignore[attr-defined]

    def _views(self, rows: IntArray) -> Views:
        return Views(names=self.view_names, frames=self._shown[rows])

    def _seen(self, state: npt.NDArray[Any]) -> Array:
        return seen(np.asarray(state, np.float32), self._proprio, self._memory.embedding())


def seen(state: Array, proprio: int, embedding: Array) -> Array:
    """float32 [N, proprio + D]: the first columns of states [N, S], and embeddings [N, D]."""
    return np.concatenate([state[:, :proprio], embedding], axis=1)


def as_seen(model: RewardModel, episode: Episode, proprio: int) -> Episode:
    """A demonstration whose state [T, proprio + D] is what a robot has of it. It must have a state, and the views that
    the model needs."""
    assert episode.state is not None
    planned, names = Plans(model), tuple(episode.views)
    frames = np.stack([episode.views[name] for name in names], axis=1)
    memory = planned.begin(Views(names=names, frames=frames[:1]), [episode.instruction])
    embeddings = [memory.embedding()]
    for t in range(1, len(frames)):
        _, memory = planned.advance(memory, Views(names=names, frames=frames[t : t + 1]))
        embeddings.append(memory.embedding())
    return replace(episode, state=seen(np.asarray(episode.state, np.float32), proprio, np.concatenate(embeddings)))

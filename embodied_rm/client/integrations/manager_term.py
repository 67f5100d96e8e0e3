"""A learned reward, and the success of its model, as terms of an environment that consists of managers.

Such an environment ends rows, rewards them and resets those that ended within one step, in this order. A picture that
is drawn after the step shows the first state of the next episode. A term therefore draws itself, before the reset.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from ..arrays import like_rows, row_mask, to_numpy
from ..episode_reward import EpisodeStep, RowIndices
from ..episode_scorer import ENV_SUCCESS, MODEL_SUCCESS, EpisodeScorer
from ..instructions import resolve_instructions
from ..wire import Frames


class ManagerTerm(ABC):
    """The running episodes of N environments, in the protocol of a class-based term.

    The parameters of the term are those of `__call__`: functions and plain data, since managers copy them.
    """

    success_source: ClassVar[str] = ENV_SUCCESS

    def __init__(self, cfg: Any, env: Any) -> None:
        """Make the client and find the cameras.

        Args:
            cfg: Configuration of the term; its `params` are the arguments of `__call__`.
            env: The environment.

        Raises:
            ValueError: A camera draws no colors, or the model does not predict the success that is asked for.
        """
        params = cfg.params
        self._env, self._instructions = env, params["instruction"]
        self._cameras = {view: find_camera(env, name) for view, name in params["cameras"].items()}
        self._scorer = EpisodeScorer(params["make_client"](), env.num_envs, params["shaping"], self.success_source)
        self._is_new = np.zeros(env.num_envs, bool)

    @abstractmethod
    def draw(self) -> None:
        """Draw the present states of all rows."""

    @abstractmethod
    def read_image(self, camera: Any) -> Any:
        """Return the tensor of the images that a camera has drawn last, uint8 [N, H, W, 3]."""

    @abstractmethod
    def __call__(self, env: Any, make_client: Any, cameras: Any, instruction: Any, shaping: Any) -> Any:
        """Return the value of the term in this step, a tensor [N]. The constructor has read all but the environment.

        Args:
            env: The environment.
            make_client: Function without arguments that returns a `RewardClient`, or a `LocalClient` for a model in
                this process.
            cameras: View of the model -> name of the camera in the scene.
            instruction: One for all rows, one per row, or a function of the environment, called after resets.
            shaping: `ShapingConfig`, with the learner's discount.
        """

    def reset(self, env_ids: Any = None) -> None:
        """Note that these rows were reset; None: all. Their first images open the new episodes."""
        self._is_new |= row_mask(env_ids, len(self._is_new))

    def open_episodes(self) -> None:
        """Open new episodes in the rows that were reset, at the images that were drawn last."""
        rows = np.flatnonzero(self._is_new)
        if len(rows):
            instructions = resolve_instructions(self._instructions, self._env, len(self._is_new))
            self._scorer.reset(rows, [instructions[row] for row in rows.tolist()], self._read_frames(rows))
            self._is_new[:] = False

    def score_step(self) -> EpisodeStep:
        """Score the states that the step led to, and return rewards and successes of all rows."""
        self.open_episodes()
        manager = self._env.termination_manager
        terminated, truncated = to_numpy(manager.terminated), to_numpy(manager.time_outs)
        if self._env.cfg.is_finite_horizon:  # the learner takes a time limit for an end, as of a failure
            terminated, truncated = terminated | truncated, np.zeros_like(truncated)

        def next_frames(rows: RowIndices) -> Frames:
            self.draw()
            return self._read_frames(rows)

        stepped = np.ones(len(terminated), bool)
        return self._scorer.step(next_frames, np.zeros(len(terminated)), terminated, truncated, stepped)

    def _read_frames(self, rows: RowIndices) -> Frames:
        return {view: self.read_image(camera)[rows] for view, camera in self._cameras.items()}


class RewardTerm(ManagerTerm):
    """A reward term: progress as potential-based shaping. The other terms reward and end the episodes."""

    def __call__(self, env: Any, make_client: Any, cameras: Any, instruction: Any, shaping: Any) -> Any:
        """Return the rewards of the step, a tensor [N]; `ManagerTerm` describes the parameters."""
        return like_rows(env.termination_manager.terminated, self.score_step().reward)


class SuccessTerm(ManagerTerm):
    """A termination term: sustained success according to the model. `success_term_reward` is its reward.

    It is the last termination term: the ends of the others are part of the step that it scores.
    """

    success_source = MODEL_SUCCESS

    def __init__(self, cfg: Any, env: Any) -> None:
        """As `ManagerTerm`; `ValueError` for a term that is a time-out, since its potential is that of an end."""
        if cfg.time_out:
            raise ValueError("success of the model ends an episode, and is no time-out: leave out time_out=True")
        super().__init__(cfg, env)
        self.reward: Any = None
        """Tensor [N]: shaping and `success_reward` of the last step."""

    def __call__(self, env: Any, make_client: Any, cameras: Any, instruction: Any, shaping: Any) -> Any:
        """Return which rows ended in success, a tensor [N]; `ManagerTerm` describes the parameters.

        Raises `ValueError` if another termination term follows.
        """
        manager = env.termination_manager
        last_name = manager.active_terms[-1]
        if manager.get_term_cfg(last_name).func is not self:
            raise ValueError(f"success of the model must be the last termination term, and {last_name!r} follows it")
        step = self.score_step()
        self.reward = like_rows(manager.terminated, step.reward)
        return like_rows(manager.terminated, step.transitions.is_success)


def success_term_reward(env: Any, success_term: str) -> Any:
    """A reward term: the reward of the termination term of this name, which scores the step.

    Args:
        env: The environment.
        success_term: Name of a `SuccessTerm` in the configuration of the terminations.

    Returns:
        A tensor [N]: shaping, and `success_reward` where the model's success ended the episode.

    Raises:
        ValueError: The term of this name is no `SuccessTerm`.
    """
    term = env.termination_manager.get_term_cfg(success_term).func
    if not isinstance(term, SuccessTerm):
        raise ValueError(f"the termination term {success_term!r} is not the success of a model")
    return term.reward


def find_terms(env: Any) -> Iterator[ManagerTerm]:
    """Yield the learned terms among the terminations and rewards of an environment."""
    for manager in (env.termination_manager, env.reward_manager):
        for name in manager.active_terms:
            term = manager.get_term_cfg(name).func
            if isinstance(term, ManagerTerm):
                yield term


def find_camera(env: Any, name: str) -> Any:
    """Return a camera of the scene; `ValueError` if it draws no colors."""
    camera = env.scene[name]
    data_types = getattr(getattr(camera, "cfg", None), "data_types", ())
    if "rgb" not in data_types:
        raise ValueError(
            f"{name!r} is no camera with 'rgb' in its data_types; it has {', '.join(data_types) or 'none'}"
        )
    return camera

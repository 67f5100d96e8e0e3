"""Gymnasium environments with cameras, an instruction and a success, as refinement needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper

from embodied_rm.client.arrays import to_numpy
from embodied_rm.errors import UserError, unknown_name_message
from embodied_rm.types import Array, Frames, IntArray

SUCCESS_KEYS = ("is_success", "success")
"""Keys of success in the infos of many libraries; the first one that is there is read."""
WHOLE_TASK_KEY = "task"  # of a mapping of successes, as robomimic returns
MAX_ACTION = 1.0  # actions are in [-1, 1], the units of the policies' exploration noise
NUMBER_SPACES = (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)
DEFAULT_FPS = 30.0  # frames per second of an environment that states none

RenderFn = Callable[[gym.Env], Mapping[str, Frames]]
"""An environment -> view name -> its image now, uint8 [H, W, 3]."""


def render_front(env: gym.Env) -> dict[str, Frames]:
    """Return what `render()` draws, as the view "front"."""
    image = env.render()
    if not isinstance(image, np.ndarray) or image.ndim != 3:
        raise UserError(
            'render() draws no image: make the environment with render_mode="rgb_array", or pass get_images'
        )
    return {"front": image}


class CameraVectorEnv(VectorWrapper):
    """N Gymnasium environments as one vector with cameras, instructions and success, and without autoreset.

    `embodied_rm.refine` takes it. Observations are float32 [N, D]: all numbers of the observation,
    in the order of its space, without images. Actions are in [-1, 1]. The infos have `success` and `diverged`, bool
    [N]; an observation that is not finite is a divergence. The environments are stepped one after the other, in this
    process.
    """

    view_names: tuple[str, ...] = ()  # names of the cameras

    def __init__(
        self,
        make_env: Callable[[], gym.Env],
        num_envs: int,
        *,
        instruction: str | Callable[[gym.Env], str],
        get_images: RenderFn = render_front,
        success_key: str | None = None,
        ends_on_success: bool = False,
    ) -> None:
        """Make the environments.

        Args:
            make_env: Makes one environment, whose own time limit truncates its episodes.
            num_envs: How many, >= 1.
            instruction: The instruction, or a function of an environment that is called after each of its resets.
            get_images: Draws an environment: view name -> uint8 [H, W, 3]. All images have one size.
            success_key: Key of the success in the environment's infos. None: `is_success` or `success`.
            ends_on_success: Whether the environment's success ends an episode. False for training on a model's
                success, True to evaluate a policy.

        Raises:
            UserError: When the action space is not a bounded box, or the observation holds no numbers.
        """
        if num_envs < 1:
            raise UserError(f"num_envs must be >= 1, got {num_envs}")

        def make_task() -> gym.Env:
            return TaskEnv(make_env(), success_key, ends_on_success)

        envs = SyncVectorEnv([make_task] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
        super().__init__(envs)
        self.envs: tuple[gym.Env, ...] = tuple(env.env.env for env in envs.envs)  # type: ignore[attr-defined]
        """The environments, as `make_env` made them."""
        self._instruction, self._get_images = instruction, get_images
        self._instructions = [""] * num_envs
        self.metadata = {"render_fps": DEFAULT_FPS, **envs.metadata, "autoreset_mode": AutoresetMode.DISABLED}
        self.reset(seed=0)
        self.view_names = tuple(get_images(self.envs[0]))
        if envs.spec is not None and envs.spec.max_episode_steps is not None:
            self.max_episode_steps = envs.spec.max_episode_steps

    @property
    def instructions(self) -> tuple[str, ...]:
        """The instruction of each row's episode."""
        return tuple(self._instructions)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        mask = np.ones(self.num_envs, bool) if not options else np.asarray(options["reset_mask"], bool)
        observation, infos = self.env.reset(seed=seed, options=options)
        for row in np.flatnonzero(mask):
            self._instructions[row] = (
                self._instruction(self.envs[row]) if callable(self._instruction) else self._instruction
            )
        return observation, self._flags(infos, observation)

    def step(self, actions: npt.NDArray[Any]) -> Any:
        clipped = np.clip(np.asarray(actions, np.float32), -MAX_ACTION, MAX_ACTION)
        observation, reward, terminated, truncated, infos = self.env.step(clipped)
        return observation, reward, terminated, truncated, self._flags(infos, observation)

    def render_views(self, rows: IntArray) -> Frames:
        """Render the images of some environments, uint8 [n, V, H, W, 3]."""
        frames = [self._draw(self.envs[row]) for row in rows]
        return np.stack(frames) if frames else np.zeros((0, len(self.view_names), 1, 1, 3), np.uint8)

    def _draw(self, env: gym.Env) -> Frames:
        """Return the images of one environment, uint8 [V, H, W, 3]."""
        images = self._get_images(env)
        if tuple(images) != self.view_names:
            raise UserError(f"get_images drew {', '.join(images)}, and before {', '.join(self.view_names)}")
        sizes = {image.shape for image in images.values()}
        if len(sizes) > 1 or any(image.dtype != np.uint8 for image in images.values()):
            found = ", ".join(f"{view}: {image.dtype} {list(image.shape)}" for view, image in images.items())
            raise UserError(f"get_images must return uint8 [H, W, 3] of one size, got {found}")
        return np.stack(list(images.values()))

    def _flags(self, infos: Mapping[str, Any], observation: Array) -> dict[str, Any]:
        """Return the infos with success and divergence of every row."""
        diverged = ~np.isfinite(observation).all(axis=1)
        success = np.asarray(infos.get("success", np.zeros(self.num_envs)), bool)
        return {**infos, "success": success & ~diverged, "diverged": diverged}


class TaskEnv(gym.Wrapper):
    """One environment with a flat observation, actions in [-1, 1], and `infos["success"]`."""

    def __init__(self, env: gym.Env, success_key: str | None, ends_on_success: bool) -> None:
        space = env.action_space
        if not isinstance(space, gym.spaces.Box) or not (space.is_bounded() and len(space.shape) == 1):
            raise UserError(f"the action space must be a bounded Box [A], got {space}")
        super().__init__(gym.wrappers.RescaleAction(env, np.float32(-MAX_ACTION), np.float32(MAX_ACTION)))
        self._success_key, self._ends_on_success = success_key, ends_on_success
        size = len(flatten_numbers(env.observation_space, env.observation_space.sample()))
        if not size:
            raise UserError(f"the observation holds no numbers for a policy, only {env.observation_space}")
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, _ = self.env.reset(seed=seed, options=options)
        return flatten_numbers(self.env.observation_space, observation), {"success": False}

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, infos = self.env.step(action)
        success = read_success(infos, self._success_key, bool(terminated or truncated))
        # A success that does not end the episode: the environment may have ended it there, and goes on.
        terminated = success or terminated if self._ends_on_success else terminated and not success
        numbers = flatten_numbers(self.env.observation_space, observation)
        return numbers, reward, terminated, truncated, {"success": success}


def read_success(infos: Mapping[str, Any], key: str | None, has_ended: bool) -> bool:
    """Return the success in the infos of a step; `UserError` if it is not there, or neither true nor false.

    Before the end, infos without any success are of none: some environments state it in the last step alone.
    """
    stated = {name: value for name, value in infos.items() if value is not None}
    if not has_ended and not any(name in stated for name in (*SUCCESS_KEYS, key)):
        return False
    name = next((name for name in ((key,) if key else SUCCESS_KEYS) if name in stated), None)
    if name is None:
        raise UserError(f"{unknown_name_message(key or SUCCESS_KEYS[0], stated, 'info of a step')}; set success_key=")
    value = stated[name]
    if isinstance(value, Mapping):
        value = value.get(WHOLE_TASK_KEY)
    array = to_numpy(value)
    if array.dtype.kind not in "biuf" or array.size != 1 or array.item() not in (0, 1):
        raise UserError(f"the info {name!r} of a step must be true or false, got {stated[name]!r}")
    return bool(array.item())


def flatten_numbers(space: gym.Space, observation: Any) -> Array:
    """Return the numbers of an observation in the order of its space, float32 [D]; images and texts are left out."""
    if isinstance(space, gym.spaces.Dict):
        parts = [flatten_numbers(entry, observation[key]) for key, entry in space.spaces.items()]
    elif isinstance(space, gym.spaces.Tuple):
        parts = [flatten_numbers(entry, value) for entry, value in zip(space.spaces, observation, strict=True)]
    elif isinstance(space, NUMBER_SPACES) and len(space.shape or ()) <= 1:
        parts = [np.asarray(observation, np.float32).ravel()]
    else:
        parts = []
    return np.concatenate([np.zeros(0, np.float32), *parts])

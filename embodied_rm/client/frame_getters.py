"""Where the frames of an environment come from: `render()`, or its observations, before a reset too."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Optional

import gymnasium as gym
import numpy as np

from .arrays import is_tensor, stack_rows, to_numpy
from .autoreset import FINAL_OBSERVATION_KEYS, final_observation_key, read_num_envs
from .episode_reward import BoolArray, RowIndices
from .wire import Frames

FrameGetter = Callable[[Any, Any, RowIndices], Frames]
"""(environment, its current observation, rows) -> view name -> uint8 [n, H, W, 3], the current frames of these rows."""
FinalFrameGetter = Callable[[Any, Mapping[str, Any], RowIndices], Frames]
"""(environment, infos of the step, rows that ended in it) -> their last frames, before they were reset."""


def frames_from_render(view: str = "front") -> FrameGetter:
    """Return a getter of the frames that `render()` draws, as the view of that name.

    The environment must have been made with `render_mode="rgb_array"`.
    """

    def get_frames(env: Any, observation: Any, rows: RowIndices) -> Frames:
        render_output = env.render()
        if render_output is None:
            raise ValueError('render() draws nothing: make the environment with render_mode="rgb_array"')
        if isinstance(render_output, (list, tuple)):
            return {view: stack_rows(render_output)[rows]}
        images = render_output if is_tensor(render_output) else np.asarray(render_output)
        return {view: (images if len(images.shape) == 4 else images[None])[rows]}

    return get_frames


def frames_from_observation(**views: Optional[str]) -> ObservationFrames:
    """Return a getter of frames from observations, also from those before a reset.

    `frames_from_observation(front="pixels")` reads the view `front` from `observation["pixels"]` [N, H, W, 3]; a slash
    separates the keys of nested dictionaries, as in `wrist="sensor_data/hand_camera/rgb"`. With `front=None`, the
    observation itself is the image.
    """
    return ObservationFrames(views)


class ObservationFrames:
    """A `FrameGetter` that reads observations; its method `final_frames` is the `FinalFrameGetter`."""

    def __init__(self, views: Mapping[str, Optional[str]]) -> None:
        """`views`: view name -> key of the observation; None: the observation itself."""
        self.views = dict(views)

    def __call__(self, env: Any, observation: Any, rows: RowIndices) -> Frames:
        """Return the frames of rows of a batched observation."""
        return {view: find_entry(observation, key)[rows] for view, key in self.views.items()}

    def final_frames(self, env: Any, infos: Mapping[str, Any], rows: RowIndices) -> Frames:
        """Return the frames of rows before their reset.

        Raises `ValueError` if the infos have no final observations.
        """
        key = final_observation_key(infos)
        if key is None:
            raise ValueError(
                f"an episode ended, and the infos have neither {' nor '.join(FINAL_OBSERVATION_KEYS)}; they have "
                f"{', '.join(sorted(infos)) or 'nothing'}"
            )
        final_observations = infos[key]
        if isinstance(final_observations, Mapping) or not is_row_per_object(final_observations):
            for view, entry_key in self.views.items():
                if (num_rows := len(find_entry(final_observations, entry_key))) != read_num_envs(env):
                    raise ValueError(
                        f"{key} of the infos has {num_rows} rows for the view {view}, and there are "
                        f"{read_num_envs(env)} environments: pass get_final_frames=..."
                    )
            return self(env, final_observations, rows)
        # Gymnasium's own vectors: an array of objects, one observation per row that ended, None elsewhere.
        observations = [final_observations[row] for row in rows.tolist()]
        return {
            view: stack_rows([find_entry(observation, key) for observation in observations])
            for view, key in self.views.items()
        }


def is_row_per_object(observations: Any) -> bool:
    """Return whether observations are a list or an array of objects, one per row."""
    return isinstance(observations, (list, tuple)) or getattr(observations, "dtype", None) == np.dtype(object)


def find_entry(observation: Any, key: Optional[str]) -> Any:
    """Return the entry of a dictionary observation, or the observation itself for None.

    Raises `ValueError` that names the entries if there is none of that key.
    """
    if key is None:
        return observation
    entry = observation
    for part in [key] if isinstance(observation, Mapping) and key in observation else key.split("/"):
        if not isinstance(entry, Mapping) or part not in entry:
            keys = ", ".join(entry_keys(observation)) if isinstance(observation, Mapping) else "no keys"
            raise ValueError(f"the observation has no entry {key!r}; it has {keys}")
        entry = entry[part]
    return entry


def entry_keys(observation: Mapping[str, Any]) -> Sequence[str]:
    """Return the keys of all entries, with slashes for nested dictionaries."""
    keys = []
    for key, entry in observation.items():
        keys += [f"{key}/{inner}" for inner in entry_keys(entry)] if isinstance(entry, Mapping) else [str(key)]
    return keys


class CopyObservation(gym.ObservationWrapper):
    """A copy of each observation, for an environment that writes all of them into one buffer.

    Without it, a reset within the step (SAME_STEP) overwrites the final observation: wrap each environment of a vector.
    """

    def observation(self, observation: Any) -> Any:
        """Return the copy."""
        return deepcopy(observation)


def warn_of_overwritten_frames(final_frames: Frames, first_frames: Frames) -> None:
    """Warn if the final frames of a row are those after its reset: they were overwritten, or read too late."""
    same = [equal_rows(final_frames[view], first_frames[view]) for view in final_frames]
    if np.all(same, axis=0).any():
        warnings.warn(
            "the last frames of an ended episode are the first frames of the next one: does the environment write its "
            "observations into one buffer? Wrap each environment in CopyObservation; make a vector that does so with "
            "autoreset_mode DISABLED",
            stacklevel=2,
        )


def equal_rows(first: Any, second: Any) -> BoolArray:
    """Return whether the images of each row are equal, bool [N]; tensors are compared on their device."""
    if first.shape != second.shape:
        return np.zeros(len(first), bool)
    if not (is_tensor(first) and is_tensor(second) and first.device == second.device):
        first, second = to_numpy(first), to_numpy(second)
    return np.asarray(to_numpy((first == second).reshape(len(first), -1).all(1)), bool)

"""Requirements on an environment whose reward is replaced."""

from collections.abc import Sequence

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from embodied_rm.errors import UserError
from embodied_rm.types import BoolArray


def unwrap_layers(env: gym.vector.VectorEnv) -> list[gym.vector.VectorEnv]:
    """Return the environment and all environments that it wraps, the outermost first."""
    layers = [env]
    while isinstance(layers[-1], gym.vector.VectorWrapper):
        layers.append(layers[-1].env)
    return layers


def supports_snapshots(env: gym.vector.VectorEnv) -> bool:
    """Return whether the environment, and all that it wraps, can save and restore its episodes."""
    return not missing_methods(env, ("snapshot", "restore"))


def missing_methods(env: gym.vector.VectorEnv, names: Sequence[str]) -> list[str]:
    """Return the methods that the environment, or one that it wraps, lacks."""
    return [name for name in names if not all(hasattr(layer, name) for layer in unwrap_layers(env))]


def check_env(env: gym.vector.VectorEnv, required: Sequence[str]) -> None:
    """Raise `UserError` unless autoreset is disabled and the environment has the `required` attributes."""
    mode = env.metadata.get("autoreset_mode")
    if mode != AutoresetMode.DISABLED:
        raise UserError(
            f"the learned reward scores the last frame of an episode before it resets the row itself: it needs an "
            f"environment with autoreset_mode={AutoresetMode.DISABLED}, got {mode}"
        )
    missing = [name for name in required if not hasattr(env, name)]
    if missing:
        env_name = type(unwrap_layers(env)[-1]).__name__
        raise UserError(f"{env_name} lacks {', '.join(missing)}; a learned reward needs {', '.join(required)}")


def check_no_leaked_success(ended_by_success: BoolArray) -> None:
    """Raise `UserError` if the environment ended an episode at its own success, bool [N]."""
    if ended_by_success.any():
        raise UserError(
            f"row {int(np.flatnonzero(ended_by_success)[0])} ended at the simulator's own success, which would leak it "
            "to the learner; make the training environment with ends_on_success=False"
        )

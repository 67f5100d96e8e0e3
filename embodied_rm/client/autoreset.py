"""When a vector environment resets a row that ended: declared by the environment or by its user, never guessed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Optional, Union

import gymnasium as gym
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import Autoreset

from .arrays import to_numpy

MODES = {mode.value.casefold(): mode for mode in AutoresetMode}
"""Spelling without case and separators -> mode."""
FINAL_OBSERVATION_KEYS = ("final_obs", "final_observation")
"""Keys of the infos of observations before a reset: of Gymnasium >= 1.0, and of older and of torch environments."""
FINAL_INFO_KEY = "final_info"
FINAL_KEY_PATTERN = re.compile("_?(?:final|terminal|last)_(?:obs|observation|observations|info|infos)")
"""Keys by which libraries hand over what was before a reset, such as `terminal_observation` of Stable-Baselines3."""
SINGLE_RESET_MESSAGE = "one environment must not reset itself; call reset after an episode ended"


def read_autoreset_mode(env: Any, declared: Optional[Union[str, AutoresetMode]]) -> AutoresetMode:
    """Return when an environment resets a row that ended.

    Args:
        env: Vector environment; Gymnasium's declare the mode in `metadata["autoreset_mode"]`.
        declared: The user's declaration, which precedes that of the environment; None: that of the environment.

    Returns:
        The mode: `AutoresetMode`, its name ("SAME_STEP") or its value ("SameStep") in any case.

    Raises:
        ValueError: No mode is declared, or an unknown one.
    """
    metadata = getattr(env, "metadata", None) or {}
    mode = metadata.get("autoreset_mode") if declared is None else declared
    if mode is None:
        raise ValueError(
            f"{type(getattr(env, 'unwrapped', env)).__name__} does not declare when it resets a row that ended: pass "
            "autoreset_mode='SAME_STEP' (in the step that ends it), 'NEXT_STEP' (in the next step) or 'DISABLED' (you "
            "reset it)"
        )
    spelling = str(getattr(mode, "value", mode)).replace("_", "").replace("-", "").casefold()
    if spelling not in MODES:
        raise ValueError(f"unknown autoreset_mode {mode!r}: expected SAME_STEP, NEXT_STEP or DISABLED")
    return MODES[spelling]


def final_observation_key(infos: Mapping[str, Any]) -> Optional[str]:
    """Return the key of the observations before a reset, or None if the infos hold none."""
    return next((key for key in FINAL_OBSERVATION_KEYS if key in infos), None)


def check_no_final_observations(mode: AutoresetMode, infos: Mapping[str, Any]) -> None:
    """Raise `ValueError` if an environment of another mode seems to reset in the step that ends an episode."""
    key = next((key for key in infos if FINAL_KEY_PATTERN.fullmatch(key)), None)
    if key is not None:
        raise ValueError(
            f"the environment declares {mode.name}, and its infos have {key!r}, as if it resets in the step that ends "
            f"an episode: pass autoreset_mode='SAME_STEP', or {mode.name!r} if that is right"
        )


def check_no_single_autoreset(env: Any) -> None:
    """Raise `ValueError` for one environment that resets itself: its frames would be those of the next episode."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, Autoreset):
            raise ValueError(f"leave out the wrapper Autoreset: {SINGLE_RESET_MESSAGE}")
        env = env.env


def check_single_step(reward: Any, infos: Mapping[str, Any], has_ended: bool) -> None:
    """Raise `ValueError` for a step of several environments, or of one that resets itself."""
    if (num_rewards := to_numpy(reward).size) != 1:
        raise ValueError(
            f"step returned {num_rewards} rewards: an environment that steps several needs an attribute num_envs"
        )
    key = final_observation_key(infos) if has_ended else None
    if key is not None:
        raise ValueError(f"the infos of an ended episode have {key!r}: {SINGLE_RESET_MESSAGE}")


def read_num_envs(env: Any) -> int:
    """Return the number of environments of a vector, also inside wrappers of Gymnasium."""
    return int(env.num_envs if hasattr(env, "num_envs") else env.unwrapped.num_envs)

"""Learned rewards in your RL process: the client of the reward service, its environment wrapper, shaping.

The distribution `embodied-rm-client` installs this folder as `embodied_rm_client`; `embodied-rm` installs it as
`embodied_rm.client`. Its modules import one another relatively, run on Python 3.9, and need only numpy and httpx.
The wrappers of environments also need gymnasium.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client_errors import EpisodeLostError, OutOfOrderError, ServiceError, ServiceUnavailableError
    from .episode_scorer import ShapingConfig
    from .frame_getters import CopyObservation, frames_from_observation, frames_from_render
    from .learned_reward import LearnedReward, SingleLearnedReward, TorchLearnedReward
    from .reward_client import RewardClient
    from .wire import RewardPrediction

MODULES = {
    "client_errors": ("EpisodeLostError", "OutOfOrderError", "ServiceError", "ServiceUnavailableError"),
    "episode_scorer": ("ShapingConfig",),
    "frame_getters": ("CopyObservation", "frames_from_observation", "frames_from_render"),
    "learned_reward": ("LearnedReward", "SingleLearnedReward", "TorchLearnedReward"),
    "reward_client": ("RewardClient",),
    "wire": ("RewardPrediction",),
}
EXPORTS = {name: module for module, names in MODULES.items() for name in names}
"""Public name -> module that defines it, imported on first use."""

__all__ = [
    "CopyObservation",
    "EpisodeLostError",
    "LearnedReward",
    "OutOfOrderError",
    "RewardClient",
    "RewardPrediction",
    "ServiceError",
    "ServiceUnavailableError",
    "ShapingConfig",
    "SingleLearnedReward",
    "TorchLearnedReward",
    "frames_from_observation",
    "frames_from_render",
]


def __getattr__(name: str) -> Any:
    if name not in EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{EXPORTS[name]}", __name__), name)

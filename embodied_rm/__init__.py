"""Reward models for robots: score video and an instruction, train from datasets, refine policies on the reward.

    import embodied_rm as erm

    model = erm.load_reward_model()
    output = model.score(frames, "open the drawer")

Every name is imported when it is first used, so that `import embodied_rm` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embodied_rm.api.camera_vector_env import CameraVectorEnv
    from embodied_rm.api.clip_output import ClipOutput
    from embodied_rm.api.demonstration_reward_model import DemonstrationRewardModel, from_demonstration
    from embodied_rm.api.frame_scorer import FrameScorer
    from embodied_rm.api.imagination import dpo
    from embodied_rm.api.learned_reward import LearnedReward
    from embodied_rm.api.local_client import LocalClient
    from embodied_rm.api.offline import learn_offline
    from embodied_rm.api.policies import clone, load_policy, refine, save_policy
    from embodied_rm.api.progress_reward_model import ProgressRewardModel
    from embodied_rm.api.sources import load_reward_model, open_dataset
    from embodied_rm.api.train_model import train
    from embodied_rm.api.zero_shot_reward_model import ZeroShotRewardModel
    from embodied_rm.data.feature_map import FeatureMap
    from embodied_rm.errors import CheckpointError, DataError, UserError
    from embodied_rm.hub_checkpoint import HubCheckpoint
    from embodied_rm.rewards.reward_config import RewardConfig
    from embodied_rm.types import Episode, RewardOutput, Subtask, Views

EXPORTS = {
    "CameraVectorEnv": "embodied_rm.api.camera_vector_env",
    "CheckpointError": "embodied_rm.errors",
    "ClipOutput": "embodied_rm.api.clip_output",
    "DataError": "embodied_rm.errors",
    "DemonstrationRewardModel": "embodied_rm.api.demonstration_reward_model",
    "Episode": "embodied_rm.types",
    "FeatureMap": "embodied_rm.data.feature_map",
    "FrameScorer": "embodied_rm.api.frame_scorer",
    "HubCheckpoint": "embodied_rm.hub_checkpoint",
    "LearnedReward": "embodied_rm.api.learned_reward",
    "LocalClient": "embodied_rm.api.local_client",
    "ProgressRewardModel": "embodied_rm.api.progress_reward_model",
    "RewardConfig": "embodied_rm.rewards.reward_config",
    "RewardOutput": "embodied_rm.types",
    "Subtask": "embodied_rm.types",
    "UserError": "embodied_rm.errors",
    "Views": "embodied_rm.types",
    "ZeroShotRewardModel": "embodied_rm.api.zero_shot_reward_model",
    "clone": "embodied_rm.api.policies",
    "dpo": "embodied_rm.api.imagination",
    "from_demonstration": "embodied_rm.api.demonstration_reward_model",
    "learn_offline": "embodied_rm.api.offline",
    "load_policy": "embodied_rm.api.policies",
    "load_reward_model": "embodied_rm.api.sources",
    "open_dataset": "embodied_rm.api.sources",
    "refine": "embodied_rm.api.policies",
    "save_policy": "embodied_rm.api.policies",
    "train": "embodied_rm.api.train_model",
}
"""Public name -> module that defines it."""

__all__ = [
    "CameraVectorEnv",
    "CheckpointError",
    "ClipOutput",
    "DataError",
    "DemonstrationRewardModel",
    "Episode",
    "FeatureMap",
    "FrameScorer",
    "HubCheckpoint",
    "LearnedReward",
    "LocalClient",
    "ProgressRewardModel",
    "RewardConfig",
    "RewardOutput",
    "Subtask",
    "UserError",
    "Views",
    "ZeroShotRewardModel",
    "clone",
    "dpo",
    "from_demonstration",
    "learn_offline",
    "load_policy",
    "load_reward_model",
    "open_dataset",
    "refine",
    "save_policy",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = _installed_version()
    elif name in EXPORTS:
        value = getattr(import_module(EXPORTS[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("embodied-rm")
    except PackageNotFoundError:  # a checkout that is on the path and not installed
        return "0.0.0"


def __dir__() -> list[str]:
    return sorted([*globals(), *EXPORTS])

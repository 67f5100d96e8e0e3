"""Plugin for LeRobot from version 0.6: `--reward_model.discover_packages_path=embodied_rm.lerobot`.

The type of the reward model is `embodied_rm`. LeRobot finds it and its processors by the names of these modules.
"""

from embodied_rm.lerobot.configuration_embodied_rm import EmbodiedRMConfig

__all__ = ["EmbodiedRMConfig"]

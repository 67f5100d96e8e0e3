"""Plugin for LeRobot: `--env.type=embodied_sim --env.discover_packages_path=embodied_sim.adapters.lerobot`.

A package, not a module, because LeRobot also imports the modules inside a plugin.
"""

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.envs.configs import EnvConfig
from lerobot.utils.constants import ACTION, OBS_IMAGES, OBS_STATE

from embodied_sim.adapters.lerobot_env import OBS_TYPES
from embodied_sim.control import CONTROL_HZ
from embodied_sim.sim_errors import lookup
from embodied_sim.vec_env import TabletopVecEnv

GYM_ID = "embodied_sim/LeRobot-v0"

# LeRobot looks for `task_description` on the outermost environment, so that Gymnasium must add no wrapper.
gym.register(
    id=GYM_ID,
    entry_point="embodied_sim.adapters.lerobot_env:LeRobotEnv",
    order_enforce=False,
    disable_env_checker=True,
)


@EnvConfig.register_subclass("embodied_sim")
@dataclass
class EmbodiedSimEnv(EnvConfig):
    """A task of the simulator, with the views and sizes that `embodied-rm collect` records by default."""

    task: str | None = "lift_cube"  # name of a registered task, or path of a file that defines one
    fps: int = CONTROL_HZ
    views: list[str] = field(default_factory=lambda: ["front", "wrist"])  # cameras, among front, side and wrist
    image_size: int = 64  # height and width of an image, pixels
    obs_type: str = OBS_TYPES[0]  # pixels_agent_pos or pixels
    disable_env_checker: bool = True

    def __post_init__(self) -> None:
        """Declare the features. Raises `SimError` for an unknown task, view or type of observation."""
        lookup(dict.fromkeys(OBS_TYPES), self.obs_type, "obs_type")
        assert self.task is not None
        env = TabletopVecEnv(self.task, 1, views=self.views)
        action_shape, state_shape = env.single_action_space.shape, env.single_observation_space.shape
        env.close()
        self._add_feature("action", ACTION, FeatureType.ACTION, action_shape)
        if self.obs_type == "pixels_agent_pos":
            self._add_feature("agent_pos", OBS_STATE, FeatureType.STATE, state_shape)
        for view in self.views:
            image_shape = (self.image_size, self.image_size, 3)
            self._add_feature(f"pixels/{view}", f"{OBS_IMAGES}.{view}", FeatureType.VISUAL, image_shape)

    def _add_feature(self, key: str, policy_key: str, kind: FeatureType, shape: Any) -> None:
        self.features[key] = PolicyFeature(type=kind, shape=shape)
        self.features_map[key] = policy_key

    @property
    def gym_id(self) -> str:
        """Return the id with which `gymnasium.make` builds the environment."""
        return GYM_ID

    @property
    def gym_kwargs(self) -> dict[str, Any]:
        """Return the arguments of `LeRobotEnv`."""
        return {"task": self.task, "views": self.views, "image_size": self.image_size, "obs_type": self.obs_type}

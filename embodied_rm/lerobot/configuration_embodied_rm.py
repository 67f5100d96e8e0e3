"""Configuration of the reward model in LeRobot."""

from dataclasses import dataclass, field

from lerobot.configs.rewards import RewardModelConfig


@RewardModelConfig.register_subclass("embodied_rm")
@dataclass
class EmbodiedRMConfig(RewardModelConfig):
    """A reward model of `embodied_rm.load_reward_model`, whose source is `pretrained_path`; None: the bundled model.

    `pretrained_path` is "real", a checkpoint folder or "hf:owner/name"; `pretrained_revision` is a revision of the
    last.
    """

    rename_map: dict[str, str] = field(default_factory=dict)
    """Key of an image in the batch -> key with the view that the model knows, such as observation.images.front."""

"""LeRobot finds our tasks by their type, and its rollouts see their instructions and successes."""

from typing import Any

import numpy as np
import pytest
import torch
from lerobot.configs.parser import load_plugin
from lerobot.envs.configs import EnvConfig
from lerobot.envs.factory import make_env
from lerobot.envs.utils import env_to_policy_features, preprocess_observation
from lerobot.processor import PolicyProcessorPipeline
from lerobot.scripts.lerobot_eval import rollout

from embodied_sim.scripted_policy import ScriptedPolicy
from embodied_sim.sim_errors import SimError

load_plugin("embodied_sim.adapters.lerobot")


class Expert(torch.nn.Module):
    """The scripted expert as a policy of LeRobot; it looks at the simulator instead of the observation."""

    def __init__(self, envs: list[Any]) -> None:
        super().__init__()
        self.envs, self.instructions = envs, set[str]()
        self.experts: list[ScriptedPolicy] = []

    def reset(self) -> None:
        self.experts = []

    def select_action(self, batch: dict[str, Any]) -> torch.Tensor:
        assert batch["observation.images.front"].shape == (2, 3, 64, 64)
        self.instructions |= set(batch["task"])
        if not self.experts:
            self.experts = [ScriptedPolicy(env.tabletop_env.vec_env) for env in self.envs]
            for expert in self.experts:
                expert.reset(np.arange(1))
        return torch.from_numpy(np.concatenate([expert.act() for expert in self.experts]))


def env_config(**settings: Any) -> EnvConfig:
    return EnvConfig.get_choice_class("embodied_sim")(**settings)


@pytest.mark.parametrize(("task", "state_size"), [("lift_cube", 29), ("sort_two", 37)])
def test_the_declared_features_are_those_of_the_observations(task: str, state_size: int) -> None:
    config = env_config(task=task, views=["front", "side"], image_size=48)
    assert config.type == "embodied_sim" and config.fps == 20
    (envs,) = make_env(config, n_envs=2)["embodied_sim"].values()
    observation = preprocess_observation(envs.reset(seed=[0, 1])[0])
    features = env_to_policy_features(config)
    assert features.pop("action").shape == envs.single_action_space.shape == (4,)
    assert (
        {key: value.shape for key, value in features.items()}
        == {key: tuple(value.shape[1:]) for key, value in observation.items()}
        == {
            "observation.state": (state_size,),
            "observation.images.front": (3, 48, 48),
            "observation.images.side": (3, 48, 48),
        }
    )
    envs.close()


def test_a_rollout_counts_successes_and_gets_the_instructions() -> None:
    (envs,) = make_env(env_config(), n_envs=2)["embodied_sim"].values()
    expert = Expert(list(envs.envs))
    identity = PolicyProcessorPipeline(steps=[]), PolicyProcessorPipeline(steps=[])
    no_change = lambda value: value  # noqa: E731
    result = rollout(envs, expert, *identity, no_change, no_change, seeds=[3, 4])
    assert result["success"].any(dim=1).tolist() == [True, True] and result["reward"].sum(dim=1).tolist() == [1, 1]
    assert result["done"].shape[1] < 60 and result["done"][:, -1].all()
    assert expert.instructions and all("cube" in instruction for instruction in expert.instructions)
    envs.close()


def test_wrong_settings_are_named_with_the_choices() -> None:
    with pytest.raises(SimError, match=r"unknown task 'lift_cub'\. Did you mean 'lift_cube'"):
        env_config(task="lift_cub")
    with pytest.raises(SimError, match="unknown view 'top'"):
        env_config(views=["top"])
    with pytest.raises(SimError, match="unknown obs_type 'state'"):
        env_config(obs_type="state")
    assert "observation.state" not in env_to_policy_features(env_config(obs_type="pixels"))

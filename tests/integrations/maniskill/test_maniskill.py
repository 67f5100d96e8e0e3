"""ManiSkill: `LearnedReward` wraps its vectors and its environments as they are, with their own final observations.

The simulation runs on the CPU, which steps one row.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import mani_skill.envs  # noqa: F401  registers the tasks
import numpy as np
import pytest
import torch
from mani_skill.utils.structs import Pose
from mani_skill.vector.wrappers.gymnasium import ManiSkillVectorEnv

import embodied_rm as erm
from embodied_rm.client import frames_from_observation
from embodied_rm.client.learned_reward import LearnedReward, TorchLearnedReward
from tests.integrations.known_rewards import GAMMA, KnownImageModel

LENGTH = 4
"""Time limit, steps."""


@pytest.fixture(scope="module")
def simulation() -> Any:
    """A task without downloads; its reward is 1 at success, which terminates."""
    env = gym.make(
        "PushCube-v1",
        num_envs=1,
        obs_mode="rgb",
        reward_mode="sparse",
        max_episode_steps=LENGTH,
        sensor_configs={"width": 32, "height": 32},
        sim_backend="physx_cpu",
        render_backend="cpu",
    )
    yield env
    env.close()


def wrap(env: Any, model: KnownImageModel, **options: Any) -> Any:
    get_frames = frames_from_observation(front="sensor_data/base_camera/rgb")
    return erm.LearnedReward(env, model, instruction="push", gamma=GAMMA, get_frames=get_frames, **options)


def brightness(observation: dict[str, Any]) -> float:
    return float(observation["sensor_data"]["base_camera"]["rgb"].double().mean() / 255)


def place_cube_at_goal(simulation: Any) -> None:
    env = simulation.unwrapped
    position = env.goal_region.pose.p.clone()
    position[:, 2] = env.cube_half_size
    env.obj.set_pose(Pose.create_from_pq(position))


def run_episode(env: Any, simulation: Any, observation: Any, success_step: int | None) -> tuple[Any, list[str]]:
    """Check the reward of every step of an episode, and return the next observation and the ends of the last step."""
    action = torch.zeros(1, *env.single_action_space.shape)
    for step in range(1, LENGTH + 1):
        if step == success_step:
            place_cube_at_goal(simulation)
        before = brightness(observation)
        observation, reward, terminated, truncated, infos = env.step(action + 0.5)
        last = infos.get("final_observation", observation)
        expected = float(terminated) + GAMMA * brightness(last) * (not terminated) - before
        assert reward.dtype == torch.float32 and reward.tolist() == pytest.approx([expected], abs=1e-5)
        assert float(infos["potential"]) == pytest.approx(before, abs=1e-5)
        if terminated or truncated:
            break
    names = [name for name, flag in (("terminated", terminated), ("truncated", truncated)) if flag]
    return (observation, last), names


ENDS = ((None, ["truncated"]), (2, ["terminated"]), (LENGTH, ["terminated", "truncated"]), (None, ["truncated"]))
"""Step at which the cube is placed at the goal, and the flags that end the episode."""


def test_a_vector_that_resets_itself_is_wrapped_as_it_is(simulation: Any) -> None:
    model = KnownImageModel()
    env = wrap(ManiSkillVectorEnv(simulation), model)
    assert isinstance(env, LearnedReward)
    observation, _ = env.reset(seed=0)
    for success_step, ends in ENDS:
        (observation, last), names = run_episode(env, simulation, observation, success_step)
        assert names == ends
        assert abs(brightness(observation) - brightness(last)) > 1e-3, "the images tell a reset from its last state"
    assert model.kinds == {"Tensor"}


@pytest.mark.parametrize("is_vector", [True, False])
def test_environments_that_you_reset_are_wrapped_with_a_declared_mode(simulation: Any, is_vector: bool) -> None:
    inner = ManiSkillVectorEnv(simulation, auto_reset=False) if is_vector else simulation
    env = wrap(inner, KnownImageModel(), autoreset_mode="DISABLED")
    assert isinstance(env, LearnedReward if is_vector else TorchLearnedReward)
    observation, _ = env.reset(seed=0)
    for success_step, ends in ENDS:
        assert run_episode(env, simulation, observation, success_step)[1] == ends
        observation, _ = env.reset(options={"env_idx": torch.tensor([0])})


def test_success_of_the_model_ends_an_episode(simulation: Any) -> None:
    class DoneAtOnce(KnownImageModel):
        def first_output(self, state: Any) -> Any:
            output = super().first_output(state)
            output.success[:] = 1
            return output

    env = wrap(ManiSkillVectorEnv(simulation, auto_reset=False), DoneAtOnce(), autoreset_mode="DISABLED",
               success_source="model", success_patience=2, success_reward=3.0)  # fmt: skip
    before = brightness(env.reset(seed=0)[0])
    observation, reward, terminated, _, _ = env.step(torch.zeros(1, *env.single_action_space.shape))
    middle = brightness(observation)
    assert not terminated and float(reward) == pytest.approx(GAMMA * middle - before, abs=1e-5)
    _, reward, terminated, truncated, _ = env.step(torch.zeros(1, *env.single_action_space.shape))
    assert terminated and not truncated and float(reward) == pytest.approx(3.0 - middle, abs=1e-5)


def test_a_vector_that_claims_to_reset_itself_and_does_not_is_noticed(simulation: Any) -> None:
    """ManiSkill declares SAME_STEP with `auto_reset=False` too."""
    env = wrap(ManiSkillVectorEnv(simulation, auto_reset=False), KnownImageModel())
    env.reset(seed=0)
    with pytest.raises(ValueError, match="neither final_obs nor final_observation"):
        for _ in range(LENGTH):
            env.step(np.zeros((1, *env.single_action_space.shape), np.float32))

"""A policy of rsl_rl learns from a learned reward alone: a demonstration of the task, seen by mjlab's camera."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch
from mjlab.envs import ManagerBasedRlEnv
from mjlab.managers.reward_manager import RewardTermCfg
from mjlab.rl import (
    MjlabOnPolicyRunner,
    RslRlModelCfg,
    RslRlOnPolicyRunnerCfg,
    RslRlPpoAlgorithmCfg,
    RslRlVecEnvWrapper,
)
from push_env import position, push_env_cfg

import embodied_rm as erm
from embodied_rm.client import ShapingConfig
from embodied_rm.client.integrations.mjlab import MjlabRewardTerm

GAMMA = 0.98
ROWS, NUM_STEPS, ITERATIONS = 12, 24, 6


def demonstrate() -> erm.Episode:
    """The box moves from the start of the rail to its end."""
    env = ManagerBasedRlEnv(push_env_cfg(NUM_STEPS, NUM_STEPS), "cpu")
    env.reset()
    env.scene["box"].write_joint_state_to_sim(torch.linspace(0, 1, NUM_STEPS)[:, None], torch.zeros(NUM_STEPS, 1))
    env.sim.forward()
    env.sim.sense()
    frames = env.scene["above"].data.rgb.numpy().copy()
    return erm.Episode(name="demonstration", views={"above": frames}, instruction="push it to the end", fps=25.0)


def runner_cfg() -> RslRlOnPolicyRunnerCfg:
    noise = {"class_name": "GaussianDistribution", "init_std": 0.5, "std_type": "scalar"}
    return RslRlOnPolicyRunnerCfg(
        actor=RslRlModelCfg(hidden_dims=(32, 32), distribution_cfg=noise),
        critic=RslRlModelCfg(hidden_dims=(32, 32)),
        algorithm=RslRlPpoAlgorithmCfg(gamma=GAMMA, learning_rate=3e-3, entropy_coef=0.0),
        num_steps_per_env=NUM_STEPS,
        seed=0,
    )


def final_position(env: RslRlVecEnvWrapper, runner: MjlabOnPolicyRunner) -> float:
    """Mean position in m in the last step of an episode, by the mean action of the policy."""
    policy = runner.get_inference_policy("cpu")
    observation, _ = env.reset()
    with torch.inference_mode():
        for _ in range(NUM_STEPS - 1):
            observation = env.step(policy(observation))[0]
    return float(position(env.unwrapped).mean())


@pytest.mark.timeout(900)
def test_a_policy_learns_from_images_of_a_demonstration() -> None:
    torch.manual_seed(0)
    model = erm.from_demonstration(demonstrate())
    params = {
        "make_client": lambda: erm.LocalClient(model),
        "cameras": {"above": "above"},
        "instruction": "push it to the end",
        "shaping": ShapingConfig(gamma=GAMMA, score_every=4),
    }
    cfg = push_env_cfg(ROWS, NUM_STEPS, scale_rewards_by_dt=False)
    cfg.rewards["learned"] = RewardTermCfg(func=MjlabRewardTerm, weight=1.0, params=params)
    env = RslRlVecEnvWrapper(ManagerBasedRlEnv(cfg, "cpu"), clip_actions=1.0)
    runner = MjlabOnPolicyRunner(env, asdict(runner_cfg()), None, "cpu")
    assert final_position(env, runner) < 0.2
    runner.learn(num_learning_iterations=ITERATIONS)
    assert final_position(env, runner) > 0.5

"""Refinement with images that stay on the device: the same results, and no image is copied to the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, VectorWrapper
from torch.overrides import TorchFunctionMode

from embodied_rm.errors import UserError
from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.rl.credit.rollout_rewards import RolloutRewards
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.rl.iteration import make_learner, run_iteration
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.tabletop.envs import EnvConfig, learner_device
from embodied_sim.render.ray_tracer import DeviceRenderer
from embodied_sim.vec_env import TabletopVecEnv

SIZE, ROWS = 32, 3
DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
TO_HOST = ("cpu", "numpy", "tolist", "__array__")


class HostCopies(TorchFunctionMode):
    """Records the functions that copy an image to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[str] = []
        self.num_device_ops = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if args and isinstance(args[0], torch.Tensor) and args[0].dtype == torch.uint8 and args[0].ndim >= 4:
            self.copies += [name] * (name in TO_HOST)
            self.num_device_ops += name not in TO_HOST
        return func(*args, **(kwargs or {}))


class HostRenderingEnv(VectorWrapper):
    """The same environments without `render_tensor`."""

    @property
    def view_names(self) -> tuple[str, ...]:
        return self.env.view_names

    @property
    def instructions(self) -> tuple[str, ...]:
        return self.env.instructions

    def render_views(self, rows: np.ndarray) -> np.ndarray:
        return self.env.render_views(rows)


def envs(device: str) -> TabletopVecEnv:
    """Return environments with the engine and the renderer of GPUs, both on the device."""
    env = TabletopVecEnv(
        "lift_cube",
        ROWS,
        views=("front",),
        image_size=SIZE,
        backend="warp",
        device=device,
        autoreset_mode=AutoresetMode.DISABLED,
    )
    env.__dict__["renderer"] = DeviceRenderer(env._backend, env.view_names, SIZE)
    return env


def train_once(env: Any, device_name: str) -> tuple[dict[str, Any], torch.Tensor]:
    """Run one iteration of refinement, and return its row and the weights of the policy."""
    device = learner_device(EnvConfig(device=device_name))
    torch.manual_seed(0)
    net = ProgressNet(NetConfig(views=("front",), encoder=small_encoder_config("stride_tower_tiny", (SIZE, SIZE))))
    spec = PolicySpec(obs_dim=env.single_observation_space.shape[0], action_dim=4, hidden=(16,))
    config = RefineConfig(iterations=1, critic_warmup_iterations=0, rollout_steps=4)
    reward_env = LearnedRewardEnv(env, net.eval().to(device), config.reward, config.ppo.gamma)
    observation, _ = reward_env.reset(seed=0)
    learner = make_learner(GaussianPolicy(spec).to(device), config, reward_env.critic_obs_dim)
    rollout_rewards = RolloutRewards(
        reward_env.rule, reward_env.params, learner.policy, reward_env.critic_obs_dim, config.seed
    )
    _, row = run_iteration(reward_env, learner, rollout_rewards, observation, 0, config)
    row.pop("seconds")
    return row, torch.cat([p.detach().flatten() for p in learner.policy.parameters()])


@pytest.mark.parametrize("device", DEVICES)
def test_no_image_is_copied_to_the_host(device: str) -> None:
    with HostCopies() as direct:
        device_row, device_weights = train_once(envs(device), device)
    with HostCopies() as via_host:
        host_row, host_weights = train_once(HostRenderingEnv(envs(device)), device)
    assert direct.copies == [] and direct.num_device_ops > 0
    assert set(via_host.copies) == {"cpu", "numpy"}, "host copies are recorded"
    assert device_row["num_scores"] == host_row["num_scores"] == 4 * ROWS
    assert device_weights.device.type == device and torch.isfinite(device_weights).all()
    if device == "cpu":  # the physics of a GPU sums in any order
        assert device_row == host_row and torch.equal(device_weights, host_weights)


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch finds a GPU")
def test_torch_without_gpu_raises() -> None:
    with pytest.raises(UserError, match=r"env.device=cuda needs a torch with CUDA.*finds none.*env.device=cpu"):
        learner_device(EnvConfig(device="cuda"))

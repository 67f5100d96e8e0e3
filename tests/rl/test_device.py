"""The whole loop with images that stay where they are drawn: the same run, and none of them crosses the host."""

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
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.refine import make_learner, run_iteration
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.tabletop.envs import EnvConfig, learner_device
from embodied_sim.render.warp_device import DeviceRenderer
from embodied_sim.vec_env import TabletopVecEnv

SIZE, ROWS = 32, 3
TO_HOST = ("cpu", "numpy", "tolist", "__array__")


class HostCopies(TorchFunctionMode):
    """Which functions brought an image to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.kept = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if args and isinstance(args[0], torch.Tensor) and args[0].dtype == torch.uint8 and args[0].ndim >= 4:
            self.found += [name] * (name in TO_HOST)
            self.kept += name not in TO_HOST
        return func(*args, **(kwargs or {}))


class ByTheHost(VectorWrapper):
    """The same environments, which show themselves as arrays only."""

    @property
    def view_names(self) -> tuple[str, ...]:
        return self.env.view_names

    @property
    def instructions(self) -> tuple[str, ...]:
        return self.env.instructions

    def render_views(self, rows: np.ndarray) -> np.ndarray:
        return self.env.render_views(rows)


def envs() -> TabletopVecEnv:
    """Environments of the GPU's engine, drawn by the GPU's renderer, both on the processor."""
    env = TabletopVecEnv(
        "lift_cube", ROWS, views=("front",), image_size=SIZE, backend="warp", autoreset_mode=AutoresetMode.DISABLED
    )
    env.__dict__["renderer"] = DeviceRenderer(env._backend, env.view_names, SIZE)
    return env


def trained(env: Any) -> tuple[dict[str, Any], torch.Tensor]:
    """One iteration of refinement: its row, and the weights of the policy after."""
    device = learner_device(EnvConfig(device="cpu"))
    torch.manual_seed(0)
    net = ProgressNet(NetConfig(views=("front",), encoder=small_encoder_config("stride_tower_tiny", (SIZE, SIZE))))
    spec = PolicySpec(obs_dim=env.single_observation_space.shape[0], action_dim=4, hidden=(16,))
    config = RefineConfig(iterations=1, critic_warmup_iterations=0, rollout_steps=4)
    wrapped = LearnedRewardEnv(env, net.eval().to(device), config.reward, config.ppo.gamma)
    observation, _ = wrapped.reset(seed=0)
    learner = make_learner(GaussianPolicy(spec).to(device), config, wrapped.critic_obs_dim)
    settlement = RolloutRewards(wrapped.rule, wrapped.params, wrapped.critic_obs_dim, config.seed)
    _, row = run_iteration(wrapped, learner, settlement, observation, 0, config)
    row.pop("seconds")
    return row, torch.cat([p.detach().flatten() for p in learner.policy.parameters()])


def test_no_image_crosses_the_host_and_the_run_is_the_same_to_the_last_bit() -> None:
    with HostCopies() as direct:
        ours = trained(envs())
    with HostCopies() as around:
        theirs = trained(ByTheHost(envs()))
    assert direct.found == [] and direct.kept > 0
    assert set(around.found) == {"cpu", "numpy"}, "the witness sees nothing"
    assert ours[0] == theirs[0] and ours[0]["num_scores"] == 4 * ROWS
    assert torch.equal(ours[1], theirs[1])


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch finds a GPU")
def test_a_torch_that_finds_no_gpu_is_named() -> None:
    with pytest.raises(UserError, match=r"env.device=cuda needs a torch with CUDA.*finds none.*env.device=cpu"):
        learner_device(EnvConfig(device="cuda"))

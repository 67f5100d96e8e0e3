"""Where the simulator meets the learner: the worlds that a policy acts in, and those that judge it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from embodied_rm.errors import UserError
from embodied_rm.models.base import RewardModel
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.rl.envs.seeing import Seeing
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.seeds import stream_seed
from embodied_rm.rl.watch.crosscheck import CHECKED, Checked, crosscheck
from embodied_rm.rl.watch.judge import JUDGED, Verdict, evaluate_policy
from sim.holdout import Holdout
from sim.randomize import Randomization
from sim.robots import find_robot
from sim.vec_env import TabletopVecEnv


@dataclass(frozen=True, kw_only=True)
class WorldConfig:
    """The simulated worlds."""

    num_envs: int = 64
    views: tuple[str, ...] = ("front", "wrist")
    image_size: int = 64
    backend: str = "batch"
    device: str = "cpu"
    contacts: int = 0
    renderer: str = "auto"
    robot: str = "panda"
    tool: str = "tool"
    grip: str = "grip"
    faults: Path | None = None
    randomize: Randomization = field(default_factory=Randomization)


def make_worlds(
    task: str, config: WorldConfig, *, ends_on_success: bool, holdout: Holdout | None = None
) -> TabletopVecEnv:
    """Worlds that are reset by whoever wraps them. Raises `SimError` for an unknown task, robot, view, backend, device
    or renderer."""
    return TabletopVecEnv(
        task,
        config.num_envs,
        views=config.views,
        image_size=config.image_size,
        autoreset_mode=AutoresetMode.DISABLED,
        ends_on_success=ends_on_success,
        backend=config.backend,
        device=config.device,
        contacts=config.contacts,
        renderer=config.renderer,
        robot=find_robot(config.robot, config.tool, config.grip),
        faults=config.faults,
        randomize=config.randomize,
        holdout=holdout,
    )


def learner_device(config: WorldConfig) -> torch.device:
    """Where networks run that work for these worlds: on their device. Raises `UserError` if torch has none such."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"world.device=cuda needs a torch with CUDA that finds a GPU; torch {torch.__version__} here finds none: "
            "install a CUDA build of torch, or use world.device=cpu"
        )
    return torch.device(config.device)


def shown(worlds: VectorEnv, sees: str, eyes: RewardModel | None) -> VectorEnv:
    """The worlds as a policy sees them that `sees` this. Raises `UserError` where that takes a reward model and there
    is none."""
    if sees == "state":
        return worlds
    if eyes is None:
        raise UserError(f"a policy that sees {sees} needs the reward model that it was cloned with: checkpoint=")
    return Seeing(worlds, eyes)


def make_judge(
    task: str, config: WorldConfig, *, episodes: int, seed: int, sees: str, eyes: RewardModel | None
) -> Callable[[GaussianPolicy], Verdict]:
    """Who plays `episodes` seeded episodes with a policy that `sees` this and asks the simulator how they ended.

    Every policy gets the same episodes.
    """
    worlds = shown(make_worlds(task, config, ends_on_success=True), sees, eyes)
    return lambda policy: evaluate_policy(worlds, policy, episodes, seed)


def make_check(
    task: str,
    config: WorldConfig,
    learning: RefineConfig,
    *,
    sees: str,
    model: RewardModel,
    eyes: RewardModel | None,
) -> Callable[[GaussianPolicy, int], Checked]:
    """Who plays episodes with a policy that `sees` this, other ones after every iteration, and asks both the model and
    the simulator how they ended."""
    few = replace(config, num_envs=CHECKED)
    worlds = shown(make_worlds(task, few, ends_on_success=False), sees, eyes)
    asked = replace(learning.reward, rule="shaped", success="simulator")
    env = LearnedRewardEnv(worlds, model, asked, learning.ppo.gamma)
    return lambda policy, iteration: crosscheck(env, policy, stream_seed(learning.seed, JUDGED, 1 + iteration))

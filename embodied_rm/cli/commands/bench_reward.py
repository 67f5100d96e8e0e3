"""`embodied-rm bench reward`: what a learned reward adds to an iteration of refinement."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from gymnasium.spaces.utils import flatdim

from embodied_rm.cli.benchmarks import machine, put_section
from embodied_rm.cli.command import Command
from embodied_rm.cli.places import POLICY, REWARD_MODEL, checkpoint_in
from embodied_rm.cli.worlds import WorldConfig, make_worlds
from embodied_rm.errors import UserError
from embodied_rm.models.base import RewardModel
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.rl.envs.reward_config import RewardConfig
from embodied_rm.rl.iteration_cost import cost, iterations
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, load_policy
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.run import Reporter, RunFolder
from sim.vec_env import TabletopVecEnv


@dataclass(frozen=True, kw_only=True)
class BenchRewardConfig:
    """What is measured and how long."""

    task: str = "lift_cube"
    policy: Path | None = None
    checkpoint: Path | None = None
    score_every: int = 5
    rollout_steps: int = 60
    rounds: int = 5
    page: Path | None = None
    world: WorldConfig = field(default_factory=WorldConfig)

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise UserError(f"rounds must be >= 1, got {self.rounds}")


def start(config: BenchRewardConfig, run: RunFolder, reporter: Reporter) -> None:
    """Measure; leave numbers and perhaps a section of a page."""
    reward = RewardConfig(score_every=config.score_every, success_threshold=1.0)
    refinement = RefineConfig(rollout_steps=config.rollout_steps, reward=reward)
    learned, state = (make_worlds(config.task, config.world, ends_on_success=False) for _ in range(2))
    reporter.table(
        "bench reward",
        {
            "machine": machine(),
            "task": config.task,
            "environments": config.world.num_envs,
            "views": ", ".join(config.world.views),
            "scored": f"every {config.score_every} steps of {config.rollout_steps}",
        },
    )
    try:
        timed = iterations(
            learned, state, reward_model(config), starting_policy(config, learned), refinement, config.rounds
        )
        told = cost(list(reporter.track(timed, "iterations", total=2 * config.rounds)))
    finally:
        learned.close()
        state.close()
    reporter.table("seconds of an iteration", told)
    run.write_json("metrics.json", {"bench": {"machine": machine(), **told}})
    if config.page is not None:
        put_section(config.page, "bench reward", section(config, told))


def reward_model(config: BenchRewardConfig) -> RewardModel:
    """The model of the checkpoint, or one of the usual size with random weights: they change no time."""
    if config.checkpoint is not None:
        return load_progress_net(checkpoint_in(config.checkpoint, REWARD_MODEL))
    torch.manual_seed(0)
    return ProgressNet(NetConfig(views=config.world.views))


def starting_policy(config: BenchRewardConfig, worlds: TabletopVecEnv) -> GaussianPolicy:
    """The stored policy, or one of the usual size with random weights."""
    if config.policy is not None:
        return load_policy(checkpoint_in(config.policy, POLICY))
    torch.manual_seed(0)
    observation, action = worlds.single_observation_space, worlds.single_action_space
    return GaussianPolicy(
        PolicySpec(obs_dim=flatdim(observation), action_dim=flatdim(action), lengths=flatdim(observation))
    )


def section(config: BenchRewardConfig, told: dict[str, float]) -> str:
    """The results as Markdown."""
    shares = ", ".join(f"{name} {told[f'share_{name}']:.0%}" for name in ("physics", "render", "score", "learn", "act"))
    size = config.world.image_size
    return f"""## What a learned reward costs

`embodied-rm bench reward`: an iteration of refinement of `{config.task}`: {config.rollout_steps} steps of
{config.world.num_envs} environments, {len(config.world.views)} views of {size}x{size} scored every
{config.score_every} steps, then the update of PPO. Medians of {config.rounds}, in turn.

| reward | seconds an iteration | times |
|---|---|---|
| simulator state | {told["state_s"]:.2f} | 1 |
| learned, from pictures | {told["learned_s"]:.2f} | {told["learned_to_state"]:.2f} |

Shares of the learned one: {shares}. "score" is encoding and judging."""


COMMAND = Command(schema=BenchRewardConfig, start=start)

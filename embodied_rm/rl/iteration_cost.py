"""What a learned reward costs a refinement: whole iterations with it, and with a reward from simulator state."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from embodied_rm.models.base import RewardModel
from embodied_rm.rl.credit.settlement import Settlement
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.rl.envs.loop_stats import STAGES
from embodied_rm.rl.envs.reward_env import RewardEnv
from embodied_rm.rl.envs.state_env import StateRewardEnv
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.rl.refine import guided, iterate, make_learner
from embodied_rm.rl.refine_config import RefineConfig


@dataclass(frozen=True, kw_only=True)
class Timing:
    """One iteration."""

    reward: str
    """learned or state."""
    seconds: float
    stages: Mapping[str, float]
    """Stage -> seconds."""


def iterations(
    learned: gym.vector.VectorEnv,
    state: gym.vector.VectorEnv,
    model: RewardModel,
    policy: GaussianPolicy,
    config: RefineConfig,
    rounds: int,
) -> Iterator[Timing]:
    """`rounds` iterations of refinement with each reward, in turn; a first one of each is not told (it is slower).

    `learned` and `state` are the same worlds twice; `policy` stays as it is.
    """
    gamma = config.ppo.gamma
    of_simulator = replace(config.reward, rule="dense", success="simulator")
    sides = {
        "learned": _Side(LearnedRewardEnv(learned, model, config.reward, gamma), policy, config),
        "state": _Side(StateRewardEnv(state, of_simulator, gamma), policy, config),
    }
    for number in range(rounds + 1):
        for name, side in sides.items():
            started = time.perf_counter()
            stages = side.iterate()
            if number:
                yield Timing(reward=name, seconds=time.perf_counter() - started, stages=stages)


class _Side:
    """A refinement under way."""

    def __init__(self, env: RewardEnv, policy: GaussianPolicy, config: RefineConfig) -> None:
        self._env, self._config = env, config
        self._observation: npt.NDArray[np.floating] = env.reset(seed=config.seed)[0]
        self._learner = make_learner(copy.deepcopy(policy), config, env.critic_size)
        self._settlement = Settlement(env.rule, env.terms, env.critic_size, config.seed)

    def iterate(self) -> Mapping[str, float]:
        """One iteration, in which everything learns; the seconds of its stages."""
        after_warmup = self._config.warmup_iterations
        self._observation, row = iterate(
            self._env,
            self._learner,
            self._settlement,
            self._observation,
            after_warmup,
            self._config,
            guided(self._env.rule, self._config, []),
        )
        return row["seconds"]


def cost(timings: Sequence[Timing]) -> dict[str, float]:
    """Median seconds of an iteration with each reward, their ratio, and each stage's share of the learned one."""
    seconds = {name: median(t.seconds for t in timings if t.reward == name) for name in ("learned", "state")}
    learned = [t for t in timings if t.reward == "learned"]
    timed = [stage for stage in STAGES if stage != "act"]
    shares = {stage: median(t.stages[stage] / t.seconds for t in learned) for stage in timed}
    return {
        "learned_s": seconds["learned"],
        "state_s": seconds["state"],
        "learned_to_state": seconds["learned"] / seconds["state"],
        **{f"share_{stage}": share for stage, share in shares.items()},
        "share_act": 1 - sum(shares.values()),
    }

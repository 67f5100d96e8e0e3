"""Duration of refinement iterations with a learned reward, and with one from the simulator's state."""

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from embodied_rm.models.reward_model import RewardModel
from embodied_rm.rl.credit.rollout_rewards import RolloutRewards
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv, StateRewardEnv
from embodied_rm.rl.envs.reward_env import RewardEnv
from embodied_rm.rl.envs.rollout_stats import PHASES
from embodied_rm.rl.iteration import make_heuristic, make_learner, run_iteration
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.rl.refine_config import RefineConfig


@dataclass(frozen=True, kw_only=True)
class IterationTiming:
    """Duration of one iteration."""

    reward: str  # learned or state
    seconds: float
    phase_seconds: Mapping[str, float]  # phase -> seconds


def time_iterations(
    learned_env: gym.vector.VectorEnv,
    state_env: gym.vector.VectorEnv,
    model: RewardModel,
    policy: GaussianPolicy,
    config: RefineConfig,
    rounds: int,
) -> Iterator[IterationTiming]:
    """Time `rounds` iterations of refinement with each reward, in turn. `policy` does not change.

    A first iteration of each is not reported, because it is slower. Both environments are equal.
    """
    gamma = config.ppo.gamma
    simulator_reward = replace(config.reward, rule="dense", success_source="simulator")
    runs = {
        "learned": _TimedRun(LearnedRewardEnv(learned_env, model, config.reward, gamma), policy, config),
        "state": _TimedRun(StateRewardEnv(state_env, simulator_reward, gamma), policy, config),
    }
    for round_index in range(rounds + 1):
        for name, run in runs.items():
            start_time = time.perf_counter()
            phase_seconds = run.iterate()
            seconds = time.perf_counter() - start_time
            if round_index:
                yield IterationTiming(reward=name, seconds=seconds, phase_seconds=phase_seconds)


class _TimedRun:
    """A refinement whose iterations are timed."""

    def __init__(self, env: RewardEnv, policy: GaussianPolicy, config: RefineConfig) -> None:
        self._env, self._config = env, config
        self._observation: npt.NDArray[np.floating] = env.reset(seed=config.seed)[0]
        self._learner = make_learner(copy.deepcopy(policy), config, env.critic_obs_dim)
        self._rollout_rewards = RolloutRewards(env.rule, env.params, policy, env.critic_obs_dim, config.seed)

    def iterate(self) -> Mapping[str, float]:
        """Run one iteration, after the critic warm-up, and return the seconds of its phases."""
        env, config, after_warmup = self._env, self._config, self._config.critic_warmup_iterations
        heuristic, rewards = make_heuristic(env.rule, config, []), self._rollout_rewards
        self._observation, row = run_iteration(
            env, self._learner, rewards, self._observation, after_warmup, config, heuristic
        )
        return row["seconds"]


def summarize_cost(timings: Sequence[IterationTiming]) -> dict[str, float]:
    """Return the median seconds per reward, their ratio, and the fraction of each phase with the learned reward."""
    seconds = {name: median(t.seconds for t in timings if t.reward == name) for name in ("learned", "state")}
    learned = [t for t in timings if t.reward == "learned"]
    phases = [phase for phase in PHASES if phase != "act"]
    fractions = {phase: median(t.phase_seconds[phase] / t.seconds for t in learned) for phase in phases}
    return {
        "learned_s": seconds["learned"],
        "state_s": seconds["state"],
        "learned_over_state": seconds["learned"] / seconds["state"],
        **{f"fraction_{phase}": fraction for phase, fraction in fractions.items()},
        "fraction_act": 1 - sum(fractions.values()),
    }

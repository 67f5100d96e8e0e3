"""`ProgramPlanner`: acts in simulated environments so that the output of a reward program becomes large."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from embodied_rm.programs.interpreter import evaluate
from embodied_rm.programs.predictive_sampling import PlannerConfig, interpolate_knots, sample_knots, shift_knots
from embodied_rm.programs.program import Program
from embodied_rm.rewards.transitions import FloatArray
from embodied_rm.tabletop.envs import EnvConfig, make_envs
from embodied_rm.tabletop.program_states import state_values
from embodied_rm.types import IntArray
from embodied_sim.arm import ACTION_DIM
from embodied_sim.snapshot import take_rows
from embodied_sim.vec_env import TabletopVecEnv


class ProgramPlanner:
    """Predictive sampling in copies of N environments. Nothing is trained."""

    def __init__(
        self, envs: TabletopVecEnv, task: str, env_config: EnvConfig, program: Program, config: PlannerConfig, seed: int
    ) -> None:
        """
        Args:
            envs: The environments to act in.
            task: Their task, as they were made with.
            env_config: Their settings.
            program: The sum of its output over a plan is maximized; where it is undefined, it counts as 0.
            config: Settings of the planner.
            seed: Of the noise of plans.
        """
        self._envs, self._program, self._config = envs, program, config
        num_copies = envs.num_envs * config.num_samples
        copies = replace(env_config, num_envs=num_copies, views=(), divergence_dump_dir=None)
        self._copies = make_envs(task, copies, ends_on_success=False)
        self._rng = np.random.default_rng(seed)
        self._knots: FloatArray = np.zeros((envs.num_envs, config.num_knots, ACTION_DIM))
        self._step = 0  # step of the plans that is executed next

    def act(self, observation: FloatArray, new_episodes: IntArray) -> FloatArray:
        """Return the next action of each environment, float32 [N, 4]; it is a `PolicyFn`."""
        if len(new_episodes) or self._step == self._config.replan_steps:
            self._knots = shift_knots(self._knots, self._config.horizon, self._step)
            self._knots[new_episodes] = 0
            self._plan()
            self._step = 0
        times = np.array([float(self._step)])
        self._step += 1
        return interpolate_knots(self._knots, self._config.horizon, times)[:, 0].astype(np.float32)

    def close(self) -> None:
        """Free the copies of the environments."""
        self._copies.close()

    def _plan(self) -> None:
        """Replace each plan by the best of several around it."""
        config, num_envs = self._config, self._envs.num_envs
        candidates = sample_knots(self._knots, config.num_samples, config.noise_std, self._rng)
        self._copies.restore(take_rows(self._envs.snapshot(), np.arange(num_envs).repeat(config.num_samples)))
        times = np.arange(config.horizon, dtype=np.float64)
        actions = interpolate_knots(candidates, config.horizon, times).reshape(-1, config.horizon, ACTION_DIM)
        total = np.zeros(len(actions))
        for step in range(config.horizon):
            *_, infos = self._copies.step(actions[:, step].astype(np.float32))
            output = evaluate(self._program, state_values(self._copies.state, self._copies.start_state))
            total += np.nan_to_num(output[self._program.output], nan=0, posinf=0, neginf=0)
            total[infos["diverged"]] = -np.inf
        best = total.reshape(num_envs, config.num_samples).argmax(axis=1)
        self._knots = candidates[np.arange(num_envs), best]

"""Scripted policies for data collection: the expert and deliberate failures, with random speed and noise."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from embodied_sim.plan_variants import extend_plan
from embodied_sim.sim_errors import lookup
from embodied_sim.task import POST_SUCCESS_OUTCOME, SUCCESS_OUTCOME, WRONG_OBJECT_OUTCOME, Task
from embodied_sim.vec_env import TabletopVecEnv
from embodied_sim.waypoints import Plan, PlanFollower

__all__ = ["POST_SUCCESS_OUTCOME", "SUCCESS_OUTCOME", "WRONG_OBJECT_OUTCOME", "ScriptedPolicy", "available_outcomes"]


def available_outcomes(env: TabletopVecEnv) -> tuple[str, ...]:
    """Return the outcomes that can be scripted: "success", "post_success" if the task has it, and its failures."""
    return tuple(plans_by_outcome(env.task))


def plans_by_outcome(task: Task) -> dict[str, tuple[Plan, ...]]:
    """Return outcome -> plans that lead to it; outcomes without plans are left out."""
    post_success = extend_plan(task.expert_plan(), task.post_success_plans())
    candidates = {SUCCESS_OUTCOME: (task.expert_plan(),), POST_SUCCESS_OUTCOME: post_success, **task.failure_plans()}
    return {outcome: plans for outcome, plans in candidates.items() if plans}


class ScriptedPolicy:
    """Follow plans in every row; each reset of a row draws a new plan, speed and noise level."""

    def __init__(
        self,
        env: TabletopVecEnv,
        outcomes: Sequence[str] = (SUCCESS_OUTCOME,),
        *,
        seed: int = 0,
        noise: float = 0.0,
        speed_range: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        """Prepare the plans. Raises `SimError` if the task has no plan for an outcome.

        `outcomes` are assigned in turn. `noise` is the maximum standard deviation of the noise that is added to the
        motion. Speeds are relative to full speed; with a range of them, time does not predict progress. `seed` is that
        of plans, speeds and noise.
        """
        known_plans = plans_by_outcome(env.task)
        self._plans = [(outcome, lookup(known_plans, outcome, "outcome")) for outcome in outcomes]
        self._env = env
        self._rng = np.random.default_rng(seed)
        self._max_noise_std, self._speed_range = noise, speed_range
        self._noise_std = np.zeros(env.num_envs)
        self._num_assigned = 0
        self._follower = PlanFollower(env.num_envs)
        self.outcomes = np.full(env.num_envs, outcomes[0], dtype=object)
        """[N]: the intended outcome of each row."""

    def reset(self, rows: npt.NDArray[np.int64]) -> None:
        """Draw new plans for `rows`, whose episodes were just reset."""
        assigned = []
        for row in rows:
            outcome, plans = self._plans[self._num_assigned % len(self._plans)]
            self._num_assigned += 1
            self.outcomes[row] = outcome
            assigned.append(plans[self._rng.integers(len(plans))])
        speed = self._rng.uniform(*self._speed_range, size=len(rows))
        self._noise_std[rows] = self._rng.uniform(0, self._max_noise_std, size=len(rows))
        self._follower.assign(rows, assigned, speed, self._env.state)

    def act(self) -> npt.NDArray[np.float32]:
        """Return actions float32 [N, 4] in [-1, 1] for the current state."""
        action = self._follower.act(self._env.state)
        action[:, :3] += self._noise_std[:, None] * self._rng.standard_normal((len(action), 3))
        return np.clip(action, -1.0, 1.0).astype(np.float32)

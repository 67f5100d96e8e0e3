"""Who acts when data is recorded: the scripted expert, or somebody who fails on purpose; own pace, own noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from embodied_sim.sim_errors import lookup
from embodied_sim.task import POST_SUCCESS_OUTCOME, SUCCESS_OUTCOME, WRONG_OBJECT_OUTCOME, Task
from embodied_sim.vec_env import TabletopVecEnv
from embodied_sim.waypoints import Plan, PlanFollower, extend_plan

__all__ = ["POST_SUCCESS_OUTCOME", "SUCCESS_OUTCOME", "WRONG_OBJECT_OUTCOME", "ScriptedPolicy", "available_outcomes"]


def available_outcomes(env: TabletopVecEnv) -> tuple[str, ...]:
    """What an actor can be asked to do in that environment: "success", "afterwards" where its task says how one goes on
    after it, and each kind of failure."""
    return tuple(plans_by_outcome(env.task))


def plans_by_outcome(task: Task) -> dict[str, tuple[Plan, ...]]:
    """Outcome -> the plans of those who are after it; outcomes that the task has no plan for are not in it."""
    post_success = extend_plan(task.expert_plan(), task.post_success_plans())
    candidates = {SUCCESS_OUTCOME: (task.expert_plan(),), POST_SUCCESS_OUTCOME: post_success, **task.failure_plans()}
    return {outcome: plans for outcome, plans in candidates.items() if plans}


class ScriptedPolicy:
    """Plays plans in every row; a new plan, pace and noise level are drawn at each of the row's resets.

    `kinds`: the outcomes to draw from, evenly. `noise`: largest standard deviation of the noise added to actions.
    Pace is drawn from `pace` (share of full speed), so that time tells nothing about progress.
    """

    def __init__(self, env: TabletopVecEnv, outcomes: Sequence[str] = (SUCCESS_OUTCOME,), *, seed: int = 0, noise: float = 0.0,
                 speed_range: tuple[float, float] = (1.0, 1.0)) -> None:  # fmt: skip
        known_plans = plans_by_outcome(env.task)
        self._plans = [(outcome, lookup(known_plans, outcome, "outcome")) for outcome in outcomes]
        self._env = env
        self._rng = np.random.default_rng(seed)
        self._max_noise_std, self._speed_range = noise, speed_range
        self._noise_std = np.zeros(env.num_envs)
        self._num_assigned = 0
        self._follower = PlanFollower(env.num_envs)
        self.outcomes = np.full(env.num_envs, outcomes[0], dtype=object)
        """[N]: the outcome that each row is after."""

    def reset(self, rows: npt.NDArray[np.int64]) -> None:
        """Draw who acts in `rows`, whose episodes have just been reset."""
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
        """Actions float32 [N, 4] in [-1, 1] for the worlds as they are now."""
        action = self._follower.act(self._env.state)
        action[:, :3] += self._noise_std[:, None] * self._rng.standard_normal((len(action), 3))
        return np.clip(action, -1.0, 1.0).astype(np.float32)

"""Who acts when data is recorded: the scripted expert, or somebody who fails on purpose; own pace, own noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sim.errors import lookup
from sim.experts import Plan, PlanFollower, going_on
from sim.task import AFTERWARDS, SUCCESS, WRONG_OBJECT, Task
from sim.vec_env import TabletopVecEnv

__all__ = ["AFTERWARDS", "SUCCESS", "WRONG_OBJECT", "ScriptedActor", "outcomes"]


def outcomes(env: TabletopVecEnv) -> tuple[str, ...]:
    """What an actor can be asked to do in that environment: "success", "afterwards" where its task says how one goes on
    after it, and each kind of failure."""
    return tuple(plans_of(env.task))


def plans_of(task: Task) -> dict[str, tuple[Plan, ...]]:
    """Outcome -> the plans of those who are after it; outcomes that the task has no plan for are not in it."""
    after = going_on(task.expert(), task.afterwards())
    known = {SUCCESS: (task.expert(),), AFTERWARDS: after, **task.failures()}
    return {kind: plans for kind, plans in known.items() if plans}


class ScriptedActor:
    """Plays plans in every row; a new plan, pace and noise level are drawn at each of the row's resets.

    `kinds`: the outcomes to draw from, evenly. `noise`: largest standard deviation of the noise added to actions.
    Pace is drawn from `pace` (share of full speed), so that time tells nothing about progress.
    """

    def __init__(self, env: TabletopVecEnv, kinds: Sequence[str] = (SUCCESS,), *, seed: int = 0, noise: float = 0.0,
                 pace: tuple[float, float] = (1.0, 1.0)) -> None:  # fmt: skip
        plans = plans_of(env.task)
        self._plans = [(kind, lookup(plans, kind, "outcome")) for kind in kinds]
        self._env = env
        self._rng = np.random.default_rng(seed)
        self._noise, self._pace = noise, pace
        self._level = np.zeros(env.num_envs)
        self._drawn = 0
        self._follower = PlanFollower(env.num_envs)
        self.kinds = np.full(env.num_envs, kinds[0], dtype=object)
        """[N]: the outcome that each row is after."""

    def begin(self, rows: npt.NDArray[np.int64]) -> None:
        """Draw who acts in `rows`, whose episodes have just been reset."""
        chosen = []
        for row in rows:
            kind, plans = self._plans[self._drawn % len(self._plans)]
            self._drawn += 1
            self.kinds[row] = kind
            chosen.append(plans[self._rng.integers(len(plans))])
        pace = self._rng.uniform(*self._pace, size=len(rows))
        self._level[rows] = self._rng.uniform(0, self._noise, size=len(rows))
        self._follower.assign(rows, chosen, pace, self._env.state)

    def act(self) -> npt.NDArray[np.float32]:
        """Actions float32 [N, 4] in [-1, 1] for the worlds as they are now."""
        action = self._follower.act(self._env.state)
        action[:, :3] += self._level[:, None] * self._rng.standard_normal((len(action), 3))
        return np.clip(action, -1.0, 1.0).astype(np.float32)

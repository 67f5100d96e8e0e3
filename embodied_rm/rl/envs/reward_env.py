"""The vector environment whose steps are scored: paid by a rule, its episodes ended by a verdict of success.

Order of one step: physics; render and score the rows that are due, ended episodes at their last frame; judge; pay;
reset the ended rows; only then show the model the first frame of the new episodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from embodied_rm.checkpoint_io import under_prefix, with_prefix
from embodied_rm.errors import UserError
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rewards.steps import Floats, Steps, Terms
from embodied_rm.rl.envs.curriculum import Curriculum
from embodied_rm.rl.envs.fit import refuse_leaked_success, refuse_unfit, stores_episodes, wrapped
from embodied_rm.rl.envs.loop_stats import HOVER, LoopStats
from embodied_rm.rl.envs.reward_config import RewardConfig
from embodied_rm.shaping import careful_potential, held_potential, verdicts_in_a_row
from embodied_rm.types import Array, BoolArray, IntArray, Progress

CARRIED = ("phi", "since", "streak", "judged", "change", "return", "state")
"""What is carried from step to step for each row, [N, ...]."""


def has_episodes(state: Mapping[str, Tensor]) -> bool:
    """Whether what `RewardEnv.state` gave holds the episodes under way."""
    return bool(under_prefix("worlds", state))


class RewardEnv(gym.vector.VectorWrapper, ABC):
    """A vector environment with SAME_STEP autoreset whose rewards and successes come from scores of its states.

    Wraps any `VectorEnv` with disabled autoreset that puts `diverged` and `success` (bool [N]) in its infos. Its own
    reward is ignored; its success is passed on, and used only with `success=simulator`. `infos` of a step hold
    `final_obs` [N, D], the true next observation of every row; `valid` [N] (false: the simulation diverged, do not
    learn; its reward is NaN); `critic_obs` and `final_critic_obs` [N, C], the whole state where `infos["state"]` of the
    environment tells more than its observation; `potential` and `next_potential` [N], Phi before and after the step;
    `learned_success` [N], the model's verdict, and `success` [N], the simulator's; and `steps`, what the rule pays
    from. With a rule that is not paid at once the reward is the task's, and the learner pays the rollout
    (`embodied_rm.rl.credit.settlement`). Raises `UserError` for an environment that does not fit.
    """

    curriculum: Curriculum | None = None
    """Where episodes start; None: where the environment lets them."""

    def __init__(self, env: gym.vector.VectorEnv, config: RewardConfig, gamma: float) -> None:
        if any(isinstance(layer, RewardEnv) for layer in wrapped(env)):
            raise UserError("the environment already has a learned reward; a second one would pay progress twice")
        self.rule = find_rule(config.rule)
        limited = ("max_episode_steps",) if self.rule.needs in ("limit", "references") else ()
        refuse_unfit(env, (*self.needed, *limited))
        super().__init__(env)
        self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.config = config
        self.terms = Terms(gamma=gamma, scale=config.scale, limit=getattr(env, "max_episode_steps", None))
        self.stats = LoopStats()

    needed: ClassVar[tuple[str, ...]] = ()
    """What the environment must have to be scored."""

    @abstractmethod
    def _begin(self, rows: IntArray, infos: Mapping[str, Any]) -> Floats:
        """Open new episodes in `rows` (the first time: all); the potentials [n] of their first states."""

    @abstractmethod
    def _score(self, rows: IntArray, infos: Mapping[str, Any]) -> Progress:
        """Judge the present states of `rows`; `infos` [N] are those of the step that led there."""

    @abstractmethod
    def _embedding(self) -> Floats:
        """[N, D]: what was made of the states last scored."""

    def reset(self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None) -> Any:
        n = self.num_envs
        starts = seed if self.curriculum is None else self.curriculum.draw(np.arange(n))
        observation, infos = self.env.reset(seed=starts, options=options)  # type: ignore[arg-type]
        # A copy: environments may hand out the same memory at every step.
        self._observation: Array = np.array(observation, np.float32)
        self._since: IntArray = np.zeros(n, np.int64)
        self._streak: IntArray = np.zeros(n, np.int64)
        self._judged, self._change, self._return = (np.zeros(n) for _ in range(3))
        self._state: Array = np.array(infos.get("state", self._observation), np.float32)
        self._phi = self._begin(np.arange(n), infos)
        return self._observation, infos

    def refuse_what_cannot_be_paid(self, rollout_steps: int) -> None:
        """Raises `UserError` where the rule needs what this model or such a rollout does not have; after a reset."""
        if self.rule.needs == "embedding":
            try:
                self._embedding()
            except UserError as error:
                raise UserError(f"rule={self.config.rule}: {error}") from error
        self.config.refuse_silence(self._tells_success)
        self.config.refuse_rollouts(rollout_steps, self.terms.limit)

    def step(self, actions: npt.NDArray[Any]) -> Any:
        with self.stats.timed("physics"):
            given, _, failed, timed_out, inner = self.env.step(actions)
        observation = np.array(given, np.float32)
        state = np.array(inner.get("state", observation), np.float32)
        diverged: BoolArray = inner["diverged"]
        refuse_leaked_success(failed & inner["success"] & ~diverged)
        told = inner["success"] & ~diverged
        over = failed | timed_out | (told & (self.config.success == "simulator"))
        self._since += 1
        due = ((self._since >= self.config.score_every) | over) & ~diverged
        next_phi, learned = self._judge(due, inner)
        achieved = told if self.config.success == "simulator" else learned
        terminated = (failed | achieved) & ~diverged
        truncated = (timed_out & ~terminated) | diverged
        ended = terminated | truncated
        steps = self._steps(next_phi, achieved, terminated, ended, diverged)
        reward = np.where(diverged, np.nan, self._paid(steps))
        infos = {
            **inner,
            # A diverged state may hold anything; its transition is masked, so the last sound observation stands in.
            "final_obs": np.where(diverged[:, None], self._observation, observation),
            "critic_obs": self._state,
            "final_critic_obs": np.where(diverged[:, None], self._state, state),
            "valid": ~diverged,
            "learned_success": learned,
            "potential": self._phi,
            "next_potential": next_phi,
            "steps": steps,
        }
        self._count(reward, ended, infos)
        self._phi, self._observation, self._state = next_phi, observation, state
        if ended.any():
            if self.curriculum is not None:
                whole = np.flatnonzero(ended & ~diverged)
                self.curriculum.learn(whole, achieved[whole])
            self._restart(ended)
        return self._observation, reward, terminated, truncated, infos

    def state(self) -> dict[str, Tensor]:
        """Everything that the episodes under way, and those that follow, depend on; for `restore`.

        Without the episodes if the environment has no `snapshot`, or the memory of the model cannot be stored: then
        they begin anew after a restart.
        """
        starts = {} if self.curriculum is None else with_prefix("starts", self.curriculum.state())
        if not (stores_episodes(self.env) and self._storable):
            return starts
        snapshot = self.env.snapshot()  # type: ignore[attr-defined]
        worlds = {name: torch.from_numpy(np.array(array)) for name, array in snapshot.items()}
        mine = {name: torch.from_numpy(np.array(getattr(self, f"_{name}"))) for name in CARRIED}
        return {**with_prefix("worlds", worlds), **mine, **with_prefix("memory", self._memory_state()), **starts}

    def restore(self, state: dict[str, Tensor], seed: int | list[int]) -> Array:
        """Go on from what `state` of such an environment gave, with new episodes from `seed` where it has none; the
        observation then. It must have been reset before."""
        if self.curriculum is not None:
            self.curriculum.restore(under_prefix("starts", state))
        if not has_episodes(state):
            return np.array(self.reset(seed=seed)[0], np.float32)
        worlds = {name: tensor.numpy() for name, tensor in under_prefix("worlds", state).items()}
        self._observation = np.array(self.env.restore(worlds), np.float32)  # type: ignore[attr-defined]
        for name in CARRIED:
            setattr(self, f"_{name}", state[name].numpy().copy())
        self._restore_memory(under_prefix("memory", state))
        return self._observation

    @property
    def _tells_success(self) -> bool:
        """Whether scores say when the task is done."""
        return True

    @property
    def _storable(self) -> bool:
        """Whether a file can hold what the judge remembers of the episodes."""
        return True

    def _memory_state(self) -> dict[str, Tensor]:
        """What the judge remembers of the episodes."""
        return {}

    def _restore_memory(self, state: dict[str, Tensor]) -> None:
        """Bring that back."""

    @property
    def critic_size(self) -> int:
        """Columns of what the critic sees; known after the first reset."""
        return self._state.shape[1]

    def drain(self) -> LoopStats:
        """The statistics since the last call."""
        drained, self.stats = self.stats, LoopStats()
        return drained

    def _steps(
        self, next_phi: Floats, achieved: BoolArray, terminated: BoolArray, ended: BoolArray, diverged: BoolArray
    ) -> Steps:
        return Steps(
            task=self.config.success_reward * achieved,
            achieved=achieved,
            terminated=terminated,
            ended=ended,
            potential=self._phi,
            next_potential=next_phi,
            change=self._change.copy(),
            success=self._judged.copy(),
            embedding=self._embedding() if self.rule.needs == "embedding" else None,
            diverged=diverged,
        )

    def _paid(self, steps: Steps) -> Floats:
        return self.rule.pay(steps, self.terms) if self.rule.at_once else steps.task

    def _judge(self, due: BoolArray, infos: Mapping[str, Any]) -> tuple[Floats, BoolArray]:
        """Score the rows that are due. Every row's next potential [N], and where success is now sustained [N]."""
        rows = np.flatnonzero(due)
        achieved = np.zeros(self.num_envs, bool)
        if not len(rows):
            return self._phi, achieved
        progress = self._score(rows, infos)
        silent = np.isnan(progress.success)
        self.config.refuse_silence(not (silent & progress.valid).any())
        scored, scored_phi = due.copy(), self._phi.copy()
        careful = careful_potential(progress.value, progress.spread, self.config.caution)
        scored[rows], scored_phi[rows] = progress.valid, careful
        self._since[rows] = 0
        positive = progress.success >= self.config.success_threshold
        self._streak[rows] = verdicts_in_a_row(self._streak[rows], positive, progress.valid)
        self._judged[rows] = np.where(progress.valid & ~silent, progress.success, self._judged[rows])
        achieved[rows] = progress.valid & (self._streak[rows] >= self.config.success_patience)
        self.stats.scored += len(rows)
        self.stats.invalid += int((~progress.valid).sum())
        self.stats.verdicts += int((positive & progress.valid).sum())
        self.stats.spread += float(progress.spread[progress.valid].sum())
        self.stats.known += int(np.isfinite(progress.ood).sum())
        self.stats.unusual += int((progress.ood > 1).sum())
        self._change = np.where(scored, scored_phi - self._phi, self._change)
        return held_potential(self._phi, scored_phi, scored), achieved

    def _restart(self, ended: BoolArray) -> None:
        """Reset the ended rows and open their new episodes."""
        with self.stats.timed("physics"):
            starts = None if self.curriculum is None else self.curriculum.draw(np.flatnonzero(ended))
            fresh, infos = self.env.reset(seed=starts, options={"reset_mask": ended})  # type: ignore[arg-type]
        self._observation = np.where(ended[:, None], fresh, self._observation)
        self._state = np.where(ended[:, None], infos.get("state", fresh), self._state)
        rows = np.flatnonzero(ended)
        for column in (self._since, self._streak, self._judged, self._change, self._return):
            column[rows] = 0
        self._phi = self._phi.copy()
        self._phi[rows] = self._begin(rows, infos)

    def _count(self, reward: Floats, ended: BoolArray, infos: Mapping[str, Any]) -> None:
        valid = infos["valid"]
        self._return += np.where(valid, reward, 0.0)
        whole = ended & valid
        self.stats.steps += self.num_envs
        self.stats.faults += int((~valid).sum())
        self.stats.episodes += int(whole.sum())
        self.stats.shaped_return += float(self._return[whole].sum())
        self.stats.successes += int((whole & infos["steps"].achieved).sum())
        self.stats.learned_successes += int((whole & infos["learned_success"]).sum())
        self.stats.simulator_successes += int((whole & infos["success"]).sum())
        reached = np.where(infos["steps"].achieved, 1.0, infos["next_potential"])
        self.stats.height += float(reached[whole].sum())
        idle = whole & ~infos["steps"].terminated
        self.stats.hovers += int((idle & (infos["next_potential"] >= HOVER)).sum())

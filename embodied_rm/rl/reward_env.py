"""The vector environment whose reward is learned: shaped progress plus the model's own verdict of success.

Order of one step: physics; render and score the rows that are due, ended episodes at their last frame; judge; pay;
reset the ended rows; only then show the model the first frame of the new episodes.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from embodied_rm.errors import UserError
from embodied_rm.models.base import Memory, RewardModel
from embodied_rm.models.plans import Plans
from embodied_rm.shaping import held_potential, shaped_reward
from embodied_rm.types import Array, BoolArray, IntArray, Progress, Views

STAGES = ("physics", "render", "score", "learn")


@dataclass(frozen=True, kw_only=True)
class RewardConfig:
    """How a model's judgement becomes a reward. The discount belongs to the learner (`PPOConfig.gamma`)."""

    scale: float = 1.0
    """Weight of the shaping: the whole task, from potential 0 to 1, is worth this much."""
    score_every: int = 1
    """Steps between two scores of a row; an episode's end is always scored."""
    success_threshold: float = 0.5
    """Probability of success from which a score counts as the verdict "done"."""
    success_patience: int = 5
    """Consecutive verdicts that end an episode as a success."""
    success_reward: float = 1.0

    def __post_init__(self) -> None:
        if self.score_every < 1 or self.success_patience < 1:
            raise UserError(
                f"score_every and success_patience must be >= 1, got {self.score_every} and {self.success_patience}"
            )
        if not 0 < self.success_threshold <= 1:
            raise UserError(f"success_threshold must be in (0, 1], got {self.success_threshold}")
        if self.scale < 0 or self.success_reward < 0:
            raise UserError(f"scale and success_reward must be >= 0, got {self.scale} and {self.success_reward}")


@dataclass
class LoopStats:
    """What happened since the last `LearnedRewardEnv.drain`, and where the time went."""

    steps: int = 0
    """Environment steps, all rows."""
    episodes: int = 0
    """Episodes that ended, faults left out."""
    learned_successes: int = 0
    """Episodes ended by the model's sustained verdict."""
    simulator_successes: int = 0
    """Episodes in whose last state the simulator says success: for judging, never for learning."""
    faults: int = 0
    """Episodes dropped because the simulation diverged."""
    shaped_return: float = 0.0
    """Sum of the undiscounted returns of the ended episodes."""
    scored: int = 0
    invalid: int = 0
    """Scores that the model could not give."""
    verdicts: int = 0
    """Valid scores that said "done"."""
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[stage] += time.perf_counter() - start


class RewardEnv(gym.vector.VectorWrapper, ABC):
    """A vector environment with SAME_STEP autoreset whose rewards and successes come from scores of its states.

    Wraps any `VectorEnv` with disabled autoreset that puts `diverged` and `success` (bool [N]) in its infos. Its own
    reward is ignored and its success only passed on. `infos` of a step hold `final_obs` [N, D], the true next
    observation of every row; `potential` and `next_potential` [N], Phi before and after it; `valid` [N] (false: the
    simulation diverged, do not learn; its reward is NaN); `learned_success` and `success` [N]. Raises `UserError` for
    an environment that does not fit.
    """

    def __init__(self, env: gym.vector.VectorEnv, config: RewardConfig, gamma: float) -> None:
        refuse_unfit(env, self.needed)
        super().__init__(env)
        self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.config, self.gamma = config, gamma
        self.stats = LoopStats()

    needed: ClassVar[tuple[str, ...]] = ()
    """What the environment must have to be scored."""

    @abstractmethod
    def _begin(self, rows: IntArray, infos: Mapping[str, Any]) -> npt.NDArray[np.floating]:
        """Open new episodes in `rows` (the first time: all); the potentials [n] of their first states."""

    @abstractmethod
    def _score(self, rows: IntArray, infos: Mapping[str, Any]) -> Progress:
        """Judge the present states of `rows`; `infos` [N] are those of the step that led there."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, infos = self.env.reset(seed=seed, options=options)
        n = self.num_envs
        # A copy: environments may hand out the same memory at every step.
        self._observation: Array = np.array(observation, np.float32)
        self._since: IntArray = np.zeros(n, np.int64)
        self._streak: IntArray = np.zeros(n, np.int64)
        self._return = np.zeros(n)
        self._phi = self._begin(np.arange(n), infos)
        return self._observation, infos

    def step(self, actions: npt.NDArray[Any]) -> Any:
        with self.stats.timed("physics"):
            given, _, failed, timed_out, inner = self.env.step(actions)
        observation = np.array(given, np.float32)
        diverged: BoolArray = inner["diverged"]
        refuse_leaked_success(failed & inner["success"] & ~diverged)
        self._since += 1
        due = ((self._since >= self.config.score_every) | failed | timed_out) & ~diverged
        next_phi, achieved = self._judge(due, inner)
        terminated = (failed | achieved) & ~diverged
        truncated = (timed_out & ~terminated) | diverged
        paid = self.config.success_reward * achieved
        reward = shaped_reward(paid, self._phi, next_phi, terminated, self.gamma, scale=self.config.scale)
        reward = np.where(diverged, np.nan, reward)
        infos = {
            **inner,
            # A diverged state may hold anything; its transition is masked, so the last sound observation stands in.
            "final_obs": np.where(diverged[:, None], self._observation, observation),
            "valid": ~diverged,
            "potential": self._phi,
            "next_potential": next_phi,
            "learned_success": achieved,
        }
        self._count(reward, terminated | truncated, infos)
        self._phi, self._observation = next_phi, observation
        if (terminated | truncated).any():
            self._restart(terminated | truncated)
        return self._observation, reward, terminated, truncated, infos

    def drain(self) -> LoopStats:
        """The statistics since the last call."""
        drained, self.stats = self.stats, LoopStats()
        return drained

    def _judge(self, due: BoolArray, infos: Mapping[str, Any]) -> tuple[npt.NDArray[np.floating], BoolArray]:
        """Score the rows that are due. Every row's next potential [N], and where success is now sustained [N]."""
        rows = np.flatnonzero(due)
        achieved = np.zeros(self.num_envs, bool)
        if not len(rows):
            return self._phi, achieved
        progress = self._score(rows, infos)
        scored, scored_phi = due.copy(), self._phi.copy()
        scored[rows], scored_phi[rows] = progress.valid, progress.value
        self._since[rows] = 0
        positive = progress.success >= self.config.success_threshold
        # An unscored frame is no verdict: it neither continues nor breaks the streak.
        streak = np.where(positive, self._streak[rows] + 1, 0)
        self._streak[rows] = np.where(progress.valid, streak, self._streak[rows])
        achieved[rows] = progress.valid & (self._streak[rows] >= self.config.success_patience)
        self.stats.scored += len(rows)
        self.stats.invalid += int((~progress.valid).sum())
        self.stats.verdicts += int((positive & progress.valid).sum())
        return held_potential(self._phi, scored_phi, scored), achieved

    def _restart(self, ended: BoolArray) -> None:
        """Reset the ended rows and open their new episodes."""
        with self.stats.timed("physics"):
            fresh, infos = self.env.reset(options={"reset_mask": ended})
        self._observation = np.where(ended[:, None], fresh, self._observation)
        rows = np.flatnonzero(ended)
        self._since[rows] = self._streak[rows] = 0
        self._return[rows] = 0.0
        self._phi = self._phi.copy()
        self._phi[rows] = self._begin(rows, infos)

    def _count(self, reward: npt.NDArray[np.floating], ended: BoolArray, infos: dict[str, Any]) -> None:
        valid = infos["valid"]
        self._return += np.where(valid, reward, 0.0)
        whole = ended & valid
        self.stats.steps += self.num_envs
        self.stats.faults += int((~valid).sum())
        self.stats.episodes += int(whole.sum())
        self.stats.shaped_return += float(self._return[whole].sum())
        self.stats.learned_successes += int((whole & infos["learned_success"]).sum())
        self.stats.simulator_successes += int((whole & infos["success"]).sum())


class LearnedRewardEnv(RewardEnv):
    """Scores are a `RewardModel`'s, of pictures: the environment must also have `view_names`, `render_views(rows)` ->
    uint8 [n, V, H, W, 3] and `instructions` (one a row). A model with `takes_tensors` is given `render_tensor(rows)`
    where there is one: pictures that never leave the device they were drawn on. Instructions of several wishes are
    judged one after the other, each done as an episode is: by the same threshold and patience."""

    needed = ("view_names", "render_views", "instructions")

    def __init__(self, env: gym.vector.VectorEnv, model: RewardModel, config: RewardConfig, gamma: float) -> None:
        super().__init__(env, config, gamma)
        self.model = Plans(model, config.success_threshold, config.success_patience)
        self._memory: Memory

    def _begin(self, rows: IntArray, infos: Mapping[str, Any]) -> npt.NDArray[np.floating]:
        views, instructions = self._render(rows), self.env.instructions  # type: ignore[attr-defined]
        with self.stats.timed("score"):
            begun = self.model.begin(views, [instructions[i] for i in rows])
            self._memory = begun if len(rows) == self.num_envs else self._memory.put(rows, begun)
        return begun.potential()

    def _score(self, rows: IntArray, infos: Mapping[str, Any]) -> Progress:
        views = self._render(rows)
        with self.stats.timed("score"):
            progress, advanced = self.model.advance(self._memory.take(rows), views)
            self._memory = self._memory.put(rows, advanced)
        return progress

    def _render(self, rows: IntArray) -> Views:
        env: Any = self.env
        stay = self.model.takes_tensors and hasattr(env, "render_tensor")
        render = env.render_tensor if stay else env.render_views
        with self.stats.timed("render"):
            return Views(names=tuple(env.view_names), frames=render(rows))


class StateRewardEnv(RewardEnv):
    """Scores are the simulator's own, for comparison: the environment's infos must also hold `progress` [N]."""

    def _begin(self, rows: IntArray, infos: Mapping[str, Any]) -> npt.NDArray[np.floating]:
        return infos["progress"][rows]

    def _score(self, rows: IntArray, infos: Mapping[str, Any]) -> Progress:
        success = infos["success"][rows].astype(np.float32)
        return Progress(
            value=infos["progress"][rows],
            valid=np.ones(len(rows), bool),
            stage=infos["stage"][rows],
            success=success,
            spread=np.zeros(len(rows), np.float32),
        )


def refuse_unfit(env: gym.vector.VectorEnv, needed: Sequence[str]) -> None:
    """Raise `UserError` unless scores can be put on this environment, which must have the attributes `needed`."""
    inner: Any = env
    while isinstance(inner, gym.vector.VectorWrapper):
        if isinstance(inner, RewardEnv):
            raise UserError("the environment already has a learned reward; a second one would pay progress twice")
        inner = inner.env
    mode = env.metadata.get("autoreset_mode")
    if mode != AutoresetMode.DISABLED:
        raise UserError(
            f"the learned reward scores the last frame of an episode before it resets the row itself: it needs an "
            f"environment with autoreset_mode={AutoresetMode.DISABLED}, got {mode}"
        )
    missing = [name for name in needed if not hasattr(env, name)]
    if missing:
        raise UserError(
            f"{type(inner).__name__} lacks {', '.join(missing)}; a learned reward needs {', '.join(needed)}"
        )


def refuse_leaked_success(ended_by_success: BoolArray) -> None:
    """Raise `UserError` when an environment ends episodes at its own success."""
    if ended_by_success.any():
        raise UserError(
            f"row {int(np.flatnonzero(ended_by_success)[0])} ended at the simulator's own success, which would tell "
            "the learner what only the judge may know; build the training environment with ends_on_success=False"
        )

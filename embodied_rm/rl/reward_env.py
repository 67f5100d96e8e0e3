"""The vector environment whose reward is learned: shaped progress plus the model's own verdict of success.

Order of one step: physics; render and score the rows that are due, ended episodes at their last frame; judge; pay;
reset the ended rows; only then show the model the first frame of the new episodes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from embodied_rm.errors import UserError
from embodied_rm.models.base import RewardModel
from embodied_rm.shaping import held_potential, shaped_reward
from embodied_rm.types import Array, BoolArray, IntArray, Progress, Views

STAGES = ("physics", "render", "score", "learn")
NEEDED = ("view_names", "render_views", "instructions")


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


class LearnedRewardEnv(gym.vector.VectorWrapper):
    """A vector environment with SAME_STEP autoreset whose rewards and successes come from a `RewardModel`.

    Wraps any `VectorEnv` with disabled autoreset that has `view_names`, `render_views(rows)` -> uint8
    [n, V, H, W, 3], `instructions` (one a row), and puts `diverged` and `success` (bool [N]) in its infos. Where it has
    `render_tensor(rows)` too, the model is given that: pictures that never leave the device they were drawn on. Its
    own reward is ignored and its success only passed on. `infos` of a step hold `final_obs` [N, D], the true next
    observation of every row; `potential` and `next_potential` [N], Phi before and after it; `valid` [N] (false: the
    simulation diverged, do not learn; its reward is NaN); `learned_success` and `success` [N]. Raises `UserError` for
    an environment that does not fit.
    """

    def __init__(self, env: gym.vector.VectorEnv, model: RewardModel, config: RewardConfig, gamma: float) -> None:
        refuse_unfit(env)
        super().__init__(env)
        self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.model, self.config, self.gamma = model, config, gamma
        self.stats = LoopStats()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, infos = self.env.reset(seed=seed, options=options)
        n, rows = self.num_envs, np.arange(self.num_envs)
        # A copy: environments may hand out the same memory at every step.
        self._observation: Array = np.array(observation, np.float32)
        self._since: IntArray = np.zeros(n, np.int64)
        self._streak: IntArray = np.zeros(n, np.int64)
        self._return = np.zeros(n)
        views = self._render(rows)
        with self.stats.timed("score"):
            self._memory = self.model.begin(views, self._instructions(rows))
        self._phi: npt.NDArray[np.floating] = self._memory.potential()
        return self._observation, infos

    def step(self, actions: npt.NDArray[Any]) -> Any:
        with self.stats.timed("physics"):
            given, _, failed, timed_out, inner = self.env.step(actions)
        observation = np.array(given, np.float32)
        diverged: BoolArray = inner["diverged"]
        refuse_leaked_success(failed & inner["success"] & ~diverged)
        self._since += 1
        due = ((self._since >= self.config.score_every) | failed | timed_out) & ~diverged
        next_phi, achieved = self._judge(due)
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

    def _judge(self, due: BoolArray) -> tuple[npt.NDArray[np.floating], BoolArray]:
        """Score the rows that are due. Every row's next potential [N], and where success is now sustained [N]."""
        rows = np.flatnonzero(due)
        achieved = np.zeros(self.num_envs, bool)
        if not len(rows):
            return self._phi, achieved
        progress = self._score(rows)
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

    def _score(self, rows: IntArray) -> Progress:
        views = self._render(rows)
        with self.stats.timed("score"):
            progress, advanced = self.model.advance(self._memory.take(rows), views)
            self._memory = self._memory.put(rows, advanced)
        return progress

    def _restart(self, ended: BoolArray) -> None:
        """Reset the ended rows and open their new episodes."""
        with self.stats.timed("physics"):
            fresh, _ = self.env.reset(options={"reset_mask": ended})
        self._observation = np.where(ended[:, None], fresh, self._observation)
        rows = np.flatnonzero(ended)
        self._since[rows] = self._streak[rows] = 0
        self._return[rows] = 0.0
        views = self._render(rows)
        with self.stats.timed("score"):
            begun = self.model.begin(views, self._instructions(rows))
            self._memory = self._memory.put(rows, begun)
        self._phi = self._phi.copy()
        self._phi[rows] = begun.potential()

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

    def _render(self, rows: IntArray) -> Views:
        env: Any = self.env
        render = env.render_tensor if hasattr(env, "render_tensor") else env.render_views
        with self.stats.timed("render"):
            return Views(names=tuple(env.view_names), frames=render(rows))

    def _instructions(self, rows: IntArray) -> list[str]:
        instructions = self.env.instructions  # type: ignore[attr-defined]
        return [instructions[i] for i in rows]


def refuse_unfit(env: gym.vector.VectorEnv) -> None:
    """Raise `UserError` unless the learned reward can be put on this environment."""
    inner: Any = env
    while isinstance(inner, gym.vector.VectorWrapper):
        if isinstance(inner, LearnedRewardEnv):
            raise UserError("the environment already has a learned reward; a second one would pay progress twice")
        inner = inner.env
    mode = env.metadata.get("autoreset_mode")
    if mode != AutoresetMode.DISABLED:
        raise UserError(
            f"the learned reward scores the last frame of an episode before it resets the row itself: it needs an "
            f"environment with autoreset_mode={AutoresetMode.DISABLED}, got {mode}"
        )
    missing = [name for name in NEEDED if not hasattr(env, name)]
    if missing:
        raise UserError(
            f"{type(inner).__name__} lacks {', '.join(missing)}; a learned reward needs {', '.join(NEEDED)}"
        )


def refuse_leaked_success(ended_by_success: BoolArray) -> None:
    """Raise `UserError` when an environment ends episodes at its own success."""
    if ended_by_success.any():
        raise UserError(
            f"row {int(np.flatnonzero(ended_by_success)[0])} ended at the simulator's own success, which would tell "
            "the learner what only the judge may know; build the training environment with ends_on_success=False"
        )

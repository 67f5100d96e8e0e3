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

from embodied_rm.checkpoint_io import add_prefix, strip_prefix
from embodied_rm.errors import UserError
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rewards.shaping import hold_potential, potential_lower_bound, update_success_streak
from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions
from embodied_rm.rl.envs.curriculum import StartCurriculum
from embodied_rm.rl.envs.env_checks import check_env, check_no_leaked_success, supports_snapshots, unwrap_layers
from embodied_rm.rl.envs.rollout_stats import HOVER_POTENTIAL, RolloutStats
from embodied_rm.types import Array, BoolArray, IntArray, RewardOutput

CARRIED_FIELDS = ("phi", "since", "streak", "judged", "change", "return", "state")
"""What is carried from step to step for each row, [N, ...]."""


def has_env_state(state: Mapping[str, Tensor]) -> bool:
    """Whether what `RewardEnv.state` gave holds the episodes under way."""
    return bool(strip_prefix("envs", state))


class RewardEnv(gym.vector.VectorWrapper, ABC):
    """A vector environment with SAME_STEP autoreset whose rewards and successes come from scores of its states.

    Wraps any `VectorEnv` with disabled autoreset that puts `diverged` and `success` (bool [N]) in its infos. Its own
    reward is ignored; its success is passed on, and used only with `success=simulator`. `infos` of a step hold
    `final_obs` [N, D], the true next observation of every row; `valid` [N] (false: the simulation diverged, do not
    learn; its reward is NaN); `critic_obs` and `final_critic_obs` [N, C], the whole state where `infos["state"]` of the
    environment tells more than its observation; `potential` and `next_potential` [N], Phi before and after the step;
    `learned_success` [N], the model's verdict, and `success` [N], the simulator's; and `steps`, what the rule pays
    from. With a rule that is not paid at once the reward is the task's, and the learner pays the rollout
    (`embodied_rm.rl.credit.rollout_rewards`). Raises `UserError` for an environment that does not fit.
    """

    curriculum: StartCurriculum | None = None
    """Where episodes start; None: where the environment lets them."""

    def __init__(self, env: gym.vector.VectorEnv, config: RewardConfig, gamma: float) -> None:
        if any(isinstance(layer, RewardEnv) for layer in unwrap_layers(env)):
            raise UserError("the environment already has a learned reward; a second one would pay progress twice")
        self.rule = find_rule(config.rule)
        limit_attrs = ("max_episode_steps",) if self.rule.required_input in ("limit", "references") else ()
        check_env(env, (*self.required_attrs, *limit_attrs))
        super().__init__(env)
        self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.config = config
        self.params = RewardParams(
            gamma=gamma, scale=config.progress_scale, max_episode_steps=getattr(env, "max_episode_steps", None)
        )
        self.stats = RolloutStats()

    required_attrs: ClassVar[tuple[str, ...]] = ()
    """What the environment must have to be scored."""

    @abstractmethod
    def _reset_scores(self, rows: IntArray, infos: Mapping[str, Any]) -> FloatArray:
        """Open new episodes in `rows` (the first time: all); the potentials [n] of their first states."""

    @abstractmethod
    def _score(self, rows: IntArray, infos: Mapping[str, Any]) -> RewardOutput:
        """Judge the present states of `rows`; `infos` [N] are those of the step that led there."""

    @abstractmethod
    def _embeddings(self) -> FloatArray:
        """[N, D]: what was made of the states last scored."""

    def reset(self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None) -> Any:
        n = self.num_envs
        seeds = seed if self.curriculum is None else self.curriculum.draw(np.arange(n))
        observation, infos = self.env.reset(seed=seeds, options=options)  # type: ignore[arg-type]
        # A copy: environments may hand out the same memory at every step.
        self._observation: Array = np.array(observation, np.float32)
        self._steps_since_score: IntArray = np.zeros(n, np.int64)
        self._streak: IntArray = np.zeros(n, np.int64)
        self._success_prob, self._potential_change, self._episode_return = (np.zeros(n) for _ in range(3))
        self._state: Array = np.array(infos.get("state", self._observation), np.float32)
        self._potential = self._reset_scores(np.arange(n), infos)
        return self._observation, infos

    def check_rule_inputs(self, rollout_steps: int) -> None:
        """Raises `UserError` where the rule needs what this model or such a rollout does not have; after a reset."""
        if self.rule.required_input == "embedding":
            try:
                self._embeddings()
            except UserError as error:
                raise UserError(f"rule={self.config.rule}: {error}") from error
        self.config.check_success_prediction(self._predicts_success)
        self.config.check_rollout_steps(rollout_steps, self.params.max_episode_steps)

    def step(self, actions: npt.NDArray[Any]) -> Any:
        with self.stats.time_phase("physics"):
            raw_observation, _, failed, timed_out, env_infos = self.env.step(actions)
        observation = np.array(raw_observation, np.float32)
        state = np.array(env_infos.get("state", observation), np.float32)
        diverged: BoolArray = env_infos["diverged"]
        check_no_leaked_success(failed & env_infos["success"] & ~diverged)
        simulator_success = env_infos["success"] & ~diverged
        ends_now = failed | timed_out | (simulator_success & (self.config.success_source == "simulator"))
        self._steps_since_score += 1
        needs_score = ((self._steps_since_score >= self.config.score_every) | ends_now) & ~diverged
        next_potential, learned_success = self._update_scores(needs_score, env_infos)
        is_success = simulator_success if self.config.success_source == "simulator" else learned_success
        terminated = (failed | is_success) & ~diverged
        truncated = (timed_out & ~terminated) | diverged
        done = terminated | truncated
        transitions = self._make_transitions(next_potential, is_success, terminated, done, diverged)
        reward = np.where(diverged, np.nan, self._compute_reward(transitions))
        infos = {
            **env_infos,
            # A diverged state may hold anything; its transition is masked, so the last sound observation stands in.
            "final_obs": np.where(diverged[:, None], self._observation, observation),
            "critic_obs": self._state,
            "final_critic_obs": np.where(diverged[:, None], self._state, state),
            "valid": ~diverged,
            "learned_success": learned_success,
            "potential": self._potential,
            "next_potential": next_potential,
            "steps": transitions,
        }
        self._update_stats(reward, done, infos)
        self._potential, self._observation, self._state = next_potential, observation, state
        if done.any():
            if self.curriculum is not None:
                completed = np.flatnonzero(done & ~diverged)
                self.curriculum.update(completed, is_success[completed])
            self._reset_done(done)
        return self._observation, reward, terminated, truncated, infos

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that the episodes under way, and those that follow, depend on; for `restore`.

        Without the episodes if the environment has no `snapshot`, or the memory of the model cannot be stored: then
        they begin anew after a restart.
        """
        curriculum_state = {} if self.curriculum is None else add_prefix("starts", self.curriculum.state_dict())
        if not (supports_snapshots(self.env) and self._is_storable):
            return curriculum_state
        snapshot = self.env.snapshot()  # type: ignore[attr-defined]
        env_state = {name: torch.from_numpy(np.array(array)) for name, array in snapshot.items()}
        carried = {name: torch.from_numpy(np.array(getattr(self, f"_{name}"))) for name in CARRIED_FIELDS}
        return {
            **add_prefix("envs", env_state),
            **carried,
            **add_prefix("memory", self._reward_state_dict()),
            **curriculum_state,
        }

    def load_state_dict(self, state: dict[str, Tensor], seed: int | list[int]) -> Array:
        """Go on from what `state` of such an environment gave, with new episodes from `seed` where it has none; the
        observation then. It must have been reset before."""
        if self.curriculum is not None:
            self.curriculum.load_state_dict(strip_prefix("starts", state))
        if not has_env_state(state):
            return np.array(self.reset(seed=seed)[0], np.float32)
        env_state = {name: tensor.numpy() for name, tensor in strip_prefix("envs", state).items()}
        self._observation = np.array(self.env.restore(env_state), np.float32)  # type: ignore[attr-defined]
        for name in CARRIED_FIELDS:
            setattr(self, f"_{name}", state[name].numpy().copy())
        self._load_reward_state(strip_prefix("memory", state))
        return self._observation

    @property
    def _predicts_success(self) -> bool:
        """Whether scores say when the task is done."""
        return True

    @property
    def _is_storable(self) -> bool:
        """Whether a file can hold what the judge remembers of the episodes."""
        return True

    def _reward_state_dict(self) -> dict[str, Tensor]:
        """What the judge remembers of the episodes."""
        return {}

    def _load_reward_state(self, state: dict[str, Tensor]) -> None:
        """Bring that back."""

    @property
    def critic_obs_dim(self) -> int:
        """Columns of what the critic sees; known after the first reset."""
        return self._state.shape[1]

    def pop_stats(self) -> RolloutStats:
        """The statistics since the last call."""
        stats, self.stats = self.stats, RolloutStats()
        return stats

    def _make_transitions(
        self,
        next_potential: FloatArray,
        is_success: BoolArray,
        terminated: BoolArray,
        done: BoolArray,
        diverged: BoolArray,
    ) -> Transitions:
        return Transitions(
            task_reward=self.config.success_reward * is_success,
            is_success=is_success,
            terminated=terminated,
            done=done,
            potential=self._potential,
            next_potential=next_potential,
            potential_change=self._potential_change.copy(),
            success_prob=self._success_prob.copy(),
            embedding=self._embeddings() if self.rule.required_input == "embedding" else None,
            diverged=diverged,
        )

    def _compute_reward(self, transitions: Transitions) -> FloatArray:
        return self.rule.compute(transitions, self.params) if self.rule.per_step else transitions.task_reward

    def _update_scores(self, needs_score: BoolArray, infos: Mapping[str, Any]) -> tuple[FloatArray, BoolArray]:
        """Score the rows that are due. Every row's next potential [N], and where success is now sustained [N]."""
        rows = np.flatnonzero(needs_score)
        is_success = np.zeros(self.num_envs, bool)
        if not len(rows):
            return self._potential, is_success
        output = self._score(rows, infos)
        no_prediction = np.isnan(output.success)
        self.config.check_success_prediction(not (no_prediction & output.valid).any())
        scored, scored_potential = needs_score.copy(), self._potential.copy()
        lower_bound = potential_lower_bound(output.progress, output.uncertainty, self.config.uncertainty_penalty)
        scored[rows], scored_potential[rows] = output.valid, lower_bound
        self._steps_since_score[rows] = 0
        positive = output.success >= self.config.success_threshold
        self._streak[rows] = update_success_streak(self._streak[rows], positive, output.valid)
        self._success_prob[rows] = np.where(output.valid & ~no_prediction, output.success, self._success_prob[rows])
        is_success[rows] = output.valid & (self._streak[rows] >= self.config.success_patience)
        self.stats.num_scores += len(rows)
        self.stats.invalid_scores += int((~output.valid).sum())
        self.stats.predicted_successes += int((positive & output.valid).sum())
        self.stats.uncertainty += float(output.uncertainty[output.valid].sum())
        self.stats.ood_scored += int(np.isfinite(output.ood).sum())
        self.stats.ood_frames += int((output.ood > 1).sum())
        self._potential_change = np.where(scored, scored_potential - self._potential, self._potential_change)
        return hold_potential(self._potential, scored_potential, scored), is_success

    def _reset_done(self, done: BoolArray) -> None:
        """Reset the ended rows and open their new episodes."""
        with self.stats.time_phase("physics"):
            seeds = None if self.curriculum is None else self.curriculum.draw(np.flatnonzero(done))
            new_observation, infos = self.env.reset(seed=seeds, options={"reset_mask": done})  # type: ignore[arg-type]
        self._observation = np.where(done[:, None], new_observation, self._observation)
        self._state = np.where(done[:, None], infos.get("state", new_observation), self._state)
        rows = np.flatnonzero(done)
        for column in (
            self._steps_since_score,
            self._streak,
            self._success_prob,
            self._potential_change,
            self._episode_return,
        ):
            column[rows] = 0
        self._potential = self._potential.copy()
        self._potential[rows] = self._reset_scores(rows, infos)

    def _update_stats(self, reward: FloatArray, done: BoolArray, infos: Mapping[str, Any]) -> None:
        valid = infos["valid"]
        self._episode_return += np.where(valid, reward, 0.0)
        completed = done & valid
        self.stats.env_steps += self.num_envs
        self.stats.diverged_episodes += int((~valid).sum())
        self.stats.episodes += int(completed.sum())
        self.stats.shaped_return += float(self._episode_return[completed].sum())
        self.stats.successes += int((completed & infos["steps"].achieved).sum())
        self.stats.learned_successes += int((completed & infos["learned_success"]).sum())
        self.stats.simulator_successes += int((completed & infos["success"]).sum())
        final_potential = np.where(infos["steps"].achieved, 1.0, infos["next_potential"])
        self.stats.final_potential += float(final_potential[completed].sum())
        timed_out = completed & ~infos["steps"].terminated
        self.stats.hover_episodes += int((timed_out & (infos["next_potential"] >= HOVER_POTENTIAL)).sum())

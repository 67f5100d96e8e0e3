"""A vector environment whose rewards and successes come from scores of its states.

Order of one step: step the physics; render and score the rows whose score is needed, ended episodes at their last
frame; compute rewards; reset the ended rows; score the first frames of the new episodes.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from embodied_rm.checkpoint_io import add_prefix, strip_prefix
from embodied_rm.client.episode_reward import EpisodeReward, EpisodeStep
from embodied_rm.errors import UserError
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions
from embodied_rm.rl.envs.curriculum import StartCurriculum
from embodied_rm.rl.envs.env_checks import (
    check_env,
    check_no_leaked_success,
    missing_methods,
    supports_snapshots,
    unwrap_layers,
)
from embodied_rm.rl.envs.rollout_stats import HOVER_POTENTIAL, RolloutStats
from embodied_rm.rl.envs.state_archive import StateArchive, StoredState
from embodied_rm.rl.envs.takeover import Takeover
from embodied_rm.types import Array, BoolArray, IntArray, RewardOutput


def has_env_state(state: Mapping[str, Tensor]) -> bool:
    """Return whether a state of `RewardEnv.state_dict` contains the running episodes."""
    return bool(strip_prefix("envs", state))


class RewardEnv(gym.vector.VectorWrapper, ABC):
    """A vector environment with SAME_STEP autoreset whose rewards and successes come from scores of its states.

    It wraps any `VectorEnv` with disabled autoreset whose infos have `diverged` and `success` (bool [N]). The reward of
    the wrapped environment is ignored; its success is passed on, and used only with `success_source=simulator`.

    The infos of a step have, for all N rows:
        final_obs [N, D]: The true next observation.
        valid_transition bool [N]: False if the simulation diverged. Do not learn from such a step; its reward is NaN.
        critic_obs, final_critic_obs [N, C]: The full state before and after the step, if the wrapped environment has
            `infos["state"]`, else the observations.
        potential, next_potential [N]: Phi before and after the step.
        predicted_success bool [N]: Success according to the model.
        success bool [N]: Success according to the simulator.
        transitions: `Transitions`, the inputs of the reward rule.
        executed_action [N, A], helped bool [N]: With a take-over, the actions, and whether they are the helper's.

    With a rule that is not known step by step, the reward is that of the task, and
    `embodied_rm.rl.credit.rollout_rewards` computes the rewards of the rollout.
    """

    curriculum: StartCurriculum | None = None  # start states of episodes; None: the environment draws them
    takeover: Takeover | None = None  # help in episodes without progress; None: there is none
    archive: StateArchive | None = None  # states in which some episodes begin; None: all begin at a start

    def __init__(
        self, env: gym.vector.VectorEnv, config: RewardConfig, gamma: float, fitted_threshold: float | None = None
    ) -> None:
        """Wrap an environment.

        `gamma` is the discount of the learner, in (0, 1]; `fitted_threshold` is the success threshold of the model,
        which applies where the config has none.
        """
        if any(isinstance(layer, RewardEnv) for layer in unwrap_layers(env)):
            raise UserError("the environment already has a learned reward; a second one would reward progress twice")
        self.rule = find_rule(config.rule)
        uses_limit = self.rule.required_input in ("max_episode_steps", "reference_rewards", "auxiliary_weight")
        check_env(env, (*self.required_attrs, *(("max_episode_steps",) if uses_limit else ())))
        super().__init__(env)
        self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.config = config
        self.params = RewardParams(
            gamma=gamma, scale=config.progress_scale, max_episode_steps=getattr(env, "max_episode_steps", None)
        )
        self.stats = RolloutStats()
        self._episodes = self._new_episodes(fitted_threshold)

    required_attrs: ClassVar[tuple[str, ...]] = ()  # attributes that the environment must have to be scored

    @abstractmethod
    def _reset_scores(self, rows: IntArray, infos: Mapping[str, Any]) -> FloatArray:
        """Open new episodes in `rows` (the first time: all); the potentials [n] of their first states."""

    @abstractmethod
    def _score(self, rows: IntArray, infos: Mapping[str, Any]) -> RewardOutput:
        """Score the current states of `rows`; `infos` [N] are those of the step that led there."""

    @abstractmethod
    def _embeddings(self) -> FloatArray:
        """[N, D]: embeddings of the states that were scored last."""

    def reset(self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None) -> Any:
        rows = np.arange(self.num_envs)
        seeds = seed if self.curriculum is None else self.curriculum.draw(rows)
        observation, infos = self.env.reset(seed=seeds, options=options)  # type: ignore[arg-type]
        # A copy: environments may return the same array at every step.
        self._observation: Array = np.array(observation, np.float32)
        self._state: Array = np.array(infos.get("state", self._observation), np.float32)
        self.critic_sees_state = "state" in infos  # whether the observations of the critic are others
        self._episode_return = np.zeros(self.num_envs)
        self._program_reward = infos.get("program_reward")
        self._begin_episodes(rows, infos)
        return self._observation, infos

    def check_rule_inputs(self, rollout_steps: int) -> None:
        """Raise `UserError` if model or rollouts lack an input of the rule; call it after a reset."""
        if self.rule.required_input == "embedding":
            try:
                self._embeddings()
            except UserError as error:
                raise UserError(f"rule={self.config.rule}: {error}") from error
        if self.rule.required_input == "program_reward" and self._program_reward is None:
            raise UserError(f"rule={self.config.rule} pays infos['program_reward'] [N], which the environment lacks")
        self.config.check_success_prediction(self._predicts_success)
        self.config.check_rollout_steps(rollout_steps, self.params.max_episode_steps)

    def check_restores_rows(self) -> None:
        """Raise `UserError` unless episodes can begin in states of an archive."""
        if missing := missing_methods(self.env, ("snapshot_rows", "restore_rows")):
            names = " and ".join(missing)
            raise UserError(f"archive.share needs an environment with {names}, and a policy that observes its state")
        if not self._is_storable:
            raise UserError("archive.share needs a reward model whose state can be stored; this one keeps its images")

    def step(self, actions: npt.NDArray[Any]) -> Any:
        helped: dict[str, Any] = {}
        if self.takeover is not None:
            space = self.single_action_space
            assert isinstance(space, gym.spaces.Box)
            actions = self.takeover.replace(actions, space.low, space.high)
            helped = {"executed_action": actions, "helped": self.takeover.acts.copy()}
        with self.stats.time_phase("physics"):
            raw_observation, _, failed, timed_out, env_infos = self.env.step(actions)
        observation = np.array(raw_observation, np.float32)
        state = np.array(env_infos.get("state", observation), np.float32)
        diverged: BoolArray = env_infos["diverged"]
        check_no_leaked_success(failed & env_infos["success"] & ~diverged)
        episode_step = self._step_episodes(failed, timed_out, env_infos["success"] & ~diverged, diverged, env_infos)
        transitions = episode_step.transitions
        infos = {
            **env_infos,
            # A diverged state may hold anything; its transition is masked, so the last valid observation stands in.
            "final_obs": np.where(diverged[:, None], self._observation, observation),
            "critic_obs": self._state,
            "final_critic_obs": np.where(diverged[:, None], self._state, state),
            "valid_transition": ~diverged,
            "predicted_success": episode_step.predicted_success,
            "potential": transitions.potential,
            "next_potential": transitions.next_potential,
            "transitions": transitions,
            **helped,
        }
        if self.takeover is not None:
            self.takeover.update(transitions.next_potential)
        self._update_stats(episode_step, infos)
        self._observation, self._state = observation, state
        if self.archive is not None:
            self._keep_promising(self.archive, transitions, ~diverged)
        if transitions.done.any():
            if self.curriculum is not None:
                completed = np.flatnonzero(transitions.done & ~diverged & ~self._has_returned)
                self.curriculum.update(completed, self._own_success(transitions)[completed])
            self._reset_done(transitions.done)
        return self._observation, episode_step.reward, transitions.terminated, episode_step.truncated, infos

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that the running episodes, and those that follow, depend on.

        The episodes are left out if the environment has no `snapshot`, or the model's state cannot be stored: new
        episodes start after a restart.
        """
        curriculum_state = {} if self.curriculum is None else add_prefix("curriculum", self.curriculum.state_dict())
        if not (supports_snapshots(self.env) and self._is_storable):
            return curriculum_state
        snapshot = self.env.snapshot()  # type: ignore[attr-defined]
        arrays = {**add_prefix("envs", snapshot), "episode_return": self._episode_return, "state": self._state}
        arrays |= add_prefix("episodes", self._episodes.state_dict())  # type: ignore[arg-type]
        tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
        if self.takeover is not None:
            tensors |= add_prefix("takeover", self.takeover.state_dict())
        if self.archive is not None:
            tensors |= add_prefix("state_archive", self.archive.state_dict())
        return {**tensors, **add_prefix("reward_state", self._reward_state_dict()), **curriculum_state}

    def load_state_dict(self, state: dict[str, Tensor], seed: int | list[int]) -> Array:
        """Continue from a state of `state_dict` after a reset, and return the current observation, float32 [N, D].

        `seed` is that of new episodes, if the state contains none.
        """
        if self.curriculum is not None:
            self.curriculum.load_state_dict(strip_prefix("curriculum", state))
        if not has_env_state(state):
            return np.array(self.reset(seed=seed)[0], np.float32)
        env_state = {name: tensor.numpy() for name, tensor in strip_prefix("envs", state).items()}
        self._observation = np.array(self.env.restore(env_state), np.float32)  # type: ignore[attr-defined]
        episodes = strip_prefix("episodes", state)
        self._episodes.load_state_dict({name: tensor.numpy() for name, tensor in episodes.items()})
        self._episode_return = state["episode_return"].numpy().copy()
        self._state = state["state"].numpy().copy()
        self._load_reward_state(strip_prefix("reward_state", state))
        if self.takeover is not None:
            self.takeover.load_state_dict(strip_prefix("takeover", state))
        if self.archive is not None:
            self.archive.load_state_dict(strip_prefix("state_archive", state))
        return self._observation

    @property
    def _predicts_success(self) -> bool:
        """Whether scores contain a probability of success."""
        return True

    @property
    def _is_storable(self) -> bool:
        """Whether the model's state of the episodes can be stored."""
        return True

    def _reward_state_dict(self) -> dict[str, Tensor]:
        """Return the model's state of the episodes."""
        return {}

    def _load_reward_state(self, state: dict[str, Tensor]) -> None:
        """Restore the model's state of the episodes."""

    def _take_reward_state(self, row: int) -> dict[str, Tensor]:
        """Return the model's state of one episode."""
        return {}

    def _put_reward_state(self, row: int, state: dict[str, Tensor]) -> None:
        """Let the model go on from the state of one episode in another row."""

    @property
    def critic_obs_dim(self) -> int:
        """Size C of the critic's observation; known after the first reset."""
        return self._state.shape[1]

    def pop_stats(self) -> RolloutStats:
        """Return the statistics since the last call."""
        stats, self.stats = self.stats, RolloutStats()
        return stats

    def _new_episodes(self, fitted_threshold: float | None) -> EpisodeReward:
        """Return the rewards of episodes that are opened by the next reset."""
        return EpisodeReward(self.num_envs, self.config, self.params.gamma, self._compute_reward, fitted_threshold)

    def _compute_reward(self, transitions: Transitions) -> FloatArray:
        if self.rule.required_input == "program_reward":
            transitions = replace(transitions, program_reward=self._program_reward)
        return self.rule.compute(transitions, self.params) if self.rule.per_step else transitions.task_reward

    def _step_episodes(
        self,
        failed: BoolArray,
        timed_out: BoolArray,
        simulator_success: BoolArray,
        diverged: BoolArray,
        infos: Mapping[str, Any],
    ) -> EpisodeStep:
        """Score the rows whose score is needed, and step the episodes."""
        self._program_reward = infos.get("program_reward")
        uses_simulator = self.config.success_source == "simulator"
        ends_now = failed | timed_out | (simulator_success & uses_simulator)
        rows = self._episodes.rows_to_score(ends_now, ~diverged)
        output = self._score(rows, infos) if len(rows) else None
        if output is not None:
            self.config.check_success_prediction(not (np.isnan(output.success) & output.valid).any())
            self._count_scores(output)
        episode_step = self._episodes.step(
            rows,
            output,
            task_reward=self.config.success_reward * simulator_success
            if uses_simulator
            else self.config.success_reward,
            terminated=failed,
            truncated=timed_out,
            task_success=simulator_success if uses_simulator else None,
            diverged=diverged,
        )
        self.stats.positive_scores += int(episode_step.frame_success.sum())
        if self.rule.required_input != "embedding":
            return episode_step
        return episode_step._replace(transitions=replace(episode_step.transitions, embedding=self._embeddings()))

    def _count_scores(self, output: RewardOutput) -> None:
        self.stats.num_scores += len(output)
        self.stats.invalid_scores += int((~output.valid).sum())
        self.stats.uncertainty += float(output.uncertainty[output.valid].sum())
        self.stats.ood_scored += int(np.isfinite(output.ood).sum())
        self.stats.ood_frames += int((output.ood > 1).sum())

    def _reset_done(self, done: BoolArray) -> None:
        """Reset the ended rows and open their new episodes."""
        rows = np.flatnonzero(done)
        with self.stats.time_phase("physics"):
            seeds = None if self.curriculum is None else self.curriculum.draw(rows)
            new_observation, infos = self.env.reset(seed=seeds, options={"reset_mask": done})  # type: ignore[arg-type]
        self._observation = np.where(done[:, None], new_observation, self._observation)
        self._state = np.where(done[:, None], infos.get("state", new_observation), self._state)
        self._episode_return[rows] = 0
        self._begin_episodes(rows, infos)

    def _begin_episodes(self, rows: IntArray, infos: Mapping[str, Any]) -> None:
        """Score the first states of new episodes."""
        potential = self._reset_scores(rows, infos)
        if self.archive is not None:
            self.archive.begin(rows, potential)
            potential = self._return_to_archive(self.archive, rows, potential)
        self._episodes.reset(rows, potential)
        if self.takeover is not None:
            self.takeover.begin(rows, potential)

    def _return_to_archive(self, archive: StateArchive, rows: IntArray, potential: FloatArray) -> FloatArray:
        """Let some of the new episodes begin in states of the archive, and return the potentials [n] of all."""
        returned = archive.draw(rows)
        if not returned:
            return potential
        snapshots = [
            {name: tensor.numpy() for name, tensor in strip_prefix("env", stored).items()}
            for stored in returned.values()
        ]
        with self.stats.time_phase("physics"):
            observation = self.env.restore_rows(np.array(list(returned)), snapshots)  # type: ignore[attr-defined]
        potentials = dict(zip(rows.tolist(), potential, strict=True))
        for row, stored in returned.items():
            self._observation[row], self._state[row] = observation[row], stored["critic_obs"].numpy()
            self._put_reward_state(row, strip_prefix("reward_state", stored))
            potentials[row] = float(stored["potential"])
        return np.array(list(potentials.values()))

    def _keep_promising(self, archive: StateArchive, transitions: Transitions, valid: BoolArray) -> None:
        """Keep the states of running episodes that made progress, and put those of failed episodes into the archive."""
        running = valid & ~transitions.done & ~self._has_helped
        rows = archive.promising_rows(transitions.next_potential, running)
        with self.stats.time_phase("physics"):
            snapshots = self.env.snapshot_rows(rows) if len(rows) else []  # type: ignore[attr-defined]
        for row, snapshot in zip(rows.tolist(), snapshots, strict=True):
            stored: StoredState = {
                "potential": torch.tensor(transitions.next_potential[row]),
                "critic_obs": torch.from_numpy(self._state[row].copy()),
                **add_prefix("env", {name: torch.from_numpy(np.array(array)) for name, array in snapshot.items()}),
                **add_prefix("reward_state", self._take_reward_state(row)),
            }
            archive.keep(row, stored)
        ended = np.flatnonzero(transitions.done)
        archive.end(ended, (self._own_success(transitions) | ~valid)[ended])

    @property
    def _has_returned(self) -> BoolArray:
        """[N]: whether the running episode began in a state of the archive."""
        return np.zeros(self.num_envs, bool) if self.archive is None else self.archive.has_returned

    @property
    def _has_helped(self) -> BoolArray:
        """[N]: whether a helper has acted in the running episode."""
        return np.zeros(self.num_envs, bool) if self.takeover is None else self.takeover.has_helped

    def _own_success(self, transitions: Transitions) -> BoolArray:
        """Return whether the step is a success of the policy alone, [N]."""
        return transitions.is_success & ~self._has_helped

    def _update_stats(self, episode_step: EpisodeStep, infos: Mapping[str, Any]) -> None:
        transitions, valid = episode_step.transitions, infos["valid_transition"]
        self._episode_return += np.where(valid, episode_step.reward, 0.0)
        ended, is_success = transitions.done & valid, self._own_success(transitions)
        completed = ended & ~self._has_returned
        own = completed & ~self._has_helped
        self.stats.env_steps += self.num_envs
        self.stats.start_steps += int((~self._has_returned).sum())
        self.stats.returned_episodes += int((ended & self._has_returned).sum())
        self.stats.diverged_episodes += int((~valid).sum())
        self.stats.episodes += int(completed.sum())
        self.stats.shaped_return += float(self._episode_return[completed].sum())
        self.stats.helped_episodes += int((completed & self._has_helped).sum())
        self.stats.successes += int((completed & is_success).sum())
        self.stats.predicted_successes += int((own & episode_step.predicted_success).sum())
        self.stats.simulator_successes += int((own & infos["success"]).sum())
        final_potential = np.where(is_success, 1.0, transitions.next_potential)
        self.stats.final_potential += float(final_potential[completed].sum())
        timed_out = own & ~transitions.terminated
        self.stats.hover_episodes += int((timed_out & (transitions.next_potential >= HOVER_POTENTIAL)).sum())

"""The learned reward around any Gymnasium environment, one or a vector of them, however it resets its episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, Union

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from embodied_rm.serve.client.episodes import BoolArray, Episodes, Floats, Rows, Shaping, Step
from embodied_rm.serve.client.judgement import Frames
from embodied_rm.serve.client.reward_client import RewardClient

Look = Callable[[Any, Any, Rows], Frames]
"""(environment, its observation now, rows) -> view -> uint8 [n, H, W, 3]: what the cameras of these rows show now."""
LookBack = Callable[[Any, Mapping[str, Any], Rows], Frames]
"""(environment, infos of the step, rows that ended in it) -> what their cameras showed before they were reset."""
Instructions = Union[str, Sequence[str], Callable[[Any], Sequence[str]]]
"""One for all rows, one for each, or who says them after a reset: (environment) -> one for each row."""
ENVIRONMENT, MODEL = "environment", "model"


def rendered(view: str = "front") -> Look:
    """What `render()` draws, of an environment made with `render_mode="rgb_array"`, as the view of that name."""

    def look(env: Any, observation: Any, rows: Rows) -> Frames:
        drawn = env.render()
        if drawn is None:
            raise ValueError('render() draws nothing: make the environment with render_mode="rgb_array"')
        pictures = np.stack(drawn) if isinstance(drawn, (list, tuple)) else np.asarray(drawn)[None]
        return {view: pictures[rows]}

    return look


def observed(**views: str) -> Look:
    """Pictures among the observations: `observed(front="pixels")` where `observation["pixels"]` is [N, H, W, 3]."""

    def look(env: Any, observation: Any, rows: Rows) -> Frames:
        return {view: np.asarray(observation[key])[rows] for view, key in views.items()}

    return look


class LearnedReward(VectorWrapper):
    """A vector environment that pays what a reward service says: the environment's own reward, or the model's verdict
    of success, plus progress, shaped so that no other policy becomes the best.

    Terminal states are judged by what was seen there, never by what is seen after the reset: of an environment that
    resets a row within the step that ends it (`SAME_STEP`) `final_views` must say what that was; where a row is reset
    by the next step (`NEXT_STEP`) that step pays nothing. Infos hold, dense over rows: `potential`, `next_potential`,
    `learned_success`, and `stepped` (whether the transition is one: False where the step was a reset).
    """

    def __init__(
        self,
        env: VectorEnv,
        client: RewardClient,
        shaping: Shaping,
        *,
        views: Look,
        instructions: Instructions,
        success: str = ENVIRONMENT,
        success_reward: float = 1.0,
        final_views: Optional[LookBack] = None,
    ) -> None:
        """`success`: "environment", its rewards and ends stay; "model", its rewards are not paid, and an episode whose
        success is sustained in the eyes of the model is paid `success_reward` and terminated.

        Raises `ValueError` for what does not fit together.
        """
        super().__init__(env)
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if success not in (ENVIRONMENT, MODEL):
            raise ValueError(f"success must be {ENVIRONMENT} or {MODEL}, got {success!r}")
        if success == MODEL and self._mode is not AutoresetMode.DISABLED:
            raise ValueError(
                f"success={MODEL} ends episodes, and this environment resets them by itself ({self._mode}): make it "
                "with autoreset_mode DISABLED, and reset the rows that end by options={'reset_mask': ...}"
            )
        if self._mode is AutoresetMode.SAME_STEP and final_views is None:
            raise ValueError(
                "this environment resets an ended row within the step (SAME_STEP): what its cameras show then is the "
                "next episode. Say what they showed before, final_views=..."
            )
        self.episodes = Episodes(client, env.num_envs, shaping)
        refuse_silence(self.episodes, success)
        self._views, self._final_views, self._instructions = views, final_views, instructions
        self._success, self._success_reward = success, success_reward
        self._over = np.zeros(env.num_envs, bool)

    def reset(self, *, seed: Any = None, options: Optional[dict[str, Any]] = None) -> Any:
        """As the environment does, all rows or those of `options["reset_mask"]`."""
        # Looked at before the environment is reset: Gymnasium's own take the mask out of the options.
        mask = np.ones(self.num_envs, bool) if not options else np.asarray(options.get("reset_mask", True))
        observation, infos = self.env.reset(seed=seed, options=options)
        fresh = np.broadcast_to(mask, self.num_envs)
        self._begin(fresh, observation)
        self._over = self._over & ~fresh
        return observation, infos

    def step(self, actions: Any) -> Any:
        """As the environment does, with the learned reward."""
        observation, reward, terminated, truncated, infos = self.env.step(actions)
        reset, ended = self._over, (terminated | truncated) & ~self._over
        stepped = ~reset
        rows = self.episodes.due(stepped, ended)
        step = self.episodes.judge(rows, self._seen(rows, ended, observation, infos) if len(rows) else {})
        achieved = step.achieved & stepped
        base: Floats = np.asarray(reward, np.float64)
        if self._success == MODEL:
            base, terminated = self._success_reward * achieved, terminated | achieved
            truncated = truncated & ~achieved
        paid = np.where(stepped, self.episodes.pay(step, base, terminated), 0.0)
        infos = {**infos, **told(step, achieved), "stepped": stepped}
        if self._mode is AutoresetMode.NEXT_STEP:
            self._begin(reset, observation)
            self._over = ended
        elif self._mode is AutoresetMode.SAME_STEP:
            self._begin(ended, observation)
        return observation, paid, terminated, truncated, infos

    def close(self, **kwargs: Any) -> Any:
        """Close the environment, and have the service forget its episodes; the client stays open."""
        self.episodes.end()
        return super().close(**kwargs)

    def _begin(self, fresh: BoolArray, observation: Any) -> None:
        rows = np.flatnonzero(fresh)
        if len(rows):
            sentences = sentences_of(self._instructions, self.env, self.num_envs)
            frames = self._views(self.env, observation, rows)
            self.episodes.begin(rows, [sentences[row] for row in rows.tolist()], frames)

    def _seen(self, rows: Rows, ended: BoolArray, observation: Any, infos: Mapping[str, Any]) -> Frames:
        """What the cameras of these rows showed in the state that the step led to."""
        if self._mode is not AutoresetMode.SAME_STEP or not ended[rows].any():
            return self._views(self.env, observation, rows)
        assert self._final_views is not None
        over = ended[rows]
        before = self._final_views(self.env, infos, rows[over])
        if over.all():
            return before
        now = self._views(self.env, observation, rows[~over])
        return {name: scattered(over, before[name], now[name]) for name in now}


class SingleLearnedReward(gym.Wrapper):
    """The same around one environment, which whoever uses it resets when an episode is over."""

    def __init__(
        self,
        env: gym.Env,
        client: RewardClient,
        shaping: Shaping,
        *,
        views: Look,
        instruction: Union[str, Callable[[Any], str]],
        success: str = ENVIRONMENT,
        success_reward: float = 1.0,
    ) -> None:
        """`views` and `success` as those of `LearnedReward`; observations have no axis of rows here."""
        super().__init__(env)
        if success not in (ENVIRONMENT, MODEL):
            raise ValueError(f"success must be {ENVIRONMENT} or {MODEL}, got {success!r}")
        self.episodes = Episodes(client, 1, shaping)
        refuse_silence(self.episodes, success)
        self._views, self._instruction = views, instruction
        self._success, self._success_reward = success, success_reward

    def reset(self, **kwargs: Any) -> Any:
        """As the environment does."""
        observation, infos = self.env.reset(**kwargs)
        said = self._instruction(self.env) if callable(self._instruction) else self._instruction
        self.episodes.begin(ONE, [said], self._views(self.env, batched(observation), ONE))
        return observation, infos

    def step(self, action: Any) -> Any:
        """As the environment does, with the learned reward."""
        observation, reward, terminated, truncated, infos = self.env.step(action)
        rows = self.episodes.due(np.ones(1, bool), np.array([terminated or truncated]))
        frames = self._views(self.env, batched(observation), ONE) if len(rows) else {}
        step = self.episodes.judge(rows, frames)
        achieved = bool(step.achieved[0])
        own = float(reward)
        if self._success == MODEL:
            own, terminated = self._success_reward * achieved, terminated or achieved
            truncated = truncated and not achieved
        paid = float(self.episodes.pay(step, [own], [terminated])[0])
        single = {name: column[0] for name, column in told(step, step.achieved).items()}
        return observation, paid, terminated, truncated, {**infos, **single}

    def close(self) -> None:
        """Close the environment, and have the service forget its episode; the client stays open."""
        self.episodes.end()
        super().close()


ONE = np.zeros(1, np.int64)


def refuse_silence(episodes: Episodes, success: str) -> None:
    """Raises `ValueError` where the model must say when the task is done, and does not."""
    if success == MODEL and not episodes.tells_success:
        raise ValueError(f"success={MODEL} lets the model say when the task is done, and this one does not tell")


def told(step: Step, achieved: BoolArray) -> dict[str, Any]:
    """What infos say of a step."""
    return {"potential": step.potential, "next_potential": step.next_potential, "learned_success": achieved}


def sentences_of(instructions: Instructions, env: Any, count: int) -> Sequence[str]:
    """What is asked for in each row."""
    if isinstance(instructions, str):
        return [instructions] * count
    sentences = instructions(env) if callable(instructions) else instructions
    if len(sentences) != count:
        raise ValueError(f"{count} environments need {count} instructions, got {len(sentences)}")
    return sentences


def scattered(mask: BoolArray, inside: Any, outside: Any) -> Any:
    """The rows of two arrays as one: those of the mask from the first, in their order."""
    whole = np.empty((len(mask), *outside.shape[1:]), outside.dtype)
    whole[mask], whole[~mask] = inside, outside
    return whole


def batched(observation: Any) -> Any:
    """An observation of one environment as that of a vector of one."""
    if isinstance(observation, Mapping):
        return {key: batched(value) for key, value in observation.items()}
    return np.asarray(observation)[None]

"""A learned reward around an environment or a vector of them, in this process."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, overload

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from embodied_rm.api.local_client import LocalClient
from embodied_rm.client.autoreset import SINGLE_RESET_MESSAGE, read_autoreset_mode
from embodied_rm.client.episode_scorer import ShapingConfig
from embodied_rm.client.frame_getters import FinalFrameGetter, FrameGetter, frames_from_render
from embodied_rm.client.learned_reward import LearnedReward as VectorLearnedReward
from embodied_rm.client.learned_reward import SingleLearnedReward, TorchLearnedReward
from embodied_rm.data.renderers import RENDERERS_FACT, describe_other_renderer
from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import DescribedRewardModel
from embodied_rm.models.view_agreement import ViewAgreementModel
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.learner.ppo import PPOConfig

Instruction = str | Sequence[str] | Callable[[Any], Any]

INTEGRATIONS = {
    "rsl_rl.VecEnv": "RslRlLearnedReward",
    "stable_baselines3.VecEnv": "LearnedRewardVecEnv",
    "torchrl.EnvBase": "wrap_env",
}
"""Library and environment class -> name of the wrapper in the module `client.integrations` of this library."""
ROBOSUITE_CLASSES = ("libero.ControlEnv", "robosuite.GymWrapper", "robosuite.MujocoEnv")
"""Classes that are not Gymnasium's, or that draw images upside down and report time limits as ends."""


@dataclass(frozen=True, kw_only=True)
class RewardSpec:
    """The reward of a wrapped environment, as a learner needs it."""

    model: DescribedRewardModel
    config: RewardConfig
    gamma: float
    instructions: Instruction


@overload
def LearnedReward(
    env: VectorEnv, model: DescribedRewardModel, *, instruction: Instruction, **options: Any
) -> VectorLearnedReward: ...
@overload
def LearnedReward(env: Any, model: DescribedRewardModel, *, instruction: Instruction, **options: Any) -> Any: ...
def LearnedReward(  # noqa: N802  named like the Gymnasium wrappers that it returns
    env: Any,
    model: DescribedRewardModel,
    *,
    instruction: Instruction,
    gamma: float = PPOConfig.gamma,
    get_frames: FrameGetter | None = None,
    get_final_frames: FinalFrameGetter | None = None,
    success_source: str = "environment",
    autoreset_mode: str | AutoresetMode | None = None,
    **shaping: Any,
) -> Any:
    """Wrap an environment, or a vector of them, so that its reward is a reward model's.

    The reward is the environment's own, or the model's success, plus progress as a potential (Ng et al., 1999). Infos
    hold `potential`, `next_potential`, `predicted_success` and, of a vector, `valid_transition`.

    Args:
        env: A `gymnasium.Env`, a `VectorEnv` of any autoreset mode, a class with `num_envs` that steps environments
            with tensors, as those of Isaac Lab, mjlab and ManiSkill, or an environment of Stable-Baselines3, torchrl
            or rsl-rl. Tensors stay on their device.
        model: A reward model, for example of `load_reward_model`.
        instruction: One for all environments, one per environment, or a function of the environment that is called at
            every reset.
        gamma: The learner's discount, in (0, 1]. Another one would change the optimal policy.
        get_frames: (env, observation, rows) -> view name -> uint8 [n, H, W, 3]. None: `render_views` where the
            environment has it, else what `render()` draws, as the model's first view.
        get_final_frames: (env, infos, rows) -> the frames before the reset; needed by `AutoresetMode.SAME_STEP`, unless
            `get_frames` is that of `frames_from_observation`.
        success_source: "environment": its rewards and ends stay. "model": the model's sustained success ends an episode
            and is rewarded with `success_reward`.
        autoreset_mode: When a vector resets a row that ended: "SAME_STEP", "NEXT_STEP" or "DISABLED". None: as it
            declares. One environment must not reset itself.
        **shaping: Fields of `ShapingConfig`: progress_scale, score_every, uncertainty_penalty, success_threshold,
            success_patience, success_reward. And success_in_each_view=True: the model must predict success from each
            camera alone too.

    Returns:
        The wrapped environment, of the same library.

    Raises:
        UserError: When nothing draws the environment, or it is one of robosuite that is not wrapped.
        ValueError: For an option that does not fit the environment.
    """
    in_each_view = shaping.pop("success_in_each_view", False)
    config = ShapingConfig(gamma=gamma, **shaping)
    check_not_robosuite(env)
    warn_of_other_renderer(env, model)
    scored_model = ViewAgreementModel(model) if in_each_view else model
    client: Any = LocalClient(scored_model, config.success_threshold, config.success_patience)
    if get_frames is None:
        get_frames = default_frame_getter(env, model)
        if get_final_frames is None and get_frames is frames_from_render_views:
            get_final_frames = final_frames_from_infos
    options: dict[str, Any] = {"get_frames": get_frames, "success_source": success_source}
    wrap_env = find_integration(env)
    if wrap_env is not None:
        given = {"get_final_frames": get_final_frames, "autoreset_mode": autoreset_mode}
        options |= {name: value for name, value in given.items() if value is not None}
        return wrap_env(env, client, config, instructions=instruction, **options)
    if is_single(env):
        if not (isinstance(instruction, str) or callable(instruction)):
            raise UserError(f"one environment takes one instruction, got {instruction!r}")
        if autoreset_mode is not None and read_autoreset_mode(env, autoreset_mode) is not AutoresetMode.DISABLED:
            raise UserError(f"autoreset_mode={autoreset_mode!r}: {SINGLE_RESET_MESSAGE}")
        return SingleLearnedReward(env, client, config, instruction=instruction, **options)
    options |= {"get_final_frames": get_final_frames, "autoreset_mode": autoreset_mode, "instructions": instruction}
    if not isinstance(env, VectorEnv):
        return TorchLearnedReward(env, client, config, **options)
    wrapped = VectorLearnedReward(env, client, config, **options)
    source = "model" if success_source == "model" else "simulator"
    reward_config = RewardConfig(success_source=source, success_in_each_view=in_each_view, **shaping)
    spec = RewardSpec(model=model, config=reward_config, gamma=gamma, instructions=instruction)
    wrapped.reward_spec = spec  # type: ignore[attr-defined]
    return wrapped


def warn_of_other_renderer(env: Any, model: DescribedRewardModel) -> None:
    """Warn if a simulator of this package draws otherwise than the training data of the model."""
    facts = getattr(model, "metadata", {})
    if not facts.get(RENDERERS_FACT):
        return
    fingerprint = getattr(env.unwrapped, "renderer_fingerprint", None)
    if fingerprint is not None and (sentence := describe_other_renderer(facts, [fingerprint])):
        warnings.warn(sentence, RuntimeWarning, stacklevel=3)


def find_integration(env: Any) -> Callable[..., Any] | None:
    """Return the wrapper for environments of a library with classes of its own; None for all others."""
    for name in class_names(env):
        if name in INTEGRATIONS:
            library = name.partition(".")[0]
            return getattr(import_module(f"embodied_rm.client.integrations.{library}"), INTEGRATIONS[name])
    return None


def class_names(env: Any) -> list[str]:
    """Return library and name of the classes of an environment, such as "stable_baselines3.VecEnv"."""
    return [f"{base.__module__.split('.')[0]}.{base.__name__}" for base in type(env).__mro__]


def check_not_robosuite(env: Any) -> None:
    """Raise `UserError` for an environment of robosuite or LIBERO as it is."""
    if not set(ROBOSUITE_CLASSES).isdisjoint(class_names(env)):
        raise UserError(
            f"{type(env).__name__} of robosuite: wrap the environment that robosuite.make returned, in "
            "embodied_rm.client.integrations.robosuite.RobosuiteEnv(env, views={'front': 'agentview'})"
        )


def is_single(env: Any) -> bool:
    """Return whether an environment is a single one. Isaac Lab's and ManiSkill's `gymnasium.Env` step several.

    Raises `UserError` for an object that is no environment.
    """
    if not (hasattr(env, "reset") and hasattr(env, "step")):
        raise UserError(f"{type(env).__name__} is no environment: it has no reset and step")
    return isinstance(env, gym.Env) and not hasattr(env.unwrapped, "num_envs")


def default_frame_getter(env: Any, model: DescribedRewardModel) -> FrameGetter:
    """Return how the environment's frames are read. Raises `UserError` for one that draws nothing."""
    known_views = model.input_spec.views
    if hasattr(env, "render_views") and hasattr(env, "view_names"):
        return frames_from_render_views
    if getattr(env, "render_mode", None) == "rgb_array" and (is_single(env) or isinstance(env, VectorEnv)):
        return frames_from_render(known_views[0] if known_views else "front")
    raise UserError(
        f"{type(getattr(env, 'unwrapped', env)).__name__} draws nothing: make it with render_mode='rgb_array', or pass "
        "get_frames=frames_from_observation(...) or a function"
    )


def frames_from_render_views(env: Any, observation: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
    """The cameras of a simulator of this package: view name -> uint8 [n, H, W, 3]."""
    frames = env.render_views(rows)
    return {name: frames[:, view] for view, name in enumerate(env.view_names)}


def final_frames_from_infos(env: Any, infos: Mapping[str, Any], rows: np.ndarray) -> dict[str, np.ndarray]:
    """The frames before a reset, of a simulator of this package; `UserError` if it was made without `final_views`."""
    if "final_views" not in infos:
        raise UserError("the frames before a reset are not in the infos: make the environments with final_views=True")
    frames = infos["final_views"][rows]
    return {name: frames[:, view] for view, name in enumerate(env.view_names)}

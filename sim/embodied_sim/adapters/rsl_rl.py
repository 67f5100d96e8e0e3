"""Adapter for rsl-rl (`pip install embodied-rm[rsl-rl]`)."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import VectorEnv
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from embodied_sim.adapters.same_step import EnvTransition, check_autoreset_mode, reset_env, step_env
from embodied_sim.sim_errors import SimError

OBS_GROUP = "policy"  # the only observation group; rsl-rl uses it for actor and critic by default


class RslRlVecEnv(VecEnv):
    """An rsl-rl `VecEnv` over a vector environment; the first episodes start at construction.

    Extras: `time_outs` bool [N], episodes that ended by the time limit only; `final_obs`, the true next observations
    before any reset. If the infos hold `success`, `log` has the success rate of the episodes that ended in this step.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], *, seed: int | None = None, device: str = "cpu") -> None:
        """Reset the environment with `seed`; `device` is that of all tensors.

        Raises `SimError` if the environment has no SAME_STEP autoreset.
        """
        check_autoreset_mode(env)
        assert env.single_action_space.shape is not None
        self.env, self.device = env, device
        self.num_envs, self.num_actions = env.num_envs, env.single_action_space.shape[0]
        self.cfg: dict[str, Any] = {"env": type(env.unwrapped).__name__, "seed": seed}
        self._elapsed = torch.zeros(env.num_envs, dtype=torch.long, device=device)
        self._observation = reset_env(env, seed)

    @property
    def max_episode_length(self) -> int:
        """Return the time limit, control steps."""
        return self.env.unwrapped.max_episode_steps  # type: ignore[attr-defined]

    @property
    def episode_length_buf(self) -> Tensor:
        """Return the steps since the start of each row's episode, int64 [N]. It cannot be set."""
        return self._elapsed

    @episode_length_buf.setter
    def episode_length_buf(self, value: Tensor) -> None:
        raise SimError("episodes cannot start at a random length: call learn with init_at_random_ep_len=False")

    def get_observations(self) -> TensorDict:
        """Return the current observations: group "policy", float32 [N, D]."""
        return self._to_tensordict(self._observation)

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Step every row with actions [N, A]; return observations, rewards float32 [N], dones int64 [N], extras."""
        transition = step_env(self.env, actions.detach().cpu().numpy())
        self._observation = transition.observation
        dones = self._to_tensor(transition.done)
        self._elapsed = torch.where(dones, 0, self._elapsed + 1)
        observation, reward = self._to_tensordict(transition.observation), self._to_tensor(transition.reward)
        return observation, reward, dones.long(), self._make_extras(transition)

    def _make_extras(self, transition: EnvTransition) -> dict[str, Any]:
        extras: dict[str, Any] = {
            "time_outs": self._to_tensor(transition.truncated),
            "final_obs": self._to_tensordict(transition.final_observation),
        }
        if transition.done.any() and "success" in transition.infos:
            extras["log"] = {"Episode/success": float(transition.infos["success"][transition.done].mean())}
        return extras

    def _to_tensordict(self, observation: npt.NDArray[np.float32]) -> TensorDict:
        return TensorDict({OBS_GROUP: self._to_tensor(observation)}, batch_size=[self.num_envs], device=self.device)

    def _to_tensor(self, values: npt.NDArray[Any]) -> Tensor:
        return torch.as_tensor(values, device=self.device)

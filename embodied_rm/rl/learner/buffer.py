"""Rollout buffer: T steps of N environments, written once and read once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from embodied_rm.distributed import SINGLE_PROCESS, DistContext
from embodied_rm.errors import UserError
from embodied_rm.rewards.transitions import Transitions
from embodied_rm.rl.learner.gae import gae
from embodied_rm.rl.learner.hurl import Heuristic
from embodied_rm.rl.learner.policy import GaussianPolicy, ValueCritic
from embodied_rm.threads import torch_threads

FloatArray = npt.NDArray[np.floating]


@dataclass(frozen=True, kw_only=True)
class PPOBatch:
    """Valid transitions of a rollout, flattened to [B]."""

    observation: Tensor  # [B, D]: observation of the policy
    critic_observation: Tensor  # [B, C]: observation of the critic
    potential: Tensor  # [B]: Phi of the state before the action
    action: Tensor  # [B, A]: sampled action, before the environment clips it
    log_prob: Tensor  # [B]: under the policy that acted
    advantage: Tensor  # [B]: with zero mean and unit variance
    advantage_std: float  # standard deviation of the advantages before normalization
    target: Tensor  # [B]: lambda return of the task, without shaping: the target of the critic

    def __len__(self) -> int:
        return len(self.observation)


@dataclass
class RolloutBuffer:
    """Arrays [T, N, ...]; the next observation of the critic is the true one, before any reset."""

    num_steps: int
    num_envs: int
    obs_dim: int
    action_dim: int
    critic_obs_dim: int
    t: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        shape = (self.num_steps, self.num_envs)
        self.observation = np.zeros((*shape, self.obs_dim), np.float32)
        self.critic_observation = np.zeros((*shape, self.critic_obs_dim), np.float32)
        self.next_critic_observation = np.zeros((*shape, self.critic_obs_dim), np.float32)
        self.action = np.zeros((*shape, self.action_dim), np.float32)
        self.potential, self.next_potential = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.log_prob, self.reward = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.terminated, self.done, self.valid, self.helped = (np.zeros(shape, bool) for _ in range(4))
        self.transitions: list[Transitions] = []

    def add(self, transitions: Transitions | None = None, **columns: npt.ArrayLike) -> None:
        """Write one step: the columns [N, ...] by name, and the inputs of the reward rule if there are any."""
        for name, value in columns.items():
            getattr(self, name)[self.t] = value
        if transitions is not None:
            self.transitions.append(transitions)
        self.t += 1

    def all_gather(self, dist: DistContext) -> RolloutBuffer:
        """Return the rollout of all processes, concatenated along N; `transitions` stays that of this process."""
        if dist.world_size == 1:
            return self
        merged = replace(self, num_envs=dist.world_size * self.num_envs)
        arrays = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        vars(merged).update(dist.concat_env_axis(arrays), transitions=self.transitions, t=self.t)
        return merged

    @torch_threads(1)
    @torch.no_grad()
    def make_batch(
        self,
        critic: ValueCritic,
        gamma: float,
        lam: float,
        shaping_scale: float = 0.0,
        heuristic: Heuristic | None = None,
    ) -> PPOBatch:
        """Return the valid transitions with GAE advantages, on the device of the critic; `UserError` if there are none.

        Shaping adds -shaping_scale * potential to the value of a state (Ng, Harada and Russell, ICML 1999, corollary
        2). The critic therefore learns only the value of the task; errors about the shaping would disturb advantages.
        The heuristic mixes the values of the next states with their potentials.
        """
        assert self.t == self.num_steps, "the rollout is not complete"
        value = _values(critic, self.critic_observation, self.potential)
        next_value = _values(critic, self.next_critic_observation, self.next_potential)
        if heuristic is not None:
            next_value, lam = heuristic.mix_next_value(next_value, self.next_potential), heuristic.mix_lambda(lam)
        shaping_value, next_shaping_value = shaping_scale * self.potential, shaping_scale * self.next_potential
        masks = (self.terminated, self.done, self.valid)
        advantage = gae(self.reward, value - shaping_value, next_value - next_shaping_value, *masks, gamma, lam)
        if not self.valid.any():
            raise UserError(f"all {self.valid.size} transitions of the rollout diverged in the simulation")
        valid = torch.from_numpy(self.valid.reshape(-1))
        valid_advantage = torch.from_numpy(advantage.reshape(-1))[valid]
        std = float(valid_advantage.std(correction=0))
        columns = (
            self.observation, self.critic_observation, self.potential, self.action, self.log_prob, advantage + value,
        )  # fmt: skip
        observation, critic_observation, potential, action, log_prob, target = (
            torch.from_numpy(c.reshape(-1, *c.shape[2:]))[valid].to(critic.device) for c in columns
        )
        return PPOBatch(
            observation=observation,
            critic_observation=critic_observation,
            potential=potential,
            action=action,
            log_prob=log_prob,
            advantage=((valid_advantage - valid_advantage.mean()) / (std + 1e-8)).to(critic.device),
            advantage_std=std,
            target=target,
        )


def collect(
    env: gym.vector.VectorEnv,
    policy: GaussianPolicy,
    observation: FloatArray,
    num_steps: int,
    generator: torch.Generator,
    dist: DistContext = SINGLE_PROCESS,
) -> tuple[RolloutBuffer, FloatArray]:
    """Collect `num_steps` steps of the policy from the current observation [N, D]; the generator is on the CPU.

    The environment is SAME_STEP with the infos of `RewardEnv`. `transitions`, `critic_obs` and `final_critic_obs` are
    optional; without the last two, the critic has the observations of the policy. Actions of a helper are as executed.

    Return the rollout of all processes, and the observation after it.
    """
    obs_dim, action_dim = policy.spec.obs_dim, policy.spec.action_dim
    action_space, buffer = env.single_action_space, None
    assert isinstance(action_space, gym.spaces.Box)
    for _ in range(num_steps):
        action, log_prob = policy.sample(observation, generator, dist)
        clipped_action = np.clip(action, action_space.low, action_space.high)
        next_observation, reward, terminated, truncated, infos = env.step(clipped_action)
        helped = infos.get("helped", np.zeros(env.num_envs, bool))
        critic_obs = infos.get("critic_obs", observation)
        next_critic_obs = infos.get("final_critic_obs", infos["final_obs"])
        buffer = buffer or RolloutBuffer(num_steps, env.num_envs, obs_dim, action_dim, critic_obs.shape[1])
        buffer.add(
            observation=observation,
            critic_observation=critic_obs,
            next_critic_observation=next_critic_obs,
            potential=infos["potential"],
            next_potential=infos["next_potential"],
            action=np.where(helped[:, None], infos.get("executed_action", action), action),
            log_prob=log_prob,
            helped=helped,
            reward=reward,
            terminated=terminated,
            done=terminated | truncated,
            valid=infos["valid_transition"],
            transitions=infos.get("transitions"),
        )
        observation = next_observation
    assert buffer is not None
    return buffer.all_gather(dist), observation


def _values(critic: ValueCritic, observation: FloatArray, potential: FloatArray) -> FloatArray:
    """Return the critic's values [T, N] of observations [T, N, D] with potentials [T, N]."""
    flat = (observation.reshape(-1, observation.shape[-1]), potential.reshape(-1))
    values = critic(*(torch.from_numpy(column).to(critic.device) for column in flat))
    return values.cpu().numpy().reshape(potential.shape)

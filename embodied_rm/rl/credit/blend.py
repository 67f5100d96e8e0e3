"""How much an auxiliary reward should count: as much as following it also helps the task.

Source: BARFI (behaviour alignment via reward function optimisation). Its outer loop moves the blend along the gradient
of the task's own return after the inner loop; here the inner loop is cut to one policy gradient step, so that this
gradient is the product of two policy gradients, that of the task's return and that of the auxiliary one. Their cosine
is taken instead: it does not depend on what either is worth.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from embodied_rm.rewards.steps import Floats
from embodied_rm.rl.learner.buffer import RolloutBuffer
from embodied_rm.rl.learner.gae import gae
from embodied_rm.rl.learner.policy import GaussianPolicy, log_prob
from embodied_rm.rl.learner.threads import one_thread

RATE, MOST = 0.2, 2.0
"""Step of the blend for a cosine of 1, and the largest blend."""


def moved(
    blend: float, buffer: RolloutBuffer, task: Floats, auxiliary: Floats, policy: GaussianPolicy, gamma: float
) -> float:
    """The blend after one step of the outer loop, in [0, `MOST`]; rewards [T, N]."""
    by_task, by_auxiliary = (policy_gradient(buffer, reward, policy, gamma) for reward in (task, auxiliary))
    return float(np.clip(blend + RATE * cosine(by_task, by_auxiliary), 0.0, MOST))


@one_thread()
def policy_gradient(buffer: RolloutBuffer, reward: Floats, policy: GaussianPolicy, gamma: float) -> Tensor:
    """The gradient [P] of the return: discounted rewards to go, less their mean over the valid steps of the rollout."""
    nothing = np.zeros_like(buffer.reward)
    to_go = gae(reward, nothing, nothing, buffer.terminated, buffer.done, buffer.valid, gamma, 1.0)
    keep = torch.from_numpy(buffer.valid)
    advantage = torch.from_numpy(to_go.astype(np.float32))[keep].to(policy.device)
    mean, log_std = policy(torch.from_numpy(buffer.observation)[keep].to(policy.device))
    logs = log_prob(torch.from_numpy(buffer.action)[keep].to(policy.device), mean, log_std)
    gain = (logs * (advantage - advantage.mean())).mean()
    return torch.cat([part.flatten() for part in torch.autograd.grad(gain, list(policy.mlp.parameters()))])


def cosine(one: Tensor, other: Tensor) -> float:
    """Of two vectors; 0 where one of them is 0."""
    return float(torch.nn.functional.cosine_similarity(one, other, dim=0, eps=1e-12))

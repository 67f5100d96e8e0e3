"""Weight of an auxiliary reward, learned from its effect on the task.

Source: BARFI (behavior alignment via reward function optimization). Its outer loop moves the weight along the
gradient of the task return after the inner loop. Here the inner loop is one policy gradient step, so this gradient is
the product of the policy gradients of the task return and of the auxiliary return. Their cosine is used instead,
because it does not depend on the scale of either reward.
"""

import numpy as np
import torch
from torch import Tensor

from embodied_rm.rewards.transitions import FloatArray
from embodied_rm.rl.learner.buffer import RolloutBuffer
from embodied_rm.rl.learner.gae import gae
from embodied_rm.rl.learner.policy import GaussianPolicy, log_prob
from embodied_rm.threads import torch_threads

WEIGHT_STEP_SIZE = 0.2  # change of the weight for a cosine of 1
MAX_AUXILIARY_WEIGHT = 2.0


def update_auxiliary_weight(
    weight: float,
    buffer: RolloutBuffer,
    task_reward: FloatArray,
    auxiliary_reward: FloatArray,
    policy: GaussianPolicy,
    gamma: float,
) -> float:
    """Return the weight after one step of the outer loop, in [0, `MAX_AUXILIARY_WEIGHT`]; rewards [T, N]."""
    task, auxiliary = (policy_gradient(buffer, reward, policy, gamma) for reward in (task_reward, auxiliary_reward))
    cosine = float(torch.nn.functional.cosine_similarity(task, auxiliary, dim=0, eps=1e-12))  # 0 for a zero gradient
    return float(np.clip(weight + WEIGHT_STEP_SIZE * cosine, 0.0, MAX_AUXILIARY_WEIGHT))


@torch_threads(1)
def policy_gradient(buffer: RolloutBuffer, reward: FloatArray, policy: GaussianPolicy, gamma: float) -> Tensor:
    """Return the policy gradient [P] of the discounted rewards to go, centered over the valid steps of the rollout."""
    zeros = np.zeros_like(buffer.reward)
    rewards_to_go = gae(reward, zeros, zeros, buffer.terminated, buffer.done, buffer.valid, gamma, 1.0)
    valid = torch.from_numpy(buffer.valid)
    advantage = torch.from_numpy(rewards_to_go.astype(np.float32))[valid].to(policy.device)
    mean, log_std = policy(torch.from_numpy(buffer.observation)[valid].to(policy.device))
    log_probs = log_prob(torch.from_numpy(buffer.action)[valid].to(policy.device), mean, log_std)
    objective = (log_probs * (advantage - advantage.mean())).mean()
    return torch.cat([grad.flatten() for grad in torch.autograd.grad(objective, list(policy.mlp.parameters()))])

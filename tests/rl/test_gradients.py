"""The explicit gradients equal those of autograd."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from embodied_rm.errors import CheckpointError
from embodied_rm.rl.learner.demo_pairs import DemoPairs
from embodied_rm.rl.learner.gradients import (
    ActionBatch,
    backward,
    clamp_grad,
    clipped_surrogate_grad,
    entropy_grad,
    forward,
    kl_grad,
    weighted_sum,
)
from embodied_rm.rl.learner.optimizer import FlatAdam
from embodied_rm.rl.learner.policy import (
    LOG_STD_RANGE,
    GaussianPolicy,
    PolicySpec,
    ValueCritic,
    gaussian_kl,
    log_prob,
    mlp,
    tanh,
)
from embodied_rm.rl.learner.ppo import PPO, GaussianBatch, KLPenalties, PPOConfig

ROWS, ACTIONS = 40, 3


@pytest.fixture(autouse=True)
def fix_seed() -> None:
    torch.manual_seed(0)


def randn64(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("hidden", [(), (8,), (16, 12), (8, 8, 8)])
def test_forward_and_backward_equal_autograd(hidden: tuple[int, ...]) -> None:
    network = mlp(5, hidden, 2, output_gain=1.0).double()
    inputs, output_grad = randn64(ROWS, 5), randn64(ROWS, 2)
    before = inputs.clone()
    expected = network(inputs)
    expected.backward(output_grad)
    expected_grads = [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.grad = torch.full_like(parameter, torch.nan)
        activations = forward(network, inputs)
        torch.testing.assert_close(activations[-1], expected)
        backward(network, activations, output_grad)
    assert torch.equal(inputs, before)
    for parameter, gradient in zip(network.parameters(), expected_grads, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tanh_equals_torch(dtype: torch.dtype) -> None:
    x = torch.cat([torch.linspace(-12, 12, 10_001), torch.tensor([0.0, 1e-30, torch.inf, -torch.inf])]).to(dtype)
    eps = torch.finfo(dtype).eps
    for recorded in (False, True):
        argument = x.clone().requires_grad_(recorded)
        torch.testing.assert_close(tanh(argument).detach(), torch.tanh(x), rtol=4 * eps, atol=0.0)
        assert torch.equal(argument.detach(), x)
    assert tanh(torch.tensor([torch.nan], dtype=dtype)).isnan().all()


def test_tanh_is_differentiable() -> None:
    x = randn64(ROWS, ACTIONS).requires_grad_()
    assert torch.autograd.gradcheck(tanh, x)
    with torch.no_grad():
        assert not tanh(x).requires_grad


@pytest.mark.parametrize("clip", [0.05, 0.3, 10.0])
def test_gradient_of_the_clipped_surrogate(clip: float) -> None:
    mean, log_std = nn.Parameter(randn64(ROWS, ACTIONS)), nn.Parameter(0.3 * randn64(ACTIONS))
    action, advantage = mean.detach() + randn64(ROWS, ACTIONS), randn64(ROWS)
    old_log_prob = log_prob(action, mean, log_std).detach() + 0.4 * randn64(ROWS)
    ratio = torch.exp(log_prob(action, mean, log_std) - old_log_prob)
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
    surrogate.backward()
    result = clipped_surrogate_grad(ActionBatch(action, old_log_prob, advantage), mean.detach(), log_std.detach(), clip)
    torch.testing.assert_close(result.value / ROWS, surrogate.detach())
    torch.testing.assert_close(result.mean / ROWS, mean.grad)
    torch.testing.assert_close(result.log_std / ROWS, log_std.grad)


def test_no_action_is_clipped_before_the_policy_changes() -> None:
    mean, log_std, advantage = randn64(ROWS, ACTIONS), 0.3 * randn64(ACTIONS), randn64(ROWS)
    action = mean + randn64(ROWS, ACTIONS)
    output_grad = clipped_surrogate_grad(
        ActionBatch(action, log_prob(action, mean, log_std), advantage), mean, log_std, 0.2
    )
    assert output_grad.value == pytest.approx(advantage.sum())
    assert (output_grad.mean != 0).all()


def test_gradient_of_the_kl_divergence() -> None:
    mean, log_std = nn.Parameter(randn64(ROWS, ACTIONS)), nn.Parameter(0.3 * randn64(ACTIONS))
    other, other_log_std = randn64(ROWS, ACTIONS), 0.3 * randn64(ACTIONS)
    total = gaussian_kl(mean, log_std, other, other_log_std).sum()
    total.backward()
    result = kl_grad(mean.detach(), log_std.detach(), other, other_log_std)
    torch.testing.assert_close(result.value, total.detach())
    torch.testing.assert_close(result.mean, mean.grad)
    torch.testing.assert_close(result.log_std, log_std.grad)
    none = kl_grad(other, other_log_std, other, other_log_std)
    assert none.value == 0 and not none.mean.any() and not none.log_std.any()


def test_gradient_of_a_weighted_sum() -> None:
    mean, log_std, other = randn64(ROWS, ACTIONS), 0.3 * randn64(ACTIONS), randn64(ROWS, ACTIONS)
    reference_kl, entropy = kl_grad(mean, log_std, other, log_std), entropy_grad(mean, log_std)
    assert entropy.value == pytest.approx(ROWS * log_std.sum()) and (entropy.log_std == ROWS).all()
    assert not entropy.mean.any()
    for result, one, two in zip(weighted_sum((2.0, reference_kl), (-3.0, entropy)), reference_kl, entropy, strict=True):
        torch.testing.assert_close(result, 2 * one - 3 * two)


def test_gradient_of_the_clamped_log_std() -> None:
    low, high = LOG_STD_RANGE
    log_std = nn.Parameter(torch.tensor([low - 1, low, 0.0, high, high + 1]))
    output_grad = torch.arange(1.0, 6.0)
    (log_std.clamp(low, high) * output_grad).sum().backward()
    assert torch.equal(clamp_grad(log_std.detach(), output_grad), log_std.grad)  # type: ignore[arg-type]


def test_actor_step_uses_the_gradient_of_the_whole_objective() -> None:
    """The gradient equals that of autograd for the objective as in the papers."""
    policy = GaussianPolicy(PolicySpec(obs_dim=5, action_dim=ACTIONS, hidden=(8,), log_std_init=-0.4))
    pairs = DemoPairs(observation=torch.randn(30, 5), action=torch.randn(30, ACTIONS), weight=torch.ones(30))
    config = PPOConfig(clip_range=0.2, entropy_coef=0.03, max_grad_norm=1e9)
    ppo = PPO(policy, ValueCritic(5, (8,)), config, torch.Generator().manual_seed(3), pairs)
    before = copy.deepcopy(policy)
    with torch.no_grad():
        policy.mlp[-1].weight.add_(torch.randn_like(policy.mlp[-1].weight))
    observation_batch, action, advantage = torch.randn(ROWS, 5), torch.randn(ROWS, ACTIONS), torch.randn(ROWS)
    old_log_prob = log_prob(action, *before(observation_batch)).detach()
    reference = GaussianBatch.from_policy(before, observation_batch)

    copied = copy.deepcopy(policy)
    mean, log_std = copied(observation_batch)
    ratio = torch.exp(log_prob(action, mean, log_std) - old_log_prob)
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    observation, demo_action = pairs.sample(ROWS, torch.Generator().manual_seed(3))
    noise = log_std.detach()
    imitation_kl = gaussian_kl(copied(observation)[0], noise, demo_action, noise).mean()
    reference_kl = gaussian_kl(mean, log_std, reference.mean.detach(), reference.log_std.detach()).mean()
    loss = -surrogate + 0.5 * reference_kl + 0.7 * imitation_kl - 0.03 * log_std.sum()
    loss.backward()

    with torch.no_grad():
        loss_value, norm = ppo._step_actor(
            observation_batch, ActionBatch(action, old_log_prob, advantage), ROWS, KLPenalties(reference, 0.5, 0.7)
        )
    expected = torch.cat([parameter.grad.flatten() for parameter in copied.parameters()])  # type: ignore[union-attr]
    assert loss_value == pytest.approx(loss.item(), rel=1e-5) and norm == pytest.approx(
        expected.norm().item(), rel=1e-4
    )
    torch.testing.assert_close(ppo.actor_optimizer.gradient, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("limit", [1e9, 0.1])
def test_flat_adam_equals_torch_adam(limit: float) -> None:
    network, other = mlp(5, (8,), 2, output_gain=1.0), mlp(5, (8,), 2, output_gain=1.0)
    other.load_state_dict(network.state_dict())
    ours, theirs = FlatAdam(network, 1e-2, limit), torch.optim.Adam(other.parameters(), lr=1e-2, eps=1e-5)
    for _ in range(3):
        inputs, output_grad = torch.randn(ROWS, 5), torch.randn(ROWS, 2)
        with torch.no_grad():
            backward(network, forward(network, inputs), output_grad)
            ours.step(float(ours.gradient.norm()))
        theirs.zero_grad()
        other(inputs).backward(output_grad)
        torch.nn.utils.clip_grad_norm_(other.parameters(), limit)
        theirs.step()
    for one, two in zip(network.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


def test_optimizer_state_of_another_network_raises() -> None:
    network = mlp(5, (8,), 2, output_gain=1.0)
    optimizer = FlatAdam(network, 1e-2, 1.0)
    optimizer.load_state_dict(optimizer.state_dict(), "here")
    optimizer.step(0.0)
    stored = optimizer.state_dict()
    optimizer.load_state_dict(stored, "here")
    with pytest.raises(CheckpointError, match="here: the stored optimizer state does not fit"):
        FlatAdam(mlp(5, (9,), 2, output_gain=1.0), 1e-2, 1.0).load_state_dict(stored, "here")
    with pytest.raises(CheckpointError, match="does not fit"):
        optimizer.load_state_dict({"mlp.0.weight.step": stored["step"]}, "here")
    network.to(torch.float64)
    with pytest.raises(AssertionError, match="the module was moved"):
        optimizer.step(0.0)

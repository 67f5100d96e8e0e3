"""The gradients that are written out are those that autograd finds."""

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
)
from embodied_rm.rl.learner.ppo import PPO, GaussianBatch, KLPenalties, PPOConfig
from embodied_rm.rl.learner.tanh import tanh

ROWS, ACTIONS = 40, 3


@pytest.fixture(autouse=True)
def exactly() -> None:
    torch.manual_seed(0)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("hidden", [(), (8,), (16, 12), (8, 8, 8)])
def test_a_network_is_what_it_was_and_so_is_its_gradient(hidden: tuple[int, ...]) -> None:
    network = mlp(5, hidden, 2, output_gain=1.0).double()
    inputs, slope = drawn(ROWS, 5), drawn(ROWS, 2)
    before = inputs.clone()
    expected = network(inputs)
    expected.backward(slope)
    wanted = [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.grad = torch.full_like(parameter, torch.nan)
        kept = forward(network, inputs)
        torch.testing.assert_close(kept[-1], expected)
        backward(network, kept, slope)
    assert torch.equal(inputs, before)
    for parameter, gradient in zip(network.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_the_hyperbolic_tangent_is_torchs(kind: torch.dtype) -> None:
    x = torch.cat([torch.linspace(-12, 12, 10_001), torch.tensor([0.0, 1e-30, torch.inf, -torch.inf])]).to(kind)
    eps = torch.finfo(kind).eps
    for recorded in (False, True):
        argument = x.clone().requires_grad_(recorded)
        torch.testing.assert_close(tanh(argument).detach(), torch.tanh(x), rtol=4 * eps, atol=0.0)
        assert torch.equal(argument.detach(), x)
    assert tanh(torch.tensor([torch.nan], dtype=kind)).isnan().all()


def test_the_hyperbolic_tangent_is_differentiable() -> None:
    x = drawn(ROWS, ACTIONS).requires_grad_()
    assert torch.autograd.gradcheck(tanh, x)
    with torch.no_grad():
        assert not tanh(x).requires_grad


@pytest.mark.parametrize("clip", [0.05, 0.3, 10.0])
def test_the_clipped_gain_rises_as_its_slope_says(clip: float) -> None:
    mean, log_std = nn.Parameter(drawn(ROWS, ACTIONS)), nn.Parameter(0.3 * drawn(ACTIONS))
    action, advantage = mean.detach() + drawn(ROWS, ACTIONS), drawn(ROWS)
    acted = log_prob(action, mean, log_std).detach() + 0.4 * drawn(ROWS)
    ratio = torch.exp(log_prob(action, mean, log_std) - acted)
    gain = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
    gain.backward()
    found = clipped_surrogate_grad(ActionBatch(action, acted, advantage), mean.detach(), log_std.detach(), clip)
    torch.testing.assert_close(found.value / ROWS, gain.detach())
    torch.testing.assert_close(found.mean / ROWS, mean.grad)
    torch.testing.assert_close(found.log_std / ROWS, log_std.grad)


def test_where_the_policy_still_is_the_one_that_acted_every_action_counts() -> None:
    mean, log_std, advantage = drawn(ROWS, ACTIONS), 0.3 * drawn(ACTIONS), drawn(ROWS)
    action = mean + drawn(ROWS, ACTIONS)
    slope = clipped_surrogate_grad(ActionBatch(action, log_prob(action, mean, log_std), advantage), mean, log_std, 0.2)
    assert slope.value == pytest.approx(advantage.sum())
    assert (slope.mean != 0).all()


def test_the_divergence_rises_as_its_slope_says_and_is_flat_at_0() -> None:
    mean, log_std = nn.Parameter(drawn(ROWS, ACTIONS)), nn.Parameter(0.3 * drawn(ACTIONS))
    other, other_log_std = drawn(ROWS, ACTIONS), 0.3 * drawn(ACTIONS)
    total = gaussian_kl(mean, log_std, other, other_log_std).sum()
    total.backward()
    found = kl_grad(mean.detach(), log_std.detach(), other, other_log_std)
    torch.testing.assert_close(found.value, total.detach())
    torch.testing.assert_close(found.mean, mean.grad)
    torch.testing.assert_close(found.log_std, log_std.grad)
    none = kl_grad(other, other_log_std, other, other_log_std)
    assert none.value == 0 and not none.mean.any() and not none.log_std.any()


def test_a_sum_rises_as_its_terms_do_by_their_weights() -> None:
    mean, log_std, other = drawn(ROWS, ACTIONS), 0.3 * drawn(ACTIONS), drawn(ROWS, ACTIONS)
    leaving, unsure = kl_grad(mean, log_std, other, log_std), entropy_grad(mean, log_std)
    assert unsure.value == pytest.approx(ROWS * log_std.sum()) and (unsure.log_std == ROWS).all()
    assert not unsure.mean.any()
    for found, one, two in zip(weighted_sum((2.0, leaving), (-3.0, unsure)), leaving, unsure, strict=True):
        torch.testing.assert_close(found, 2 * one - 3 * two)


def test_noise_at_its_limit_learns_no_more_beyond_it() -> None:
    low, high = LOG_STD_RANGE
    log_std = nn.Parameter(torch.tensor([low - 1, low, 0.0, high, high + 1]))
    slope = torch.arange(1.0, 6.0)
    (log_std.clamp(low, high) * slope).sum().backward()
    assert torch.equal(clamp_grad(log_std.detach(), slope), log_std.grad)  # type: ignore[arg-type]


def test_a_step_of_the_actor_goes_down_all_that_it_is_held_to() -> None:
    """What PPO assembles is what autograd finds of the whole objective, as one reads it in a paper."""
    policy = GaussianPolicy(PolicySpec(obs_dim=5, action_dim=ACTIONS, hidden=(8,), log_std_init=-0.4))
    shown = DemoPairs(observation=torch.randn(30, 5), action=torch.randn(30, ACTIONS), weight=torch.ones(30))
    config = PPOConfig(clip_range=0.2, entropy_coef=0.03, max_grad_norm=1e9)
    ppo = PPO(policy, ValueCritic(5, (8,)), config, torch.Generator().manual_seed(3), shown)
    before = copy.deepcopy(policy)
    with torch.no_grad():
        policy.mlp[-1].weight.add_(torch.randn_like(policy.mlp[-1].weight))
    seen, action, advantage = torch.randn(ROWS, 5), torch.randn(ROWS, ACTIONS), torch.randn(ROWS)
    acted = log_prob(action, *before(seen)).detach()
    reference = GaussianBatch.from_policy(before, seen)

    free = copy.deepcopy(policy)
    mean, log_std = free(seen)
    ratio = torch.exp(log_prob(action, mean, log_std) - acted)
    gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    observation, imitated = shown.sample(ROWS, torch.Generator().manual_seed(3))
    noise = log_std.detach()
    unlike = gaussian_kl(free(observation)[0], noise, imitated, noise).mean()
    leaving = gaussian_kl(mean, log_std, reference.mean.detach(), reference.log_std.detach()).mean()
    loss = -gain + 0.5 * leaving + 0.7 * unlike - 0.03 * log_std.sum()
    loss.backward()

    with torch.no_grad():
        told, norm = ppo._step_actor(
            seen, ActionBatch(action, acted, advantage), ROWS, KLPenalties(reference, 0.5, 0.7)
        )
    expected = torch.cat([parameter.grad.flatten() for parameter in free.parameters()])  # type: ignore[union-attr]
    assert told == pytest.approx(loss.item(), rel=1e-5) and norm == pytest.approx(expected.norm().item(), rel=1e-4)
    torch.testing.assert_close(ppo.actor_optimizer.gradient, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("limit", [1e9, 0.1])
def test_one_vector_steps_as_adam_does_with_clipped_gradients(limit: float) -> None:
    network, other = mlp(5, (8,), 2, output_gain=1.0), mlp(5, (8,), 2, output_gain=1.0)
    other.load_state_dict(network.state_dict())
    ours, theirs = FlatAdam(network, 1e-2, limit), torch.optim.Adam(other.parameters(), lr=1e-2, eps=1e-5)
    for _ in range(3):
        inputs, slope = torch.randn(ROWS, 5), torch.randn(ROWS, 2)
        with torch.no_grad():
            backward(network, forward(network, inputs), slope)
            ours.step(float(ours.gradient.norm()))
        theirs.zero_grad()
        other(inputs).backward(slope)
        torch.nn.utils.clip_grad_norm_(other.parameters(), limit)
        theirs.step()
    for one, two in zip(network.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


def test_what_an_optimizer_remembers_fits_only_its_own_networks() -> None:
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
    with pytest.raises(AssertionError, match="nobody reads what is learned"):
        optimizer.step(0.0)

"""Direct preference optimization: closed forms of a choice between two actions, and pairs of chunks."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from embodied_rm.errors import UserError
from embodied_rm.rl.imagination.chunks import ChunkPairs, best_and_worst, deviation_reward, standardize
from embodied_rm.rl.imagination.dpo import DPOConfig, chunk_log_prob, dpo_loss, optimize_preferences
from embodied_rm.rl.learner.demo_pairs import DemoPairs
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.run_folder import NullReporter

LOG_STD = -0.5


def mean_action(policy: GaussianPolicy) -> float:
    return float(policy.act(torch.zeros(1, 1).numpy())[0, 0])


def make_policy() -> GaussianPolicy:
    torch.manual_seed(0)
    return GaussianPolicy(PolicySpec(obs_dim=1, action_dim=1, hidden=(16,), log_std_init=LOG_STD))


def two_armed_pairs(share_of_first: float, count: int = 200) -> ChunkPairs:
    """Chunks of one action, 1 or -1, of which a share of pairs prefers the first."""
    preferred = torch.where(torch.arange(count) < share_of_first * count, 1.0, -1.0)
    action = torch.stack([preferred, -preferred], 1)[..., None, None]
    return ChunkPairs(observation=torch.zeros(count, 2, 1, 1), action=action)


def demonstration(action: float) -> DemoPairs:
    return DemoPairs(observation=torch.zeros(1, 1), action=torch.full((1, 1), action), weight=torch.ones(1))


@pytest.mark.parametrize(("share", "beta"), [(0.75, 1.0), (0.75, 0.5), (0.3, 1.0)])
def test_a_two_armed_choice_ends_at_its_closed_form(share: float, beta: float) -> None:
    """The optimum has the log ratio logit(share) / beta, so that mean = reference + std^2 logit(share) / (2 beta)."""
    policy = make_policy()
    before = mean_action(policy)
    config = DPOConfig(beta=beta, imitation_coef=0, steps=1500, batch_size=200, learning_rate=1e-3)
    optimize_preferences(policy, two_armed_pairs(share), demonstration(0.0), config, NullReporter())
    expected = before + math.exp(2 * LOG_STD) * math.log(share / (1 - share)) / (2 * beta)
    assert mean_action(policy) == pytest.approx(expected, abs=0.05)


def test_the_loss_of_the_reference_is_log_2_and_its_gradient_raises_the_preferred() -> None:
    preferred, rejected = (torch.zeros(3, requires_grad=True) for _ in range(2))
    loss = dpo_loss(preferred, rejected, 0.5)
    assert float(loss.detach()) == pytest.approx(math.log(2))
    loss.backward()
    assert torch.allclose(preferred.grad, torch.full((3,), -0.25 / 3))
    assert torch.allclose(rejected.grad, torch.full((3,), 0.25 / 3))


def test_the_log_probability_of_a_chunk_is_the_sum_over_its_actions() -> None:
    policy = make_policy()
    observation, action = torch.randn(4, 3, 1), torch.randn(4, 3, 1)
    parts = sum(chunk_log_prob(policy, observation[:, i : i + 1], action[:, i : i + 1]) for i in range(3))
    assert torch.allclose(chunk_log_prob(policy, observation, action), parts, atol=1e-6)


def test_imitation_keeps_the_demonstrated_action() -> None:
    """Preferences without contradiction have no optimum; imitation beside them does."""
    means = {}
    for coef in (0.0, 1.0):
        policy = make_policy()
        config = DPOConfig(imitation_coef=coef, steps=800, batch_size=64, learning_rate=3e-3)
        optimize_preferences(policy, two_armed_pairs(1.0), demonstration(0.0), config, NullReporter())
        means[coef] = mean_action(policy)
    # Both gradients of the mean m cancel: m / std^2 = (2 / std^2) sigmoid(-2 (m - reference) / std^2).
    moved = means[1.0] - mean_action(make_policy())
    assert means[1.0] == pytest.approx(2 / (1 + math.exp(2 * moved * math.exp(-2 * LOG_STD))), abs=0.03)
    assert means[0.0] > 2 * means[1.0] > 0


def test_only_the_mean_is_trained_and_a_run_repeats_bit_for_bit() -> None:
    policy = make_policy()
    results = []
    for _ in range(2):
        trained = copy.deepcopy(policy)
        stats = optimize_preferences(trained, two_armed_pairs(0.9), demonstration(0.5), DPOConfig(), NullReporter())
        results.append((stats, trained.state_dict()))
    (first, weights), (second, same_weights) = results
    assert first == second and first.pairs == 200 and first.loss < math.log(2) and 0.5 < first.accuracy <= 1
    assert all(torch.equal(value, same_weights[name]) for name, value in weights.items())
    changed = {name for name, value in policy.state_dict().items() if not torch.equal(value, weights[name])}
    assert changed and all(name.startswith("mlp.") for name in changed)


def test_best_and_worst_chunk_of_each_state_and_none_of_equal_ones() -> None:
    observation = torch.arange(3 * 4).float().view(3, 4, 1, 1)
    action = -observation
    reward = torch.tensor([[0.0, 3.0, 1.0, 2.0], [1.0, 1.0, 1.0, 1.0], [5.0, 0.0, 0.0, -1.0]])
    pairs = best_and_worst(observation, action, reward)
    assert pairs.observation.squeeze().tolist() == [[1.0, 0.0], [8.0, 11.0]]
    assert pairs.action.squeeze().tolist() == [[-1.0, 0.0], [-8.0, -11.0]]
    with pytest.raises(UserError, match="no state has a chunk that is better"):
        equal = best_and_worst(observation, action, torch.zeros(3, 4))
        optimize_preferences(make_policy(), equal, demonstration(0.0), DPOConfig(), NullReporter())


def test_rewards_of_deviation_and_their_scale() -> None:
    demonstrated = torch.tensor([[[0.5], [0.5]]])
    action = torch.tensor([[[[0.5], [0.5]], [[0.5], [0.0]], [[-0.5], [-0.5]]]])
    reward = deviation_reward(action, demonstrated)
    assert torch.allclose(reward, torch.tensor([[0.0, -0.125, -1.0]]))
    scaled = standardize(reward)
    assert torch.allclose(scaled, standardize(7 * reward + 3), atol=1e-5)
    assert float(scaled.mean()) == pytest.approx(0, abs=1e-6)
    assert torch.equal(standardize(torch.ones(2, 3)), torch.zeros(2, 3))


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(UserError, match="no chunk is better than another"):
        DPOConfig(progress_weight=0, deviation_weight=0)
    with pytest.raises(UserError, match="num_chunks must be >= 2, got 1"):
        DPOConfig(num_chunks=1)
    with pytest.raises(UserError, match="beta must be > 0, got 0"):
        DPOConfig(beta=0)

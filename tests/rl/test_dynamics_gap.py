"""H2O: the log ratio of two known worlds, weights and penalty of simulated transitions, and a learner between both."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load as parse_tensors
from test_rlpd import make_learner, make_rollout, transitions

from embodied_rm.checkpoint_io import to_safetensors
from embodied_rm.errors import UserError
from embodied_rm.rl.learner.optimizer import FlatAdam
from embodied_rm.rl.learner.policy import ObservationNormalizer
from embodied_rm.rl.off_policy.dynamics_gap import (
    MAX_LOG_RATIO,
    DynamicsGap,
    simulated_value_penalty,
    trust_weights,
)
from embodied_rm.rl.off_policy.off_policy_config import RLPDConfig
from embodied_rm.rl.offline.transitions import OfflineTransitions

SMALL = {
    "batch_size": 64,
    "num_critics": 2,
    "critic_hidden_sizes": (32, 32),
    "learning_rate": 3e-3,
    "updates_per_step": 20.0,
}
NOISE = 0.3  # standard deviation of the next state in both worlds


def world(offset: float, count: int = 4000, seed: int = 0, mean_state: float = 0.0) -> OfflineTransitions:
    """Return transitions of s' = s + a + offset [s_0 > 0] + noise, from states around `mean_state`."""
    generator = torch.Generator().manual_seed(seed)
    state = torch.randn(count, 2, generator=generator) + mean_state
    batch = transitions(count, seed=seed)
    step = batch.action + offset * (state[:, :1] > 0)
    next_state = state + step + NOISE * torch.randn(count, 2, generator=generator)
    return replace(batch, observation=state, next_observation=next_state)


def fit(recorded: OfflineTransitions, simulated: OfflineTransitions) -> DynamicsGap:
    torch.manual_seed(0)
    gap = DynamicsGap(ObservationNormalizer(2), recorded)
    optimizer, generator = FlatAdam(gap, 3e-3, 10.0), torch.Generator().manual_seed(0)
    for _ in range(500):
        optimizer.gradient.zero_()
        gap.loss(recorded.sample(128, generator), simulated.sample(128, generator), generator).backward()
        optimizer.step(float(optimizer.gradient.norm()))
    return gap


def test_the_log_ratio_is_that_of_the_two_worlds() -> None:
    """Both worlds are Gaussian, so it is known; the different shares of their states do not matter."""
    gap = fit(world(0.0, mean_state=0.3), world(0.3, seed=1, mean_state=-0.3))
    batch = world(0.3, seed=2)
    moved = batch.next_observation - batch.observation - batch.action
    expected = ((moved - 0.3).square() - moved.square()).sum(1) / (2 * NOISE**2)
    differs = batch.observation[:, 0] > 0
    estimated = gap.log_ratio(batch)
    assert torch.corrcoef(torch.stack([estimated[differs], expected[differs]]))[0, 1] > 0.85
    assert estimated[differs].mean().item() == pytest.approx(-(0.3**2) / NOISE**2, abs=0.35)  # minus the KL divergence
    assert estimated[~differs].mean().abs() < 0.15
    assert estimated.abs().max() <= MAX_LOG_RATIO


def test_equal_worlds_have_no_gap() -> None:
    gap = fit(world(0.0, mean_state=0.5), world(0.0, seed=1, mean_state=-0.5))
    log_ratio = gap.log_ratio(world(0.0, seed=2))
    assert log_ratio.mean().abs() < 0.1 and trust_weights(log_ratio).mean() > 0.8


def test_the_unit_of_states_does_not_matter() -> None:
    logits = []
    for unit in (1.0, 1000.0):
        batch = world(0.0)
        batch = replace(batch, observation=unit * batch.observation, next_observation=unit * batch.next_observation)
        torch.manual_seed(0)
        normalizer = ObservationNormalizer(2)
        normalizer.fit(batch.observation)
        logits.append(DynamicsGap(normalizer, batch).logits(batch)[0].detach())
    assert (logits[0] - logits[1]).abs().max() < 0.01 * logits[0].std()


def test_impossible_transitions_are_not_trusted_and_likely_ones_not_preferred() -> None:
    weights = trust_weights(torch.tensor([-MAX_LOG_RATIO, -1.0, 0.0, 2.0]))
    assert weights.tolist() == pytest.approx([math.exp(-MAX_LOG_RATIO), math.exp(-1), 1.0, 1.0])


def test_the_penalty_is_the_soft_maximum_where_the_worlds_differ() -> None:
    recorded = torch.tensor([[1.0, 3.0]])
    simulated = torch.tensor([[5.0, 9.0]])
    only_first = simulated_value_penalty(simulated, torch.tensor([-4.0, 1.0]), recorded)
    assert only_first.item() == pytest.approx(5.0 - 2.0, abs=1e-4)  # no gap at the second one
    equal = simulated_value_penalty(torch.full((2, 3), 7.0), torch.tensor([-1.0, -2.0, 0.5]), torch.full((2, 4), 7.0))
    assert equal.item() == pytest.approx(0.0, abs=1e-5)
    halves = simulated_value_penalty(torch.tensor([[0.0, math.log(3.0)]]), torch.tensor([-2.0, -2.0]), recorded)
    assert halves.item() == pytest.approx(math.log(2.0) - 2.0, abs=1e-5)


def test_the_loss_holds_the_penalty() -> None:
    learner, batch, losses = make_learner(transitions(500), dynamics_gap_coef=1.0, **SMALL), transitions(64), []
    for coef in (1.0, 3.0):
        learner.config = replace(learner.config, dynamics_gap_coef=coef)
        learner.generator.manual_seed(0)
        loss, values = learner.critic_loss(batch)
        losses.append(float(loss.detach()))
    assert learner.gap is not None
    values, count = values.detach(), learner._recorded_per_batch
    log_ratio = learner.gap.log_ratio(batch.take(torch.arange(count, 64)))
    penalty = float(simulated_value_penalty(values[:, count:], log_ratio, values[:, :count]))
    assert abs(penalty) > 1e-3 and losses[1] - losses[0] == pytest.approx(2.0 * penalty, rel=1e-3)


def test_values_follow_the_recorded_world_where_both_contradict_each_other() -> None:
    """One state, one action; the recorded world ends badly, the simulator well, in another next state."""
    recorded = transitions(500)
    recorded = replace(
        recorded,
        observation=torch.zeros(500, 2),
        action=torch.zeros(500, 2),
        next_observation=0.1 * torch.randn(500, 2, generator=torch.Generator().manual_seed(3)),
        reward=torch.zeros(500),
    )
    values = []
    for coef in (0.0, 1e-3):
        learner = make_learner(recorded, dynamics_gap_coef=coef, **SMALL)
        rollout = make_rollout()
        rollout.observation[:] = rollout.critic_observation[:] = 0.0
        rollout.next_critic_observation[:] = 1.0
        rollout.reward[:], rollout.terminated[:] = 1.0, True
        stats = learner.update(rollout, train_policy=False)
        state = learner.policy.normalizer(torch.zeros(1, 2))
        values.append(float(learner.critics(state, torch.zeros(1, 2)).mean().detach()))
        assert (stats.dynamics_gap > 1.0) == (coef > 0)
    assert values[0] == pytest.approx(0.5, abs=0.1)
    assert values[1] < 0.15


def test_without_a_coefficient_the_learner_is_that_of_rlpd() -> None:
    learners = [make_learner(transitions(64)) for _ in range(2)]
    learners[1].gap = None
    stats = [learner.update(make_rollout(), train_policy=True) for learner in learners]
    assert stats[0] == stats[1] and stats[0].dynamics_gap == 0


def test_a_stored_learner_goes_on_with_its_classifiers() -> None:
    learner, restored = (make_learner(transitions(64, seed=4), dynamics_gap_coef=0.1) for _ in range(2))
    learner.update(make_rollout(), train_policy=True)
    restored.load_state_dict(parse_tensors(to_safetensors(learner.state_dict())), "x")
    first, second = (each.update(make_rollout(first=50), train_policy=True) for each in (learner, restored))
    assert first == second and first.dynamics_gap != 0


@pytest.mark.parametrize("share", [0.0, 0.001, 0.999, 1.0])
def test_the_gap_needs_both_kinds_of_transitions(share: float) -> None:
    with pytest.raises(UserError, match=r"dynamics_gap_coef=0\.1 compares recorded and new transitions"):
        RLPDConfig(dynamics_gap_coef=0.1, recorded_share=share)

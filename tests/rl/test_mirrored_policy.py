"""Policies that learn from mirror images of what was recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_rlpd import FAST, SMALL, make_rollout, transitions

import embodied_rm as erm
from embodied_rm.errors import UserError
from embodied_rm.rl.cloning.bc import CloneConfig, clone
from embodied_rm.rl.learner.demo_pairs import DemoPairs
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, load_policy, mirror, save_policy
from embodied_rm.rl.off_policy.off_policy_config import RLPDConfig
from embodied_rm.rl.off_policy.rlpd import RLPD
from embodied_rm.rl.offline.transitions import OfflineTransitions
from embodied_rm.types import Episode

SPEC = PolicySpec(obs_dim=2, action_dim=2, hidden=(32,), mirrored_columns=(1,), mirrored_actions=(0,))
ON_THE_LEFT, ON_THE_RIGHT = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, -1.0]])


def left_pairs() -> DemoPairs:
    """Return demonstrations on the left only, where the action is (0.5, 0.3)."""
    observation = ON_THE_LEFT + 0.2 * torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    return DemoPairs(observation=observation, action=torch.tensor([[0.5, 0.3]]).repeat(200, 1), weight=torch.ones(200))


def left_transitions() -> OfflineTransitions:
    """Return transitions on the left only, rewarded most for the action (0.5, 0.5)."""
    recorded = transitions(2000)
    columns = {name: 0.2 * getattr(recorded, name) + ON_THE_LEFT for name in ("observation", "next_observation")}
    return replace(recorded, **columns)


def test_a_mirror_image_of_a_mirror_image_is_the_original() -> None:
    values = torch.randn(3, 4, 5)
    mirrored = mirror(values, (0, 3))
    assert torch.equal(mirrored[..., [0, 3]], -values[..., [0, 3]])
    assert torch.equal(mirrored[..., [1, 2, 4]], values[..., [1, 2, 4]])
    assert torch.equal(mirror(mirrored, (0, 3)), values)


def test_a_policy_cloned_on_the_left_acts_mirrored_on_the_right() -> None:
    config = CloneConfig(num_demonstrations=1, steps=400, hidden_sizes=(32,), learning_rate=3e-3)
    policy, result = clone(left_pairs(), config, mirrored_columns=(1,), mirrored_actions=(0,))
    assert result.transitions == 400
    assert policy.act(ON_THE_LEFT.numpy())[0] == pytest.approx([0.5, 0.3], abs=0.05)
    assert policy.act(ON_THE_RIGHT.numpy())[0] == pytest.approx([-0.5, 0.3], abs=0.05)


def test_an_off_policy_learner_knows_the_best_action_on_the_side_that_nothing_was_recorded_on() -> None:
    torch.manual_seed(0)
    settings = RLPDConfig(pretraining_updates=0, bc_kl_coef=0.0, **SMALL, **FAST)  # type: ignore[arg-type]
    learner = RLPD(GaussianPolicy(SPEC), left_transitions(), settings, gamma=0.9, seed=0)
    learner.update(make_rollout(), train_policy=True)
    left, right = (learner.policy(side)[0][0].detach().numpy() for side in (ON_THE_LEFT, ON_THE_RIGHT))
    assert left == pytest.approx([0.5, 0.5], abs=0.15)
    assert right == pytest.approx([-0.5, 0.5], abs=0.15)


def test_half_of_a_batch_is_mirrored_with_its_rewards() -> None:
    recorded = left_transitions()
    learner = RLPD(GaussianPolicy(SPEC), recorded, RLPDConfig(recorded_share=1.0, batch_size=4000), gamma=0.9, seed=0)
    batch = learner._sample()
    is_mirrored = batch.observation[:, 1] < 0
    assert 0.45 < float(is_mirrored.float().mean()) < 0.55
    action = torch.where(is_mirrored[:, None], mirror(batch.action, (0,)), batch.action)
    assert torch.allclose(batch.reward, 1 - (action - 0.5).square().mean(1)), "the reward is that of the original"
    assert torch.equal(batch.next_observation[:, 1] < 0, is_mirrored)


def test_the_mirror_image_is_stored_with_the_policy(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frames = {"front": np.zeros((20, 2, 2, 3), np.uint8)}
    state, action = (rng.uniform(-1, 1, (20, size)).astype(np.float32) for size in (3, 2))
    demo = Episode(name="demo", views=frames, instruction="go", fps=10.0, state=state, action=action, success=True)
    policy = erm.clone([demo], steps=1, mirrored_columns=range(1, 3), mirrored_actions=[1])
    save_policy(tmp_path, policy)
    assert load_policy(tmp_path).spec == policy.spec
    assert (policy.spec.mirrored_columns, policy.spec.mirrored_actions) == ((1, 2), (1,))
    with pytest.raises(UserError, match="mirrored_actions must be some of the columns 0 to 1"):
        erm.clone([demo], steps=1, mirrored_columns=[1], mirrored_actions=[2])
    with pytest.raises(UserError, match="describe one mirror image"):
        erm.clone([demo], steps=1, mirrored_columns=[1])

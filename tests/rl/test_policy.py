"""Tests of policies: densities, checkpoints and cloning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from embodied_rm.checkpoint_io import save_tensors
from embodied_rm.errors import CheckpointError, DataError, UserError
from embodied_rm.rl.cloning.bc import CloneConfig, clone, select_demonstrations
from embodied_rm.rl.iteration import make_critic
from embodied_rm.rl.learner.demo_pairs import DemoPairs, load_demo_pairs, make_demo_pairs, save_demo_pairs
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, gaussian_kl, load_policy, log_prob, save_policy
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.types import Episode

SPEC = PolicySpec(obs_dim=4, action_dim=2, hidden=(16,))
FEW = CloneConfig(num_demonstrations=4, steps=300, hidden_sizes=(32,), learning_rate=3e-3)


def test_log_prob_and_kl_equal_torch_distributions() -> None:
    mean, other = torch.randn(2, 10, 3, generator=torch.Generator().manual_seed(0)).unbind()
    log_std, other_log_std, action = torch.tensor([-1.0, 0.0, 0.5]), torch.tensor([0.3, -2.0, 0.0]), mean + 0.3
    p = Independent(Normal(mean, log_std.exp()), 1)
    q = Independent(Normal(other, other_log_std.exp()), 1)
    assert torch.allclose(log_prob(action, mean, log_std), p.log_prob(action), atol=1e-5)
    assert torch.allclose(gaussian_kl(mean, log_std, other, other_log_std), kl_divergence(p, q), rtol=1e-4)


def test_samples_have_the_returned_log_prob() -> None:
    policy = GaussianPolicy(SPEC)
    observation = np.zeros((20_000, 4), np.float32)
    action, log_probs = policy.sample(observation, torch.Generator().manual_seed(0))
    mean, log_std = policy(torch.from_numpy(observation))
    assert np.allclose(log_probs, log_prob(torch.from_numpy(action), mean, log_std).detach().numpy(), atol=1e-5)
    assert np.allclose(action.mean(0), policy.act(observation)[0], atol=0.02)
    assert np.allclose(action.std(0), np.exp(SPEC.log_std_init), rtol=0.05)


def test_policy_round_trip(tmp_path: Path) -> None:
    policy = GaussianPolicy(SPEC)
    policy.normalizer.fit(torch.randn(50, 4) * 3 + 1)
    save_policy(tmp_path / "policy", policy, task="lift_cube")
    loaded = load_policy(tmp_path / "policy")
    observation = np.random.default_rng(0).normal(size=(5, 4))
    assert loaded.spec == SPEC
    assert np.array_equal(loaded.act(observation), policy.act(observation))


def pull_to_zero(rng: np.random.Generator) -> Episode:
    """Return a demonstration that pulls a position within half a meter to 0, with a force that saturates at 2 cm."""
    far, near = rng.uniform(-0.5, 0.5, 1000), rng.uniform(-0.02, 0.02, 200)
    state = np.concatenate([far, near]).astype(np.float32)[:, None]
    frames = {"front": np.zeros((len(state), 1, 1, 3), np.uint8)}
    action = -np.tanh(state / 0.02)
    return Episode(name="held", views=frames, instruction="", fps=20, state=state, action=action)


def test_length_columns_are_precise_near_zero(tmp_path: Path) -> None:
    """The same demonstrations and training, with and without a length column."""
    pairs, config = (
        make_demo_pairs([pull_to_zero(np.random.default_rng(0))]),
        CloneConfig(num_demonstrations=1, steps=500),
    )
    coarse, fine = (clone(pairs, config, length_dims=lengths)[0] for lengths in (0, 1))
    position = np.linspace(-0.008, 0.008, 33, dtype=np.float32)[:, None]
    errors = [float(np.abs(policy.act(position) + np.tanh(position / 0.02)).mean()) for policy in (coarse, fine)]
    assert errors[1] < 0.5 * errors[0], errors
    save_policy(tmp_path / "fine", fine)
    assert np.array_equal(load_policy(tmp_path / "fine").act(position), fine.act(position))


def test_more_lengths_than_columns_raise() -> None:
    with pytest.raises(UserError, match=r"length_dims must be in \[0, 4\], got 5"):
        replace(SPEC, length_dims=5)


def test_a_policy_that_ignores_a_constant_column_acts_alike_elsewhere(tmp_path: Path) -> None:
    """One demonstration shows an object at one place only."""
    (demonstration,) = linear_demonstrations(1)
    demonstration.state[:, 2] = 0.4
    seeing, blind = (
        clone(make_demo_pairs([demonstration]), FEW, length_dims=3, ignored_columns=ignored)[0]
        for ignored in ((), (2,))
    )
    here = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    there = here + np.array([0, 0, 0.3], np.float32)
    assert not np.allclose(seeing.act(here), seeing.act(there), atol=0.1)
    assert np.array_equal(blind.act(here), blind.act(there))
    assert np.array_equal(blind.act(here), blind.act(np.where([False, False, True], np.nan, here)))
    critic = make_critic(blind, RefineConfig(), 3)
    values = [critic(torch.from_numpy(observation), torch.zeros(50)) for observation in (here, there)]
    assert torch.equal(*values), "a critic that shares the observation shares what is ignored"
    save_policy(tmp_path / "blind", blind)
    loaded = load_policy(tmp_path / "blind")
    assert loaded.spec == blind.spec and np.array_equal(loaded.act(there), blind.act(here))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((4,), "must be some of the columns 0 to 3"),
        ((-1,), "must be some of the columns 0 to 3"),
        ((0, 1, 2, 3), "must leave the policy some of its 4 columns"),
    ],
)
def test_ignored_columns_that_leave_nothing_or_do_not_exist_raise(columns: tuple[int, ...], message: str) -> None:
    with pytest.raises(UserError, match=f"ignored_columns {message}"):
        replace(SPEC, ignored_columns=columns)


def test_invalid_checkpoints_raise(tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    save_policy(folder, GaussianPolicy(SPEC))
    path = next(folder.glob("*.safetensors"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=path.name):
        load_policy(folder)
    tensors = dict(GaussianPolicy(SPEC).state_dict())
    for manifest, message in (
        ({"architecture": "progress_net"}, "'progress_net', not of 'gaussian_policy'"),
        ({"architecture": "gaussian_policy"}, "no policy spec"),
        ({"architecture": "gaussian_policy", "spec": {"obs_dim": 4}}, "no policy spec"),
        ({"architecture": "gaussian_policy", "spec": {"obs_dim": 5, "action_dim": 2, "hidden": [16]}}, "normalizer"),
    ):
        save_tensors(folder, tensors, manifest)
        with pytest.raises(CheckpointError, match=message):
            load_policy(folder)


def test_constant_features_do_not_explode() -> None:
    policy = GaussianPolicy(SPEC)
    policy.normalizer.fit(torch.zeros(10, 4))
    assert torch.isfinite(policy(torch.full((1, 4), 1e9))[0]).all()


def linear_demonstrations(count: int) -> list[Episode]:
    """Return demonstrations with action = (x + y, x - y) / 4 of the state (x, y, z)."""
    rng = np.random.default_rng(0)
    episodes = []
    for i in range(count):
        state = rng.normal(size=(30, 3)).astype(np.float32)
        action = np.stack([state[:, 0] + state[:, 1], state[:, 0] - state[:, 1]], axis=1) / 4
        frames = {"front": np.zeros((30, 1, 1, 3), np.uint8)}
        episodes.append(Episode(name=f"e{i}", views=frames, instruction="", fps=20, state=state, action=action))
    return episodes


def test_cloning_generalizes_from_linear_demonstrations() -> None:
    episodes = linear_demonstrations(8)
    policy, fit = clone(make_demo_pairs(episodes[:4]), FEW)
    assert fit.transitions == 120
    assert fit.mse < 0.01 < fit.initial_mse
    unseen = np.array([[0.5, -0.5, 0.1], [0.2, 0.8, 0.0]])
    assert np.allclose(policy.act(unseen), [[0.0, 0.25], [0.25, -0.15]], atol=0.08)
    assert np.allclose(policy.normalizer.mean, 0, atol=0.3)


def test_cloning_is_deterministic_and_keeps_the_global_generator() -> None:
    episodes = linear_demonstrations(8)
    state = torch.random.get_rng_state()
    first, again, other = (
        clone(make_demo_pairs(episodes), replace(FEW, seed=seed, steps=20))[0].state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)
    assert torch.equal(state, torch.random.get_rng_state())


def test_pairs_round_trip_and_other_checkpoints_raise(tmp_path: Path) -> None:
    pairs = make_demo_pairs(
        linear_demonstrations(2), [np.ones(30, np.float32), np.linspace(0, 1, 30, dtype=np.float32)]
    )
    assert len(pairs) == 59  # without the pair of weight 0
    save_demo_pairs(tmp_path / "pairs", pairs)
    loaded = load_demo_pairs(tmp_path / "pairs")
    assert all(torch.equal(getattr(pairs, name), getattr(loaded, name)) for name in ("observation", "action", "weight"))
    save_tensors(tmp_path / "other", {"action": pairs.action}, {"architecture": "imitated_pairs"})
    with pytest.raises(CheckpointError, match="pairs have observation, action, weight"):
        load_demo_pairs(tmp_path / "other")


def test_demonstrations_are_selected_by_seed_without_repetition() -> None:
    selections = [select_demonstrations(10, replace(FEW, seed=seed)) for seed in range(5)]
    assert all(len(set(some)) == FEW.num_demonstrations and some == sorted(some) for some in selections)
    assert len({tuple(some) for some in selections}) > 1 and selections[0] == select_demonstrations(10, FEW)


def test_pairs_are_sampled_by_weight() -> None:
    timesteps = torch.arange(3.0)[:, None]
    pairs = DemoPairs(observation=timesteps, action=timesteps, weight=torch.tensor([1.0, 1.0, 6.0]))
    observation, action = pairs.sample(4000, torch.Generator().manual_seed(0))
    assert torch.equal(observation, action)
    assert abs(float((action == 2).float().mean()) - 0.75) < 0.03


def test_unusable_demonstrations_raise() -> None:
    episodes = linear_demonstrations(4)
    with pytest.raises(DataError, match="5 demonstrations requested, the dataset has 4"):
        select_demonstrations(4, replace(FEW, num_demonstrations=5))
    episodes[2] = replace(episodes[2], action=None)
    with pytest.raises(DataError, match=r"e2: .*action"):
        make_demo_pairs(episodes)
    with pytest.raises(UserError, match="steps"):
        CloneConfig(steps=0)

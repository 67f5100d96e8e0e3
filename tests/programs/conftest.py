"""Fixtures of the tests of reward programs."""

from pathlib import Path

import pytest

from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, save_policy
from embodied_rm.tabletop.envs import EnvConfig, make_envs


@pytest.fixture(scope="session")
def lever_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy of `turn_lever` with random weights."""
    envs = make_envs("turn_lever", EnvConfig(num_envs=1, views=()), ends_on_success=False)
    spec = PolicySpec(obs_dim=envs.single_observation_space.shape[0], action_dim=envs.single_action_space.shape[0])
    envs.close()
    folder = tmp_path_factory.mktemp("lever") / "policy"
    save_policy(folder, GaussianPolicy(spec))
    return folder

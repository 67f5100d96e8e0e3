"""Learners of recorded transitions: inputs that do not fit are refused, and a run continues with the same ones only."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from rl_envs import ImageModel, PointReachEnv
from test_refine import SPEC
from test_rlpd import CONFIG, transitions

from embodied_rm.errors import UserError
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.rl.offline.transitions import OfflineTransitions
from embodied_rm.rl.refine import refine
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.refine_options import RefineOptions
from embodied_rm.run_folder import NullReporter, RunFolder


class StateEnv(PointReachEnv):
    """Its infos have a state in another unit than its observations."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, infos = super().reset(seed=seed, options=options)
        return observation, {**infos, "state": 100 * observation}


@pytest.mark.parametrize("algorithm", ["rlpd", "hnpg"])
def test_environments_whose_states_or_actions_do_not_fit_are_refused(tmp_path: Path, algorithm: str) -> None:
    config, policy = replace(CONFIG, algorithm=algorithm), GaussianPolicy(SPEC)

    def start(envs: PointReachEnv, recorded: OfflineTransitions) -> None:
        run, options = RunFolder.open(tmp_path, resume=True), RefineOptions(recorded=recorded)
        refine(envs, policy, ImageModel(), config, run, NullReporter(), None, options)

    with pytest.raises(UserError, match="must not have a `state` for the critic"):
        start(StateEnv(4), transitions(9))
    far = replace(transitions(9), action=torch.full((9, 2), 1.5))
    with pytest.raises(UserError, match=rf"algorithm={algorithm} needs actions in \[-1, 1\], and one is 1\.5"):
        start(PointReachEnv(4), far)
    wide = PointReachEnv(4)
    wide.single_action_space = gym.spaces.Box(-3.0, 3.0, (2,), np.float32)
    with pytest.raises(UserError, match=r"takes actions in \[-1, 1\], and the environment has Box\(-3"):
        start(wide, transitions(9))


def test_a_run_is_continued_with_the_same_inputs_only(tmp_path: Path) -> None:
    def start(config: RefineConfig, policy: GaussianPolicy, recorded: OfflineTransitions) -> None:
        run, options = RunFolder.open(tmp_path, resume=True), RefineOptions(recorded=recorded)
        refine(PointReachEnv(4), policy, ImageModel(), config, run, NullReporter(), None, options)

    config, policy = replace(CONFIG, iterations=2), GaussianPolicy(SPEC)
    start(config, copy.deepcopy(policy), transitions(9))
    start(replace(config, iterations=3, max_episodes=1000), copy.deepcopy(policy), transitions(9))
    with pytest.raises(UserError, match=r"was started with rlpd\.learning_rate=0\.001: name another folder"):
        start(replace(config, rlpd=replace(config.rlpd, learning_rate=1e-4)), copy.deepcopy(policy), transitions(9))
    for other_policy, recorded in ((GaussianPolicy(SPEC), transitions(9)), (policy, transitions(9, seed=1))):
        with pytest.raises(UserError, match="was started with other episodes, or another policy"):
            start(config, copy.deepcopy(other_policy), recorded)

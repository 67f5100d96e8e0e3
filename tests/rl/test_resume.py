"""A refinement that dies goes on where it was: it ends with the weights of one that was never disturbed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from curves import read_scalars
from gymnasium.vector import AutoresetMode

from embodied_rm.checkpoint_io import load_tensors
from embodied_rm.logs import flatten_metrics
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl import refine_checkpoint
from embodied_rm.rl.envs.embedding_obs import EmbeddingObservation
from embodied_rm.rl.learner.demo_pairs import DemoPairs
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.learner.ppo import PPOConfig
from embodied_rm.rl.refine import refine
from embodied_rm.rl.refine_checkpoint import ARCHITECTURE, CHECKPOINT_DIR, PROGRESS_FILE
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.watch.evaluate_policy import EvalResult
from embodied_rm.rl.watch.log_rows import read_rows, to_scalars
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_sim.domain_randomization import Randomization
from embodied_sim.vec_env import TabletopVecEnv

CONFIG = RefineConfig(
    iterations=5,
    rollout_steps=9,
    critic_warmup_iterations=1,
    stop_patience=9,
    ppo=PPOConfig(num_minibatches=2, epochs=2),
)
SHARES = EvalResult(successes=0, episodes=1, diverged_episodes=0, mean_steps=1.0)


class Dies(TabletopVecEnv):
    """Environments that are switched off at a step."""

    left = 10**9

    def step(self, actions):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().step(actions)


def play(
    folder: Path, task: str, reward: RewardConfig, left: int = 10**9, sees: bool = False, **extra
) -> dict[str, torch.Tensor]:
    """Everything that is stored at the end of a refinement whose environments have `left` steps to live."""
    envs = Dies(task, 4, views=("front",), autoreset_mode=AutoresetMode.DISABLED,
                  randomize=Randomization(friction=0.2, mass=0.2, latency=1))  # fmt: skip
    envs.left = left
    torch.manual_seed(0)
    model = ProgressNet(NetConfig(views=("front",))).eval()
    env = EmbeddingObservation(envs, model) if sees else envs
    policy = GaussianPolicy(PolicySpec(obs_dim=env.single_observation_space.shape[0], action_dim=4, hidden=(16,)))
    config, run = replace(CONFIG, reward=reward, **extra), RunFolder.open(folder, resume=True)
    shown = DemoPairs(
        observation=torch.zeros(9, policy.spec.obs_dim), action=torch.zeros(9, 4), weight=torch.arange(1.0, 10)
    )
    try:
        refine(env, policy, model, config, run, NullReporter(), lambda _: SHARES, demonstrations=shown)
    finally:
        envs.close()
    return load_tensors(folder / CHECKPOINT_DIR, ARCHITECTURE)[0]


@pytest.mark.parametrize(
    ("task", "reward", "extra"),
    [
        ("lift_cube", RewardConfig(success_patience=2, success_threshold=0.2, score_every=2), {}),
        ("lift_cube", RewardConfig(success_patience=2, success_threshold=0.2), {"heuristic_off_at": 1.0}),
        ("open_then_lift", RewardConfig(success_patience=2, success_threshold=0.2), {"imitation_coef": 0.1}),
        ("push_to_zone", RewardConfig(rule="redistributed"), {}),
        ("lift_cube", RewardConfig(rule="dense", success_source="simulator"), {"start_pool_size": 6}),
        ("press_button", RewardConfig(rule="blended"), {"sees": True}),
        ("press_button", RewardConfig(rule="sigmoid_reference"), {"rollout_steps": 45}),
    ],
)
def test_it_ends_with_the_same_bits_however_often_it_dies(
    task: str, reward: RewardConfig, extra: dict[str, Any], tmp_path: Path
) -> None:
    whole = play(tmp_path / "whole", task, reward, **extra)
    rollout = extra.get("rollout_steps", CONFIG.rollout_steps)
    for iterations in (1.45, 2.25, 1):
        with pytest.raises(KeyboardInterrupt):
            play(tmp_path / "parts", task, reward, int(iterations * rollout), **extra)
    parts = play(tmp_path / "parts", task, reward, **extra)
    assert any("envs.physics" in name for name in whole)
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_its_curves_are_its_rows_though_it_died_between_a_row_and_its_checkpoint(tmp_path, monkeypatch) -> None:
    reward, rollout = RewardConfig(success_patience=2, success_threshold=0.2), CONFIG.rollout_steps
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, "lift_cube", reward, 2 * rollout + 3)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(refine_checkpoint, "save_tensors", dies)
        play(tmp_path, "lift_cube", reward)
    assert len(read_rows(tmp_path / PROGRESS_FILE)) == 3, "the row of an iteration that is not stored"
    play(tmp_path, "lift_cube", reward)
    rows = [flatten_metrics(to_scalars(row)) for row in read_rows(tmp_path / PROGRESS_FILE)]
    assert len(rows) == CONFIG.iterations and {"critic_loss", "seconds/learn", "alarm"} <= set(rows[0])
    for tag, points in read_scalars(tmp_path).items():
        known = [(step, row[tag]) for step, row in enumerate(rows) if tag in row]
        assert [step for step, _ in points] == [step for step, _ in known], tag
        assert [value for _, value in points] == pytest.approx([value for _, value in known], rel=1e-6), tag

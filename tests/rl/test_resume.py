"""A refinement that is killed and resumed ends with bit-identical weights."""

from __future__ import annotations

from collections.abc import Callable
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
from embodied_rm.rl.envs.takeover import Helper
from embodied_rm.rl.learner.demo_pairs import DemoPairs
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.learner.ppo import PPOConfig
from embodied_rm.rl.off_policy import hnpg
from embodied_rm.rl.off_policy.off_policy_config import HNPGConfig
from embodied_rm.rl.offline.transitions import OfflineTransitions
from embodied_rm.rl.refine import refine
from embodied_rm.rl.refine_checkpoint import ARCHITECTURE, CHECKPOINT_DIR, PROGRESS_FILE
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.refine_options import ModelTeacher, RefineOptions
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
SHORT_HNPG = {"algorithm": "hnpg", "hnpg": HNPGConfig(updates=8)}
EVAL_RESULT = EvalResult(successes=0, episodes=1, diverged_episodes=0, mean_steps=1.0)


class InterruptedEnvs(TabletopVecEnv):
    """Environments that raise `KeyboardInterrupt` at a step."""

    remaining = 10**9

    def step(self, actions):
        self.remaining -= 1
        if self.remaining < 0:
            raise KeyboardInterrupt
        return super().step(actions)


def play(
    folder: Path,
    task: str,
    reward: RewardConfig,
    remaining: int = 10**9,
    with_embeddings: bool = False,
    teacher: ModelTeacher | None = None,
    helper_of: Callable[[TabletopVecEnv], Helper] | None = None,
    **extra,
) -> dict[str, torch.Tensor]:
    """Run a refinement whose environments stop after `remaining` steps, and return its checkpoint."""
    envs = InterruptedEnvs(
        task,
        4,
        views=("front",),
        autoreset_mode=AutoresetMode.DISABLED,
        randomize=Randomization(friction=0.2, mass=0.2, latency=1),
    )
    envs.remaining = remaining
    torch.manual_seed(0)
    model = ProgressNet(NetConfig(views=("front",))).eval()
    env = EmbeddingObservation(envs, model) if with_embeddings else envs
    policy = GaussianPolicy(PolicySpec(obs_dim=env.single_observation_space.shape[0], action_dim=4, hidden=(16,)))
    config, run = replace(CONFIG, reward=reward, **extra), RunFolder.open(folder, resume=True)
    pairs = DemoPairs(
        observation=torch.zeros(9, policy.spec.obs_dim), action=torch.zeros(9, 4), weight=torch.arange(1.0, 10)
    )
    recorded = OfflineTransitions(
        observation=pairs.observation,
        action=pairs.action,
        reward=torch.arange(9.0),
        next_observation=pairs.observation,
        terminated=torch.arange(9) == 8,
        potential=torch.zeros(9),
        episode_index=torch.zeros(9, dtype=torch.int64),
    )
    helper = None if helper_of is None else helper_of(envs)
    options = RefineOptions(demonstrations=pairs, recorded=recorded, teacher=teacher, helper=helper)
    try:
        refine(env, policy, model, config, run, NullReporter(), lambda _: EVAL_RESULT, options)
    finally:
        envs.close()
    return load_tensors(folder / CHECKPOINT_DIR, ARCHITECTURE)[0]


@pytest.mark.parametrize(
    ("task", "reward", "extra"),
    [
        ("lift_cube", RewardConfig(success_patience=2, success_threshold=0.2, score_every=2), {}),
        (
            "lift_cube",
            RewardConfig(success_patience=2, success_threshold=0.2, success_in_each_view=True),
            {"heuristic_off_at": 1.0},
        ),
        ("open_then_lift", RewardConfig(success_patience=2, success_threshold=0.2), {"imitation_coef": 0.1}),
        ("push_to_zone", RewardConfig(rule="redistributed"), {}),
        ("lift_cube", RewardConfig(rule="dense", success_source="simulator"), {"start_pool_size": 6}),
        ("press_button", RewardConfig(rule="blended"), {"with_embeddings": True}),
        ("press_button", RewardConfig(rule="sigmoid_reference"), {"rollout_steps": 45}),
        ("lift_cube", RewardConfig(success_patience=2, success_threshold=0.2), SHORT_HNPG),
    ],
)
def test_resumed_runs_are_bit_identical(
    task: str, reward: RewardConfig, extra: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hnpg, "FIRST_UPDATES", 20)
    uninterrupted = play(tmp_path / "uninterrupted", task, reward, **extra)
    rollout = extra.get("rollout_steps", CONFIG.rollout_steps)
    for iterations in (1.45, 2.25, 1):
        with pytest.raises(KeyboardInterrupt):
            play(tmp_path / "resumed", task, reward, int(iterations * rollout), **extra)
    resumed = play(tmp_path / "resumed", task, reward, **extra)
    assert any("envs.physics" in name for name in uninterrupted)
    assert uninterrupted.keys() == resumed.keys()
    assert all(torch.equal(uninterrupted[name], resumed[name]) for name in uninterrupted)


def test_curves_equal_rows_after_a_crash_before_the_checkpoint(tmp_path, monkeypatch) -> None:
    reward, rollout = RewardConfig(success_patience=2, success_threshold=0.2), CONFIG.rollout_steps
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, "lift_cube", reward, 2 * rollout + 3)

    def raise_interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(refine_checkpoint, "save_tensors", raise_interrupt)
        play(tmp_path, "lift_cube", reward)
    assert len(read_rows(tmp_path / PROGRESS_FILE)) == 3, "the row of an iteration without checkpoint"
    play(tmp_path, "lift_cube", reward)
    rows = [flatten_metrics(to_scalars(row)) for row in read_rows(tmp_path / PROGRESS_FILE)]
    assert len(rows) == CONFIG.iterations and {"critic_loss", "seconds/learn", "alarm"} <= set(rows[0])
    for tag, points in read_scalars(tmp_path).items():
        expected = [(step, row[tag]) for step, row in enumerate(rows) if tag in row]
        assert [step for step, _ in points] == [step for step, _ in expected], tag
        assert [value for _, value in points] == pytest.approx([value for _, value in expected], rel=1e-6), tag

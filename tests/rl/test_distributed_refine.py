"""Tests of refinement with several processes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from process_group import Result, kill, run, start

from embodied_rm.checkpoint_io import MANIFEST_NAME
from embodied_rm.distributed import SINGLE_PROCESS, DistContext
from embodied_rm.errors import UserError
from embodied_rm.models.checkpoint import load_progress_net, weights_digest
from embodied_rm.paths import BUNDLED_CHECKPOINT, IMITATION_DIR
from embodied_rm.rl.learner.demo_pairs import DemoPairs, save_demo_pairs
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, load_policy, save_policy
from embodied_rm.rl.refine_checkpoint import CHECKPOINT_DIR
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.refine_options import validate_config
from embodied_sim.observation import PROPRIO_DIM

ITERATIONS = 2
SIZES = (
    *(
        f"iterations={ITERATIONS}",
        "critic_warmup_iterations=1",
        "rollout_steps=62",
        "stop_patience=9",
        "ppo.num_minibatches=3",
    ),
    *("final_eval_episodes=4", "eval_episodes=4", "env.num_envs=4"),
)


@given(st.integers(1, 7), st.integers(0, 40))
def test_shards_partition_the_data(size: int, extra: int) -> None:
    groups = [DistContext(rank=rank, world_size=size) for rank in range(size)]
    rows = torch.arange(size + extra)
    assert torch.equal(torch.cat([group.shard(rows) for group in groups]), rows)
    share = groups[0].local_count(size * (extra + 1))
    all_rows = np.arange(size * share)
    assert np.array_equal(np.concatenate([all_rows[group.local_rows(share)] for group in groups]), all_rows)
    if size > 1:
        assert [seed for group in groups for seed in group.env_seeds(5, share)] == list(5 + all_rows)


def test_uneven_shards_raise() -> None:
    with pytest.raises(UserError, match=r"num_envs=10 cannot be shared evenly by 3"):
        DistContext(world_size=3).local_count(10)


def test_single_process_exchanges_nothing() -> None:
    assert (
        SINGLE_PROCESS.all_gather_bytes(b"x") == [b"x"]
        and SINGLE_PROCESS.all_gather_object({"a": 1}) == [{"a": 1}]
        and SINGLE_PROCESS.env_seeds(7, 3) == 7
    )


def command(policy: Path, out: Path, *overrides: str) -> list[str]:
    return ["refine", "task=lift_cube", f"policy={policy}", f"out={out}", *SIZES, *overrides]


def refine(policy: Path, out: Path, processes: int, *overrides: str) -> Result:
    return run(command(policy, out, *overrides), processes, out.with_suffix(".log"))


def run_and_kill(policy: Path, out: Path, *overrides: str) -> None:
    """Run two processes, and kill both after their first checkpoint."""
    group = start(command(policy, out, *overrides), 2, out.with_suffix(".log"))
    while not (out / CHECKPOINT_DIR / MANIFEST_NAME).exists():
        assert all(process.is_alive() for process in group), "it ended before it stored anything"
        time.sleep(0.01)
    kill(group)
    assert not (out / "metrics.json").exists()


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_policy(tmp_path / "policy", GaussianPolicy(PolicySpec(obs_dim=29, action_dim=4, hidden=(16,))))
    observation, action = torch.randn(50, 29), torch.rand(50, 4)
    save_demo_pairs(
        tmp_path / IMITATION_DIR, DemoPairs(observation=observation, action=action, weight=torch.arange(1.0, 51))
    )
    return tmp_path / "policy"


def test_two_processes_equal_one_and_can_be_resumed(policy: Path, tmp_path: Path) -> None:
    """The reward is that of the simulator, because outputs of networks depend on the batch size."""
    options = ("reward.rule=dense", "reward.success_source=simulator", "imitation_coef=0.1")
    for processes in (1, 2):
        done = refine(policy, tmp_path / str(processes), processes, *options)
        assert done.returncode == 0, done.output
    start, one, two = (
        load_policy(folder).state_dict() for folder in (policy, *(tmp_path / n / "policy" for n in "12"))
    )
    moved = max(float((one[name] - start[name]).abs().max()) for name in one)
    assert moved > 1e-3
    assert all(torch.allclose(one[name], two[name], atol=1e-3 * moved) for name in one)
    for single, distributed in zip(rows(tmp_path / "1"), rows(tmp_path / "2"), strict=True):
        for key in ("env_steps", "episodes", "num_scores", "success", "eval_successes"):
            assert single[key] == distributed[key]
    assert sum(row["episodes"] for row in rows(tmp_path / "1")) >= 4, "environments were reset"

    again = refine(policy, tmp_path / "2", 2, "resume=true", *options)
    assert again.returncode == 0 and "is already finished" in again.output
    run_and_kill(policy, tmp_path / "run_and_kill", *options)
    other = refine(policy, tmp_path / "run_and_kill", 1, "resume=true", *options)
    assert other.returncode == 2 and "started with 2 processes" in " ".join(other.output.split())
    assert refine(policy, tmp_path / "run_and_kill", 2, "resume=true", *options).returncode == 0
    ended = load_policy(tmp_path / "run_and_kill" / "policy").state_dict()
    assert len(rows(tmp_path / "run_and_kill")) == ITERATIONS
    assert all(torch.equal(ended[name], two[name]) for name in two), "bit-identical after a resume"


@pytest.fixture
def embedding_policy(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    spec = PolicySpec(
        obs_dim=PROPRIO_DIM + load_progress_net(BUNDLED_CHECKPOINT).config.width,
        action_dim=4,
        hidden=(16,),
        obs_mode="proprio+embeddings",
        encoder_sha256=weights_digest(BUNDLED_CHECKPOINT),
        views=("front",),
    )
    save_policy(tmp_path / "embedding_policy", GaussianPolicy(spec))
    return tmp_path / "embedding_policy"


@pytest.mark.parametrize(("policy_fixture", "rule"), [("policy", "redistributed"), ("embedding_policy", "blended")])
def test_rollout_rewards_use_all_processes(
    policy_fixture: str, rule: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Before the first optimizer step, statistics differ only by the rounding of sums."""
    policy = request.getfixturevalue(policy_fixture)
    success_options = ("reward.success_threshold=1e-6", "reward.success_patience=20")
    short = ("iterations=1", "critic_warmup_iterations=0", "eval_episodes=1", "final_eval_episodes=1")
    options = (f"reward.rule={rule}", "env.views=[front]", *success_options, *short)
    for processes in (1, 2):
        done = refine(policy, tmp_path / str(processes), processes, *options)
        assert done.returncode == 0, done.output
    single, distributed = rows(tmp_path / "1")[0], rows(tmp_path / "2")[0]
    assert single["episodes"] > 0
    for key in ("explained_variance", "shaped_return", "success", "critic_grad_norm"):
        assert distributed[key] == pytest.approx(single[key], rel=0.02, abs=1e-4)


def test_invalid_distributed_settings_raise() -> None:
    actor, columns = GaussianPolicy(PolicySpec(obs_dim=3, action_dim=2)), torch.zeros(5, 4)
    pairs = DemoPairs(observation=columns, action=columns, weight=torch.ones(5))
    with pytest.raises(UserError, match=r"start_pool_size=.* works in one process only"):
        validate_config(RefineConfig(start_pool_size=4), actor, None, DistContext(world_size=2), teaches=False)
    with pytest.raises(UserError, match="needs demonstrations, and there are none"):
        validate_config(RefineConfig(imitation_coef=0.1), actor, None, SINGLE_PROCESS, teaches=False)
    with pytest.raises(UserError, match="observations of size 4 and actions of size 4, the policy 3 and 2"):
        validate_config(RefineConfig(imitation_coef=0.1), actor, pairs, SINGLE_PROCESS, teaches=False)
    for algorithm in ("hnpg", "rlpd"):
        with pytest.raises(UserError, match=f"imitation_coef is of algorithm=ppo, not of {algorithm}"):
            config = RefineConfig(imitation_coef=0.1, algorithm=algorithm)
            validate_config(config, actor, pairs, SINGLE_PROCESS, teaches=False)
    with pytest.raises(UserError, match="3 transitions cannot be shared by 4 processes"):
        DistContext(world_size=4).num_minibatches(16, 3)
    assert DistContext(world_size=4).num_minibatches(16, 9) == 2 and SINGLE_PROCESS.num_minibatches(16, 9) == 9

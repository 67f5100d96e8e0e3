"""Processes that refine together: the same run, in parts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.checkpoint_io import MANIFEST_NAME
from embodied_rm.distributed import SINGLE_PROCESS, DistContext
from embodied_rm.errors import UserError
from embodied_rm.models.checkpoint import load_progress_net, weights_digest
from embodied_rm.paths import BUNDLED_CHECKPOINT, IMITATION_DIR
from embodied_rm.rl.learner.demo_pairs import DemoPairs, save_demo_pairs
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, load_policy, save_policy
from embodied_rm.rl.refine import validate_config
from embodied_rm.rl.refine_checkpoint import CHECKPOINT_DIR
from embodied_rm.rl.refine_config import RefineConfig
from embodied_sim.observation import PROPRIO_DIM

ITERATIONS = 2
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
SIZES = (
    *(f"iterations={ITERATIONS}", "critic_warmup_iterations=1", "rollout_steps=62", "stop_patience=9", "ppo.num_minibatches=3"),
    *("final_eval_episodes=4", "eval_episodes=4", "env.num_envs=4"),
)


@given(st.integers(1, 7), st.integers(0, 40))
def test_parts_make_up_the_whole(size: int, more: int) -> None:
    groups = [DistContext(rank=rank, world_size=size) for rank in range(size)]
    rows = torch.arange(size + more)
    assert torch.equal(torch.cat([group.shard(rows) for group in groups]), rows)
    share = groups[0].local_count(size * (more + 1))
    everybody = np.arange(size * share)
    assert np.array_equal(np.concatenate([everybody[group.local_rows(share)] for group in groups]), everybody)
    if size > 1:
        assert [seed for group in groups for seed in group.env_seeds(5, share)] == list(5 + everybody)


def test_envs_that_cannot_be_shared_evenly_are_refused() -> None:
    with pytest.raises(UserError, match=r"num_envs=10 cannot be shared evenly by 3"):
        DistContext(world_size=3).local_count(10)


def test_alone_nothing_is_exchanged() -> None:
    assert (
        SINGLE_PROCESS.all_gather_bytes(b"x") == [b"x"]
        and SINGLE_PROCESS.all_gather_object({"a": 1}) == [{"a": 1}]
        and SINGLE_PROCESS.env_seeds(7, 3) == 7
    )


def command(policy: Path, out: Path, processes: int, *words: str) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    start = [sys.executable, *launcher, "-m", "embodied_rm", "refine", "task=lift_cube", f"policy={policy}"]
    return [*start, f"out={out}", *SIZES, *words]


def refine(policy: Path, out: Path, processes: int, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(policy, out, processes, *words), env=ONE_THREAD, capture_output=True, text=True, timeout=300
    )


def killed(policy: Path, out: Path, *words: str) -> None:
    """Two processes that die, both at once, when their first iteration is stored."""
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(command(policy, out, 2, *words), env=ONE_THREAD, stdout=quiet, stderr=quiet)
    while not (out / CHECKPOINT_DIR / MANIFEST_NAME).exists():
        assert child.poll() is None, "it ended before it stored anything"
        time.sleep(0.01)
    for pid in family(child.pid):
        os.kill(pid, signal.SIGKILL)
    child.wait()
    assert not (out / "metrics.json").exists()


def family(pid: int) -> list[int]:
    """The process and all that it started, as Linux tells."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in family(int(child)))]


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


def test_two_processes_learn_what_one_does_also_when_they_are_interrupted(policy: Path, tmp_path: Path) -> None:
    """Paid by the simulator, so that nothing is said by networks, whose last digits hang on the size of a batch."""
    paid = ("reward.rule=dense", "reward.success_source=simulator", "imitation_coef=0.1")
    for processes in (1, 2):
        done = refine(policy, tmp_path / str(processes), processes, *paid)
        assert done.returncode == 0, done.stderr
    start, one, two = (
        load_policy(folder).state_dict() for folder in (policy, *(tmp_path / n / "policy" for n in "12"))
    )
    moved = max(float((one[name] - start[name]).abs().max()) for name in one)
    assert moved > 1e-3
    assert all(torch.allclose(one[name], two[name], atol=1e-3 * moved) for name in one)
    for alone, together in zip(rows(tmp_path / "1"), rows(tmp_path / "2"), strict=True):
        for counted in ("env_steps", "episodes", "num_scores", "success", "eval_successes"):
            assert alone[counted] == together[counted]
    assert sum(row["episodes"] for row in rows(tmp_path / "1")) >= 4, "no environment was ever reset"

    again = refine(policy, tmp_path / "2", 2, "resume=true", *paid)
    assert again.returncode == 0 and "is already finished" in again.stdout
    killed(policy, tmp_path / "killed", *paid)
    other = refine(policy, tmp_path / "killed", 1, "resume=true", *paid)
    assert other.returncode == 2 and "started with 2 processes" in " ".join(other.stderr.split())
    assert refine(policy, tmp_path / "killed", 2, "resume=true", *paid).returncode == 0
    ended = load_policy(tmp_path / "killed" / "policy").state_dict()
    assert len(rows(tmp_path / "killed")) == ITERATIONS
    assert all(torch.equal(ended[name], two[name]) for name in two), "as if nothing had happened"


@pytest.fixture
def seeing(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    spec = PolicySpec(
        obs_dim=PROPRIO_DIM + load_progress_net(BUNDLED_CHECKPOINT).config.width,
        action_dim=4,
        hidden=(16,),
        obs_mode="proprio+embeddings",
        encoder_sha256=weights_digest(BUNDLED_CHECKPOINT),
        views=("front",),
    )
    save_policy(tmp_path / "seeing", GaussianPolicy(spec))
    return tmp_path / "seeing"


@pytest.mark.parametrize(("who", "rule"), [("policy", "redistributed"), ("seeing", "blended")])
def test_a_rollout_is_paid_as_a_whole_by_all_processes(
    who: str, rule: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The first update has seen no step of the optimizer: what it is told differs only by how sums are rounded."""
    policy = request.getfixturevalue(who)
    judged = ("reward.success_threshold=1e-6", "reward.success_patience=20")
    paid = (f"reward.rule={rule}", "env.views=[front]", *judged)
    for processes in (1, 2):
        done = refine(policy, tmp_path / str(processes), processes, *paid)
        assert done.returncode == 0, done.stderr
    alone, together = rows(tmp_path / "1")[0], rows(tmp_path / "2")[0]
    assert alone["episodes"] > 0
    for told in ("explained_variance", "shaped_return", "success", "critic_grad_norm"):
        assert together[told] == pytest.approx(alone[told], rel=0.02, abs=1e-4)


def test_what_cannot_be_is_refused() -> None:
    actor, shown = GaussianPolicy(PolicySpec(obs_dim=3, action_dim=2)), torch.zeros(5, 4)
    pairs = DemoPairs(observation=shown, action=shown, weight=torch.ones(5))
    with pytest.raises(UserError, match="keeps account of all environments in one process"):
        validate_config(RefineConfig(start_pool_size=4), actor, None, DistContext(world_size=2))
    with pytest.raises(UserError, match="needs demonstrations, and there are none"):
        validate_config(RefineConfig(imitation_coef=0.1), actor, None, SINGLE_PROCESS)
    with pytest.raises(UserError, match="4 observed numbers and 4 of action, the policy 3 and 2"):
        validate_config(RefineConfig(imitation_coef=0.1), actor, pairs, SINGLE_PROCESS)
    with pytest.raises(UserError, match="3 transitions cannot be shared by 4 processes"):
        DistContext(world_size=4).num_minibatches(16, 3)
    assert DistContext(world_size=4).num_minibatches(16, 9) == 2 and SINGLE_PROCESS.num_minibatches(16, 9) == 9

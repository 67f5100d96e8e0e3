"""Processes that refine together: the same run, in parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embodied_rm.errors import UserError
from embodied_rm.rl.group import ALONE, Group
from embodied_rm.rl.policy import GaussianPolicy, PolicySpec, load_policy, save_policy

SIZES = (
    *("iterations=3", "warmup_iterations=1", "rollout_steps=10", "stop_patience=9", "ppo.minibatches=3"),
    *("episodes=4", "watched=4", "world.num_envs=4"),
)


@given(st.integers(1, 7), st.integers(0, 40))
def test_parts_make_up_the_whole(size: int, more: int) -> None:
    groups = [Group(rank=rank, size=size) for rank in range(size)]
    rows = torch.arange(size + more)
    assert torch.equal(torch.cat([group.part(rows) for group in groups]), rows)
    share = groups[0].share(size * (more + 1))
    everybody = np.arange(size * share)
    assert np.array_equal(np.concatenate([everybody[group.rows(share)] for group in groups]), everybody)
    if size > 1:
        assert [seed for group in groups for seed in group.seeds(5, share)] == list(5 + everybody)


def test_worlds_that_cannot_be_shared_evenly_are_refused() -> None:
    with pytest.raises(UserError, match=r"num_envs=10 cannot be shared evenly by 3"):
        Group(size=3).share(10)


def test_alone_nothing_is_exchanged() -> None:
    assert ALONE.exchange(b"x") == [b"x"] and ALONE.tell({"a": 1}) == [{"a": 1}] and ALONE.seeds(7, 3) == 7


def refine(policy: Path, out: Path, processes: int, *words: str) -> subprocess.CompletedProcess[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    command = [sys.executable, *launcher, "-m", "embodied_rm", "refine", "task=lift_cube", f"policy={policy}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, f"out={out}", *SIZES, *words], env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    ("reward", "apart"),
    [
        (("reward.rule=dense", "reward.success=simulator"), 1e-3),
        # What networks say of a batch of another size differs in the last digits, and Adam makes more of that.
        (("reward.rule=redistributed", "reward.success_threshold=0.1", "reward.success_patience=2"), 0.3),
    ],
)
def test_two_processes_learn_what_one_does(reward: tuple[str, ...], apart: float, tmp_path: Path) -> None:
    torch.manual_seed(0)
    policy = tmp_path / "policy"
    save_policy(policy, GaussianPolicy(PolicySpec(obs_dim=29, action_dim=4, hidden=(16,))), task="lift_cube")
    for processes in (1, 2):
        done = refine(policy, tmp_path / str(processes), processes, *reward)
        assert done.returncode == 0, done.stderr
    one, two = (load_policy(tmp_path / name / "policy").state_dict() for name in ("1", "2"))
    moved = max(float((one[name] - load_policy(policy).state_dict()[name]).abs().max()) for name in one)
    assert moved > 1e-3
    assert all(torch.allclose(one[name], two[name], atol=apart * moved) for name in one)
    rows = [
        [json.loads(line) for line in (tmp_path / n / "progress.jsonl").read_text().splitlines()] for n in ("1", "2")
    ]
    for alone, together in zip(*rows, strict=True):
        for counted in ("env_steps", "episodes", "scored", "success", "watched_successes"):
            assert alone[counted] == together[counted]
    (tmp_path / "2" / "metrics.json").unlink()
    other = refine(policy, tmp_path / "2", 1, "resume=true", *reward)
    assert other.returncode == 2 and "begun by 2 processes" in " ".join(other.stderr.split())

"""A refinement killed at random moments, against one that nobody disturbed: python benchmarks/kill_resume.py

Starts `embodied-rm refine`, kills it (SIGKILL), starts it again with resume=true, and so on until it has been killed
`--kills` times; then lets it finish. Every third time it is killed within seconds of its start, else in the midst of
its iterations: a random time after it has stored a new one. Writes docs/results/kill_resume.md.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from gymnasium.spaces.utils import flatdim
from killing import read_manifest_count, run_with_kills

from embodied_rm.checkpoint_io import load_tensors
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, save_policy
from embodied_rm.rl.refine_checkpoint import ARCHITECTURE, CHECKPOINT_DIR, PROGRESS_FILE
from embodied_sim.vec_env import TabletopVecEnv

TASK, NUM_ITERATIONS = "lift_cube", 100


def finetune_command(policy: Path, out: Path) -> list[str]:
    """The run: small, so that many kills fit into minutes, but with images, a model and every kind of reset."""
    return [
        sys.executable, "-m", "embodied_rm", "refine", f"task={TASK}", f"policy={policy}", f"out={out}", "resume=true",
        f"iterations={NUM_ITERATIONS}", "rollout_steps=12", "env.num_envs=8", "episodes=8", "watched=0",
        "stop_patience=1000", "reward.success_threshold=0.1", "reward.success_patience=2",
    ]  # fmt: skip


def save_untrained_policy(folder: Path) -> Path:
    """A policy that knows nothing yet."""
    env = TabletopVecEnv(TASK, 1)
    torch.manual_seed(0)
    size = flatdim(env.single_observation_space)
    save_policy(folder, GaussianPolicy(PolicySpec(obs_dim=size, action_dim=4)), task=TASK)
    env.close()
    return folder


def report(steps_at_kill: list[int], identical: bool, missing: int) -> str:
    """The page for docs/results."""
    return "\n".join(
        [
            "# Killed and resumed",
            "",
            f"`embodied-rm refine task={TASK}`, {NUM_ITERATIONS} iterations, killed {len(steps_at_kill)} times (SIGKILL) at "
            f"random moments and resumed each time, against an undisturbed run: everything that is stored at the end "
            f"(weights, optimizers, streams, environments) is {'the same to the last bit' if identical else '**different**'}; "
            f"{missing} iterations missing at the end, none that was stored ever lost. "
            f"Iterations stored at each death: {', '.join(map(str, steps_at_kill))}.",
            "",
            f"    python benchmarks/kill_resume.py --kills {len(steps_at_kill)}",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="how often the run is killed")
    parser.add_argument("--longest", type=float, default=1.5, help="most seconds that a kill waits")
    parser.add_argument("--out", type=Path, default=Path("docs/results/kill_resume.md"))
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        policy = save_untrained_policy(root / "policy")
        interrupted_dir = root / "parts"
        steps_at_kill = run_with_kills(
            finetune_command(policy, interrupted_dir),
            lambda: read_manifest_count(interrupted_dir / CHECKPOINT_DIR, "iterations"),
            args.kills,
            args.longest,
        )
        for name in ("parts", "whole"):
            subprocess.run(finetune_command(policy, root / name), check=True, stdout=subprocess.DEVNULL)
        states = [load_tensors(root / name / CHECKPOINT_DIR, ARCHITECTURE)[0] for name in ("parts", "whole")]
        log_lines = (root / "parts" / PROGRESS_FILE).read_text().splitlines()
    identical = all(torch.equal(states[0][name], states[1][name]) for name in states[1])
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(report(steps_at_kill, identical, NUM_ITERATIONS - len(log_lines)))
    if not identical or len(log_lines) != NUM_ITERATIONS:
        raise SystemExit("the resumed run differs from the undisturbed one")


if __name__ == "__main__":
    main()

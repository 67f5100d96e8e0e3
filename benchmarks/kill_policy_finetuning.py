"""Policy fine-tuning with random kills against an uninterrupted run: python benchmarks/kill_policy_finetuning.py

Starts `embodied-rm refine`, kills it (SIGKILL) and resumes it until it was killed `--kills` times, then lets it finish.
Every third kill comes within seconds of the start, the others a random time after a new iteration was stored. Writes
docs/results/kill_policy_finetuning.md.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from functools import partial
from pathlib import Path

import torch
from cli_process import CLI_COMMAND
from gymnasium.spaces.utils import flatdim
from kill_and_restart import compare_with_uninterrupted_run, read_manifest_count, run_with_kills

from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, save_policy
from embodied_rm.rl.refine_checkpoint import ARCHITECTURE, CHECKPOINT_DIR, PROGRESS_FILE
from embodied_sim.vec_env import TabletopVecEnv

TASK, NUM_ITERATIONS = "lift_cube", 100


def finetune_command(policy: Path, out: Path) -> list[str]:
    """Return the command of a small run with images, a model and every kind of reset."""
    return [
        *CLI_COMMAND, "refine", f"task={TASK}", f"policy={policy}", f"out={out}", "resume=true",
        f"iterations={NUM_ITERATIONS}", "rollout_steps=12", "env.num_envs=8", "final_eval_episodes=8",
        "eval_episodes=0", "stop_patience=1000", "reward.success_threshold=0.1", "reward.success_patience=2",
    ]  # fmt: skip


def save_untrained_policy(folder: Path) -> Path:
    """Save a policy with random weights."""
    env = TabletopVecEnv(TASK, 1)
    torch.manual_seed(0)
    size = flatdim(env.single_observation_space)
    save_policy(folder, GaussianPolicy(PolicySpec(obs_dim=size, action_dim=4)), task=TASK)
    env.close()
    return folder


def report(steps_at_kill: list[int], identical: bool, missing: int) -> str:
    """Return the page for docs/results."""
    return "\n".join(
        [
            "# Policy fine-tuning, killed and resumed",
            "",
            f"`embodied-rm refine task={TASK}`, {NUM_ITERATIONS} iterations, killed {len(steps_at_kill)} times "
            f"(SIGKILL) at random times and resumed each time, against an uninterrupted run. The final state "
            f"(weights, optimizers, random generators, environments) is "
            f"{'bit-identical' if identical else '**different**'}. {missing} "
            f"iterations are missing at the end; no stored iteration was lost. "
            f"Stored iterations at each kill: {', '.join(map(str, steps_at_kill))}.",
            "",
            f"    python benchmarks/kill_policy_finetuning.py --kills {len(steps_at_kill)}",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="number of kills")
    parser.add_argument("--max-delay", type=float, default=1.5, help="maximum delay of a kill, s")
    parser.add_argument("--out", type=Path, default=Path("docs/results/kill_policy_finetuning.md"), help="results page")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        policy = save_untrained_policy(root / "policy")
        interrupted_dir = root / "interrupted"
        steps_at_kill = run_with_kills(
            finetune_command(policy, interrupted_dir),
            lambda: read_manifest_count(interrupted_dir / CHECKPOINT_DIR, "iterations"),
            args.kills,
            args.max_delay,
        )
        command = partial(finetune_command, policy)
        identical = compare_with_uninterrupted_run(command, root, CHECKPOINT_DIR, ARCHITECTURE)
        log_lines = (interrupted_dir / PROGRESS_FILE).read_text().splitlines()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(report(steps_at_kill, identical, NUM_ITERATIONS - len(log_lines)))
    if not identical or len(log_lines) != NUM_ITERATIONS:
        raise SystemExit("the resumed run differs from the uninterrupted one")


if __name__ == "__main__":
    main()

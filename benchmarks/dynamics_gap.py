"""A policy of recordings of one world is refined in another: python benchmarks/dynamics_gap.py

The recordings are of a "real" world: the other arm, with actions that take effect late, and other masses and
friction. The simulator has none of that. `rlpd` refines the cloned policy in the simulator, with the recordings in its
batches: as if both worlds were one, and weighed by the gap of the dynamics (H2O). Each policy is evaluated in the real
world. Each phase is a command with its own run folder; interrupted runs are resumed. Writes
docs/results/dynamics_gap.md.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path

from cli_process import run_once
from record_mixed import record_mixed

from embodied_rm.experiments.results_page import describe_machine
from embodied_rm.metrics import paired_difference
from embodied_rm.rl.learner.policy import load_policy
from embodied_rm.tabletop.envs import EnvConfig, make_evaluator
from embodied_sim.domain_randomization import Randomization

TASKS, SEEDS, COEFFICIENTS = ("lift_cube", "turn_lever"), (1, 2, 3), (0.0, 0.01)
NUM_EVAL_EPISODES = 200
ROBOT, RANDOMIZATION = "six_axis", Randomization(latency=2, friction=0.5, mass=0.5)
REAL_WORLD = (
    f"env.robot={ROBOT}",
    *(f"env.randomize.{name}={vars(RANDOMIZATION)[name]}" for name in ("latency", "friction", "mass")),
)
RESULTS_PAGE = Path("docs/results/dynamics_gap.md")


def real_success(policy: Path, task: str) -> float:
    """Return the success rate of a policy in the real world."""
    env = EnvConfig(robot=ROBOT, randomize=RANDOMIZATION, views=())
    evaluate = make_evaluator(task, env, episodes=NUM_EVAL_EPISODES, seed=10_000)
    return evaluate(load_policy(policy)).rate


def measure(folder: Path, task: str, seed: int) -> dict[str, float]:
    """Clone, refine with each coefficient, and evaluate; return the success rates in the real world."""
    path = folder / "cell.json"
    if path.exists():
        stored: dict[str, float] = json.loads(path.read_text())
        return stored
    data = record_mixed(folder, task, seed, REAL_WORLD)
    cloned = ["clone", f"task={task}", f"data={data}", "num_demonstrations=10", f"seed={seed}", *REAL_WORLD]
    policy = run_once(folder / "clone", cloned)
    rates = {"clone": real_success(policy / "policy", task)}
    for coefficient in COEFFICIENTS:
        learner = [f"task={task}", f"policy={policy}", f"seed={seed}", "algorithm=rlpd", f"recorded_data={data}"]
        reward = ["reward.rule=sparse", "reward.success_source=simulator", f"rlpd.dynamics_gap_coef={coefficient}"]
        sizes = [
            "env.num_envs=5",
            "env.views=[]",
            "rollout_steps=50",
            "iterations=40",
            "eval_episodes=0",
            "stop_patience=1000",
        ]
        run = run_once(folder / f"rlpd_{coefficient:g}", ["refine", *learner, *reward, *sizes])
        rates[f"rlpd_{coefficient:g}"] = real_success(run / "policy", task)
    path.write_text(json.dumps(rates))
    return rates


def results_page(cells: dict[tuple[str, int], dict[str, float]]) -> str:
    """Return the results as Markdown."""
    methods = ["clone", *(f"rlpd_{coefficient:g}" for coefficient in COEFFICIENTS)]
    rows = []
    for task in TASKS:
        rates = [cells[task, seed] for seed in SEEDS]
        rows += [f"| `{task}` | {' | '.join(f'{sum(r[m] for r in rates) / len(rates):.3f}' for m in methods)} |"]
    plain, weighed = ([cell[method] for cell in cells.values()] for method in methods[1:])
    mean, low, high = paired_difference(weighed, plain)
    return "\n".join(
        [
            "# Recordings of one world, refinement in another",
            "",
            "`python benchmarks/dynamics_gap.py`: the recordings are of the arm `six_axis`, whose actions take",
            "effect up to two steps late, with other masses and friction. The simulator is `panda` without any of",
            f"that. Success in the recorded world, mean of {len(SEEDS)} seeds, {NUM_EVAL_EPISODES} episodes each.",
            "`rlpd` has both kinds of transitions in its batches; with a coefficient of",
            f"`rlpd.dynamics_gap_coef={COEFFICIENTS[1]:g}`, they are weighed by the gap of the dynamics.",
            "",
            f"| task | clone of the recordings | `rlpd` | `rlpd.dynamics_gap_coef={COEFFICIENTS[1]:g}` |",
            "|---|---|---|---|",
            *rows,
            "",
            f"Difference of the last two, with its 95 % interval: {mean:+.3f} ({low:+.3f} to {high:+.3f}).",
            "",
            f"{describe_machine()}.",
            "",
        ]
    )


def main() -> None:
    """Run the missing phases and write the results page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/dynamics_gap"), help="folder of the runs")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    cells = {(task, seed): measure(arguments.out / task / f"{seed}", task, seed) for seed in SEEDS for task in TASKS}
    RESULTS_PAGE.write_text(results_page(cells))
    logging.info(RESULTS_PAGE.read_text())


if __name__ == "__main__":
    main()

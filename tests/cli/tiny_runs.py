"""Sizes and readers of the smallest runs of the commands."""

import json
from pathlib import Path

TINY = ("env.num_envs=4", "env.image_size=32")
NUM_SUCCESSES, NUM_FAILURES = 3, 2
RECORD = [
    "collect",
    "tasks=[lift_cube,open_drawer]",
    f"num_successes={NUM_SUCCESSES}",
    f"num_failures={NUM_FAILURES}",
    *TINY,
]
NUM_EPISODES = 2 * (NUM_SUCCESSES + NUM_FAILURES)
REFINE = [
    "refine",
    "task=lift_cube",
    "iterations=2",
    "critic_warmup_iterations=1",
    "rollout_steps=4",
    "eval_episodes=4",
    "final_eval_episodes=4",
    *TINY,
]
RECORD_SPLIT = ("num_successes=1", "num_failures=1", "env.num_envs=2", "env.image_size=32")


def metrics(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())

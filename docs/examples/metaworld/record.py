"""Record episodes of Meta-World's scripted experts and of failing policies as videos for embodied-rm.

    MUJOCO_GL=egl LP_NUM_THREADS=0 python record.py drawer-open-v3

Runs in Meta-World's Python environment (metaworld, av). An interrupted run continues with the next episode.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from episode_recorder import SUCCESS_HOLD_STEPS, EpisodeRecorder, goal_distance, write_instruction
from metaworld.policies import ENV_POLICY_MAP
from scene import ACTION_REPEAT, TASK_INSTRUCTIONS, MetaWorldScene

MAX_STEPS = 240
FAILURE_MODES = ("stop", "miss", "noise", "stop_short")
MAX_TRIALS = 40

PolicyFn = Callable[[np.ndarray, int, float], np.ndarray]
"""(observation, step, remaining fraction of the object's distance) -> action."""


def make_policy(task: str, behavior: str, rng: np.random.Generator) -> PolicyFn:
    """Create a scripted expert with random speed and noise, or a variant that fails."""
    policy = ENV_POLICY_MAP[task]()
    speed, noise = rng.uniform(0.5, 1.0), rng.choice([0.0, 0.2, 0.4])
    stop_step = rng.integers(5, 70) if behavior == "stop" else MAX_STEPS
    extra_noise = rng.uniform(0.8, 1.6) if behavior == "noise" else 0.0
    stop_fraction = rng.uniform(0.1, 0.7) if behavior == "stop_short" else -1.0
    direction = rng.normal(size=2)
    shift = (
        np.append(rng.uniform(0.06, 0.15) * direction / np.linalg.norm(direction), 0.0)
        if behavior == "miss"
        else np.zeros(3)
    )

    def act(observation: np.ndarray, step: int, fraction_left: float) -> np.ndarray:
        nonlocal stop_step
        stop_step = min(stop_step, step) if fraction_left < stop_fraction else stop_step
        perceived = observation.copy()
        perceived[4:7] += shift
        action = np.clip(policy.get_action(perceived), -1, 1)
        if step >= stop_step:
            return np.array([0, 0, 0, action[3]])
        action[:3] = speed * action[:3] + (noise + extra_noise) * rng.normal(size=3)
        return np.clip(action, -1, 1)

    return act


def record_episode(
    scene: MetaWorldScene, task: str, behavior: str, random_start: bool, rng: np.random.Generator
) -> EpisodeRecorder:
    """Record an episode until success holds or time is over; `random_start` randomizes the start of the hand."""
    observation = scene.reset(int(rng.integers(len(scene.goals))), rng if random_start else None)
    act, recorder = make_policy(task, behavior, rng), EpisodeRecorder(scene, observation)
    max_steps = MAX_STEPS if behavior == "expert" else int(rng.integers(60, 150))
    success_steps, initial_distance = 0, goal_distance(observation)
    for step in range(max_steps):
        observation, _, _, _, info = scene.env.step(
            act(observation, step, goal_distance(observation) / initial_distance)
        )
        success_steps = success_steps + 1 if info["success"] else 0
        if (step + 1) % ACTION_REPEAT == 0:
            recorder.add(scene, observation, info)
        if success_steps >= SUCCESS_HOLD_STEPS and recorder.success[-1]:
            break
    return recorder


def planned_episodes(successes: int, failures: int) -> Iterator[tuple[str, bool, str]]:
    """Yield name, success and behavior of every episode."""
    for i in range(successes):
        yield f"success_{i:03d}", True, "expert"
    for i in range(failures):
        yield f"failure_{i:03d}", False, FAILURE_MODES[i % len(FAILURE_MODES)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=TASK_INSTRUCTIONS)
    parser.add_argument("--successes", type=int, default=20)
    parser.add_argument("--failures", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0, help="seed of the task's goals and of the policies")
    parser.add_argument(
        "--random-start", action="store_true", help="randomize the start of the hand in half of the episodes"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of recordings")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="Constant")
    scene = MetaWorldScene(args.task, args.seed)
    write_instruction(args.out, scene)
    for index, (name, success, behavior) in enumerate(planned_episodes(args.successes, args.failures)):
        if (args.out / name / "success.json").exists():
            continue
        random_start = args.random_start and index // len(FAILURE_MODES) % 2 == 1
        for trial in range(MAX_TRIALS):
            rng = np.random.default_rng([args.seed, index, int(success), trial])
            recorder = record_episode(scene, args.task, behavior, random_start, rng)
            if recorder.success[-1] is success and (success or not any(recorder.success)):
                recorder.write(args.out / name)
                break
        else:
            raise SystemExit(
                f"{args.task}: none of {MAX_TRIALS} trials of {behavior} ended in {'success' if success else 'failure'}"
            )
    scene.close()


if __name__ == "__main__":
    main()

"""Record episodes of Meta-World's scripted experts, and of actors who fail, as films that embodied-rm reads.

    MUJOCO_GL=egl LP_NUM_THREADS=0 python record.py drawer-open-v3

Runs in Meta-World's environment (metaworld, av). Interrupted, it goes on with the next episode.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from films import TAIL, Film, begin_recordings, way
from metaworld.policies import ENV_POLICY_MAP
from scene import EVERY, INSTRUCTIONS, Scene

LONGEST = 240
FAILURES = ("stops", "misses", "trembles", "nearly")
TRIALS = 40

Actor = Callable[[np.ndarray, int, float], np.ndarray]
"""(observation, step, share of the object's way that is left) -> action."""


def actor(task: str, how: str, rng: np.random.Generator) -> Actor:
    """A scripted expert, at a pace of its own and with noise, or one of those who fail."""
    policy = ENV_POLICY_MAP[task]()
    pace, noise = rng.uniform(0.5, 1.0), rng.choice([0.0, 0.2, 0.4])
    stop = rng.integers(5, 70) if how == "stops" else LONGEST
    tremble = rng.uniform(0.8, 1.6) if how == "trembles" else 0.0
    enough = rng.uniform(0.1, 0.7) if how == "nearly" else -1.0
    side = rng.normal(size=2)
    shift = np.append(rng.uniform(0.06, 0.15) * side / np.linalg.norm(side), 0.0) if how == "misses" else np.zeros(3)

    def act(observation: np.ndarray, step: int, left: float) -> np.ndarray:
        nonlocal stop
        stop = min(stop, step) if left < enough else stop
        seen = observation.copy()
        seen[4:7] += shift
        action = np.clip(policy.get_action(seen), -1, 1)
        if step >= stop:
            return np.array([0, 0, 0, action[3]])
        action[:3] = pace * action[:3] + (noise + tremble) * rng.normal(size=3)
        return np.clip(action, -1, 1)

    return act


def play(scene: Scene, task: str, how: str, anywhere: bool, rng: np.random.Generator) -> Film:
    """An episode, until success has been held or its time is over; whether its hand begins anywhere."""
    observation = scene.reset(int(rng.integers(len(scene.goals))), rng if anywhere else None)
    act, film = actor(task, how, rng), Film(scene, observation)
    longest = LONGEST if how == "expert" else int(rng.integers(60, 150))
    held, whole = 0, way(observation)
    for step in range(longest):
        observation, _, _, _, info = scene.env.step(act(observation, step, way(observation) / whole))
        held = held + 1 if info["success"] else 0
        if (step + 1) % EVERY == 0:
            film.add(scene, observation, info)
        if held >= TAIL and film.done[-1]:
            break
    return film


def wanted(successes: int, failures: int) -> Iterator[tuple[str, bool, str]]:
    """Name, outcome and actor of every episode."""
    for i in range(successes):
        yield f"success_{i:03d}", True, "expert"
    for i in range(failures):
        yield f"failure_{i:03d}", False, FAILURES[i % len(FAILURES)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=INSTRUCTIONS)
    parser.add_argument("--successes", type=int, default=20)
    parser.add_argument("--failures", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0, help="of the task's goals and of the actors")
    parser.add_argument("--anywhere", action="store_true", help="half of the episodes begin with the hand anywhere")
    parser.add_argument("--out", type=Path, required=True, help="folder of recordings")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="Constant")
    scene = Scene(args.task, args.seed)
    begin_recordings(args.out, scene)
    for number, (name, success, how) in enumerate(wanted(args.successes, args.failures)):
        if (args.out / name / "success.json").exists():
            continue
        anywhere = args.anywhere and number // len(FAILURES) % 2 == 1
        for trial in range(TRIALS):
            rng = np.random.default_rng([args.seed, number, int(success), trial])
            film = play(scene, args.task, how, anywhere, rng)
            if film.done[-1] is success and (success or not any(film.done)):
                film.write(args.out / name)
                break
        else:
            raise SystemExit(f"{args.task}: no {how} of {TRIALS} came to {'success' if success else 'failure'}")
    scene.close()


if __name__ == "__main__":
    main()

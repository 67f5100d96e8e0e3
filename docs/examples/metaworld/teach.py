"""Refine a policy of push-v3 on a model that its learner fools: as it is, and with a model that goes on learning.

    MUJOCO_GL=egl LP_NUM_THREADS=0 python teach.py --seed 0 --out runs/metaworld/teach

Runs in a Python environment with Meta-World and embodied-rm. The model learns from demonstrations. Results are stored
in docs/results/teaching.jsonl and not measured again; an interrupted refinement continues.
"""

from __future__ import annotations

import argparse
import itertools
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from envs import MetaWorldEnv
from episode_recorder import FPS, MIN_OBJECT_MOTION_M
from metaworld.policies import ENV_POLICY_MAP
from scene import TASK_INSTRUCTIONS

import embodied_rm as erm
from embodied_rm.cli.console import ConsoleReporter
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.experiments.results_cache import open_results_cache
from embodied_rm.rl.watch.log_rows import read_rows, training_success

PAGE = Path(__file__).resolve().parents[2] / "results/teaching.md"
TASK = "push-v3"
TRAIN_GOAL_SEED, EVAL_GOAL_SEED = 0, 1
NUM_DEMONSTRATIONS, NUM_CLONED = 20, 10
HOLD_STEPS = 5  # actions that a demonstration goes on after its first success
NUM_ENVS, NUM_EVAL_ENVS, NUM_EVAL_EPISODES = 32, 16, 96
TRAIN: dict[str, Any] = {"steps": 1000, "batch_size": 8, "learning_rate": 1e-3}
LOG_STD_INIT = -1.5
REWARD: dict[str, Any] = {"gamma": 0.98, "score_every": 4, "success_patience": 2, "success_source": "model"}
REFINE: dict[str, Any] = {"rollout_steps": 80, "iterations": 40, "critic_warmup_iterations": 2, "ppo": {"gamma": 0.98}}
TEACH = {"every": 5, "frame_stride": 4, "num_envs": 32, "max_episodes": 800}
ARMS: Mapping[str, Mapping[str, Any] | None] = {"fixed": None, "taught": TEACH}
NUM_LAST_ITERATIONS = 5  # over which belief and truth are compared


@contextmanager
def open_envs(num_envs: int, goal_seed: int, *, ends_on_success: bool = False) -> Iterator[erm.CameraVectorEnv]:
    """Make a vector of environments with cameras, and close it at the end."""
    envs = erm.CameraVectorEnv(
        partial(MetaWorldEnv, TASK, goal_seed),
        num_envs,
        instruction=TASK_INSTRUCTIONS[TASK],
        get_images=render_scene,
        ends_on_success=ends_on_success,
    )
    with closing(envs):
        yield envs


def render_scene(env: gym.Env) -> dict[str, np.ndarray]:
    """Return view -> uint8 [H, W, 3]."""
    scene: Any = env.unwrapped
    return scene.scene.render_views()


def play_expert(envs: erm.CameraVectorEnv, seed: int) -> erm.Episode:
    """Play one episode with Meta-World's expert, at a random speed and with noise."""
    rng, policy = np.random.default_rng(seed), ENV_POLICY_MAP[TASK]()
    speed, noise = rng.uniform(0.5, 1.0), rng.choice([0.0, 0.2, 0.4])
    observation, _ = envs.reset(seed=seed)
    env: Any = envs.envs[0].unwrapped
    frames, states, actions, positions, success, done = [], [], [], [], [], False
    while not done:
        positions.append(env.raw_observation[4:7].copy())
        action = np.clip(policy.get_action(env.raw_observation), -1, 1)
        action[:3] = speed * action[:3] + noise * rng.standard_normal(3)
        frames.append(envs.render_views(np.array([0]))[0])
        states.append(observation[0])
        actions.append(np.clip(action, -1, 1).astype(np.float32))
        observation, _, terminated, truncated, infos = envs.step(actions[-1][None])
        success.append(bool(infos["success"][0]))
        done = bool(terminated[0] or truncated[0]) or (all(success[-HOLD_STEPS:]) and len(success) >= HOLD_STEPS)
    return erm.Episode(
        name=f"demonstration_{seed}",
        views=dict(zip(envs.view_names, np.stack(frames, axis=1), strict=True)),
        instruction=TASK_INSTRUCTIONS[TASK],
        fps=float(FPS),
        subtasks=split_at_motion(np.array(positions), len(success) - HOLD_STEPS + 1) if success[-1] else (),
        success=success[-1],
        state=np.array(states),
        action=np.array(actions),
    )


def split_at_motion(positions: np.ndarray, end: int) -> tuple[erm.Subtask, ...]:
    """Return the subtasks of a success: `reach` until the object [T, 3] moves, and `move` until frame `end`."""
    is_moved = np.linalg.norm(positions - positions[0], axis=1) > MIN_OBJECT_MOTION_M
    first = min(max(int(is_moved.argmax()), 1), end - 1)
    return erm.Subtask(name="reach", start=0, end=first), erm.Subtask(name="move", start=first, end=end)


def record_demonstrations(folder: Path) -> list[erm.Episode]:
    """Return the demonstrations, which are recorded unless they exist."""
    if not folder.exists():
        with open_envs(1, TRAIN_GOAL_SEED) as envs, DatasetWriter(folder) as writer:
            episodes = (play_expert(envs, seed) for seed in itertools.count())
            for episode in itertools.islice((e for e in episodes if e.success), NUM_DEMONSTRATIONS):
                writer.add(episode)
    return list(erm.open_dataset(folder))


def train_model(demonstrations: list[erm.Episode], folder: Path) -> erm.ProgressRewardModel:
    """Return the bundled model, continued on the demonstrations."""
    bundled = erm.load_reward_model()
    assert isinstance(bundled, erm.ProgressRewardModel)
    if not folder.exists():
        erm.train(demonstrations, init_from=bundled, **TRAIN).save(folder)
    model = erm.load_reward_model(folder)
    assert isinstance(model, erm.ProgressRewardModel)
    return model


def refine(out: Path, arm: str, seed: int) -> dict[str, float]:
    """Clone a policy and refine it on the model; return what the model believes, and what is true."""
    demonstrations = record_demonstrations(out / "demonstrations")
    model = train_model(demonstrations, out / "model")
    policy = erm.clone(demonstrations[:NUM_CLONED], seed=seed, log_std_init=LOG_STD_INIT)
    run, teach = out / f"{arm}_{seed}", ARMS[arm]
    with (
        open_envs(NUM_ENVS, TRAIN_GOAL_SEED) as plain_envs,
        open_envs(NUM_EVAL_ENVS, EVAL_GOAL_SEED, ends_on_success=True) as eval_envs,
    ):
        erm.refine(
            erm.LearnedReward(plain_envs, model, instruction=TASK_INSTRUCTIONS[TASK], **REWARD),
            policy,
            teach=None if teach is None else {**teach, "data": demonstrations},
            eval_envs=eval_envs,
            eval_episodes=NUM_EVAL_ENVS,
            final_eval_episodes=NUM_EVAL_EPISODES,
            folder=run,
            reporter=ConsoleReporter(),
            seed=seed,
            **REFINE,
        )
    metrics = json.loads((run / "metrics.json").read_text())
    believed, true = training_success(read_rows(run / "progress.jsonl")[-NUM_LAST_ITERATIONS:])
    return {
        "cloned": metrics["cloned_success"]["rate"],
        "refined": metrics["refined_success"]["rate"],
        "believed": believed,
        "true": true,
        "alarms": len(metrics["alarms"]),
    }


def main() -> None:
    """Measure both arms with one seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", type=Path, default=PAGE, help="results page, beside which results are stored")
    parser.add_argument("--out", type=Path, default=Path("runs/metaworld/teach"))
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="Constant")
    cache = open_results_cache(arguments.page)
    for arm, teach in ARMS.items():
        settings = {"train": TRAIN, "reward": REWARD, "refine": REFINE, "teach": teach, "log_std_init": LOG_STD_INIT}
        settings |= {"num_demonstrations": NUM_DEMONSTRATIONS, "num_cloned": NUM_CLONED, "num_envs": NUM_ENVS}
        name = f"{TASK}/{arguments.seed}/{arm}"
        measure: Callable[[], Mapping[str, Any]] = partial(refine, arguments.out, arm, arguments.seed)
        print(name, cache.get_or_measure(name, settings, arguments.out / "cells" / name, measure))


if __name__ == "__main__":
    main()

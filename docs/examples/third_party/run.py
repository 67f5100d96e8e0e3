"""Refine a policy in a world of others, on the reward of a model that saw 20 demonstrations.

    python run.py so101 --seed 0 --out runs/third_party

Results are stored in docs/results/third_party.jsonl and not measured again.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from record import open_vector_env, record_dataset
from worlds import MAX_EPISODE_STEPS, MOVED_AXES, WORLDS

import embodied_rm as erm
from embodied_rm.cli.console import ConsoleReporter
from embodied_rm.experiments.results_cache import open_results_cache
from embodied_rm.metrics import roc_auc

PAGE = Path(__file__).resolve().parents[2] / "results/third_party.md"
NUM_DEMONSTRATIONS, NUM_HELD_OUT = 20, 40
FRAME_STRIDE = 2  # control steps between two frames that the model sees
NUM_CLONED = {"so101": 20, "lift": 6, "door": 6}  # demonstrations of the policy, which is to be imperfect
LOG_STD_INIT = {"so101": -1.5, "lift": -1.8, "door": -1.8}
"""Log of the standard deviation of the exploration noise, with which a clone succeeds nearly as often as without."""
SUCCESS_PATIENCE = {"so101": 5, "lift": 5, "door": 3}  # consecutive predictions of success that end an episode
SUCCESS_THRESHOLD = 0.5
STOP_SUCCESS = 0.95  # success of training episodes, according to the model, that ends a refinement
NUM_ENVS, NUM_EVAL_EPISODES = 32, 96
NUM_EVAL_ENVS = {"so101": 32, "lift": 8, "door": 8}  # one environment of robosuite takes 150 MB
REFINE: dict[str, dict[str, Any]] = {
    "so101": {"rollout_steps": 48, "iterations": 60, "ppo": {"gamma": 0.98}},
    "lift": {
        "rollout_steps": 60,
        "iterations": 60,
        "critic_warmup_iterations": 3,
        "heuristic_coef": 0.0,  # a potential that is high before the end holds the policy there
        "bc_kl_coef": 0.01,
        "ppo": {"gamma": 0.99, "gae_lambda": 0.95},
    },
    "door": {
        "rollout_steps": 100,
        "iterations": 30,
        "critic_warmup_iterations": 3,
        "heuristic_coef": 0.0,
        "bc_kl_coef": 0.01,
        "ppo": {"gamma": 0.99, "gae_lambda": 0.95},
    },
}
"""Settings of refinements. For robosuite: whole episodes."""

Result = dict[str, Any]


def read_episodes(folder: Path, maximum: int | None = None) -> list[erm.Episode]:
    """Return the episodes of a dataset as the model sees them."""
    data = erm.open_dataset(folder)
    return [data.episode(index, stride=FRAME_STRIDE) for index in range(len(data))[:maximum]]


def train_and_evaluate(folder: Path, num_demonstrations: int) -> Result:
    """Continue the bundled model on demonstrations, and tell held-out successes from failures by the last frames."""
    bundled = erm.load_reward_model()
    assert isinstance(bundled, erm.ProgressRewardModel)
    demonstrations = read_episodes(folder / "demonstrations", num_demonstrations)
    model = erm.train(demonstrations, init_from=bundled, steps=1000, batch_size=8, learning_rate=1e-3)
    model.save(folder / f"model_{num_demonstrations}", overwrite=True)
    episodes = read_episodes(folder / "held_out")
    success = np.array([model.score(episode.views, episode.instruction).success[-1] for episode in episodes])
    is_success = np.array([bool(episode.success) for episode in episodes])
    return {
        "success_auc": roc_auc(success, is_success),
        "recall": float((success[is_success] >= SUCCESS_THRESHOLD).mean()),
        "false_positives": float((success[~is_success] >= SUCCESS_THRESHOLD).mean()),
    }


def refine(name: str, folder: Path, seed: int) -> Result:
    """Clone a policy from some demonstrations, and refine it on the reward and success of the model of 20."""
    world = WORLDS[name]
    data = erm.open_dataset(folder / "demonstrations")
    demonstrations = [data.episode(index) for index in range(NUM_CLONED[name])]
    policy = erm.clone(demonstrations, seed=seed, log_std_init=LOG_STD_INIT[name])
    model = erm.load_reward_model(folder / f"model_{NUM_DEMONSTRATIONS}")
    run = folder / f"seed_{seed}"
    with (
        open_vector_env(world, NUM_ENVS) as plain_envs,
        open_vector_env(world, NUM_EVAL_ENVS[name], ends_on_success=True) as eval_envs,
    ):
        envs = erm.LearnedReward(
            plain_envs,
            model,
            instruction=world.instruction,
            gamma=REFINE[name]["ppo"]["gamma"],
            success_source="model",
            score_every=FRAME_STRIDE,
            success_patience=SUCCESS_PATIENCE[name],
        )
        erm.refine(
            envs,
            policy,
            eval_envs=eval_envs,
            final_eval_episodes=NUM_EVAL_EPISODES,
            folder=run,
            reporter=ConsoleReporter(),
            stop_success=STOP_SUCCESS,
            restore_best_weights=True,
            seed=seed,
            **REFINE[name],
        )
    metrics = json.loads((run / "metrics.json").read_text())
    return {key: metrics[key] for key in ("cloned_success", "refined_success")}


def settings_of(world: str, **values: Any) -> dict[str, Any]:
    """Return what a result depends on, in words that are stored with it."""
    limits = {"num_demonstrations": NUM_DEMONSTRATIONS, "max_episode_steps": MAX_EPISODE_STEPS[world]}
    if world != "so101":  # measured before the axes could be chosen
        limits["moved_axes"] = MOVED_AXES
    return {"world": world, **limits, **values}


def policy_settings(world: str, seed: int) -> dict[str, Any]:
    """Return what the result of a policy depends on."""
    return settings_of(
        world,
        seed=seed,
        num_cloned=NUM_CLONED[world],
        log_std_init=LOG_STD_INIT[world],
        success_patience=SUCCESS_PATIENCE[world],
        **({} if world == "so101" else {"refine": REFINE[world]}),  # measured before these settings
    )


def main() -> None:
    """Run one world with one seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("world", choices=sorted(WORLDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/third_party"))
    arguments = parser.parse_args()
    name, seed = arguments.world, arguments.seed
    world, folder, cache = WORLDS[name], arguments.out / name, open_results_cache(PAGE)
    record_dataset(world, folder / "demonstrations", 0, NUM_DEMONSTRATIONS, 0)
    record_dataset(world, folder / "held_out", 1, NUM_HELD_OUT, NUM_HELD_OUT)
    for number in (1, NUM_DEMONSTRATIONS):
        settings, run = settings_of(name, model=number), partial(train_and_evaluate, folder, number)
        print(number, cache.get_or_measure(model_cell(name, number), settings, folder / f"cell_model_{number}", run))
    if not (folder / f"model_{NUM_DEMONSTRATIONS}").exists():  # the result is stored, and its run is elsewhere
        train_and_evaluate(folder, NUM_DEMONSTRATIONS)
    settings, run = policy_settings(name, seed), partial(refine, name, folder, seed)
    print(cache.get_or_measure(policy_cell(name, seed), settings, folder / f"cell_seed_{seed}", run))


def model_cell(world: str, num_demonstrations: int) -> str:
    """Return the name of the result of a reward model."""
    return f"{world}, model of {num_demonstrations}"


def policy_cell(world: str, seed: int) -> str:
    """Return the name of the result of a policy."""
    return f"{world}, seed {seed}"


if __name__ == "__main__":
    main()

"""Cloning of successes of which only a share has recorded actions; the others are inferred."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from embodied_rm.data.dataset_path import resolve_dataset
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.experiments.mixed_recordings import MethodCell
from embodied_rm.rl.cloning.bc import CloneConfig, clone
from embodied_rm.rl.learner.demo_pairs import make_demo_pairs
from embodied_rm.rl.offline.inverse_dynamics import infer_actions
from embodied_rm.run_folder import Reporter
from embodied_rm.tabletop.clone_policy import demonstration_rows, read_episodes
from embodied_rm.tabletop.envs import EnvConfig, make_evaluator
from embodied_rm.types import Episode
from embodied_sim.observation import PROPRIO_DIM
from embodied_sim.registry import make_task

MIN_LABELED = 2  # episodes with actions that an inverse dynamics model needs


def clone_inferred(cell: MethodCell, data: Path, share: float, eval_episodes: int, reporter: Reporter) -> float:
    """Clone all successes of a dataset and return the success rate.

    Args:
        cell: Task and seed.
        data: The recordings.
        share: Share of the episodes, good and bad, whose actions are used; those of the others are inferred.
        eval_episodes: Episodes of the evaluation.
        reporter: Output for the user.
    """
    source = LeRobotDataset(resolve_dataset(data))
    episodes = read_episodes(
        source, demonstration_rows(source, make_task(cell.task).name, failures=True), None, reporter
    )
    if share < 1:
        action_free = drop_actions(episodes, share, cell.seed)
        episodes = infer_actions(action_free, cell.seed, proprio_dim=PROPRIO_DIM).episodes
    pairs = make_demo_pairs([episode for episode in episodes if episode.success])
    policy, _ = clone(pairs, CloneConfig(seed=cell.seed), length_dims=pairs.observation.shape[1])
    evaluate = make_evaluator(cell.task, EnvConfig(), episodes=eval_episodes, seed=cell.seed)
    return evaluate(policy).rate


def drop_actions(episodes: list[Episode], share: float, seed: int) -> list[Episode]:
    """Return the episodes, of which all but a drawn share have no actions."""
    count = max(MIN_LABELED, round(share * len(episodes)))
    labeled = set(np.random.default_rng(seed).permutation(len(episodes))[:count].tolist())
    return [episode if i in labeled else replace(episode, action=None) for i, episode in enumerate(episodes)]

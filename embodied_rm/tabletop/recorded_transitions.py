"""Recorded episodes of a task as transitions, with the rewards that a refinement has."""

import math
from pathlib import Path

from embodied_rm.data.dataset_path import resolve_dataset
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.errors import DataError
from embodied_rm.models.reward_model import DescribedRewardModel
from embodied_rm.models.scoring import score_episodes
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.offline.offline_reward import OfflineReward
from embodied_rm.rl.offline.transitions import OfflineTransitions
from embodied_rm.run_folder import Reporter
from embodied_rm.tabletop.clone_policy import demonstration_rows, read_episodes
from embodied_sim.control import CONTROL_HZ


def read_transitions(
    data: Path, task: str, config: RewardConfig, model: DescribedRewardModel, gamma: float, reporter: Reporter
) -> OfflineTransitions:
    """Read all episodes of a task, successes and failures, and reward their transitions by the rule of a refinement.

    Args:
        data: Run folder of `collect`, or dataset.
        task: Name of the task.
        config: The reward of the refinement. A recorded success ends an episode as the task's success.
        model: Reward model that scores the videos, unless the simulator alone rewards.
        gamma: Discount of the learner.
        reporter: Output for the user.

    Raises:
        UserError: The dataset has no episode of the task, or the rule needs whole rollouts.
        DataError: An episode lacks state, action, or the simulator's progress that the rule needs, or has another frame
            rate than the control rate of the environments.
    """
    reward = OfflineReward.from_refinement(config)
    scorer = model if reward.needs_predictions else None
    source = LeRobotDataset(resolve_dataset(data))
    episodes = read_episodes(source, demonstration_rows(source, task, failures=True), scorer, reporter)
    for episode in episodes:
        if not math.isclose(episode.fps, CONTROL_HZ, rel_tol=1e-3):
            raise DataError(
                f"{episode.name} has {episode.fps:g} frames/s, the environments act {CONTROL_HZ:g} times per second: "
                "its actions lead to other changes of state"
            )
    predictions = None if scorer is None else score_episodes(scorer, episodes)
    return reward.make_transitions(episodes, predictions, gamma)

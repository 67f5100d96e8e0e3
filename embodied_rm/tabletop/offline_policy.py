"""`embodied-rm offline`: a policy from recorded episodes, good and bad, by offline reinforcement learning."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from embodied_rm.command import Command, to_base_config
from embodied_rm.data.dataset_path import resolve_dataset
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.errors import DataError, UserError, check_minimum
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.scoring import score_episodes
from embodied_rm.paths import POLICY_DIR, resolve_reward_model
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rewards.transitions import RewardParams
from embodied_rm.rl.learner.policy import save_policy
from embodied_rm.rl.offline.offline_config import OfflineConfig
from embodied_rm.rl.offline.train_offline import learn_offline, make_policy
from embodied_rm.rl.offline.transitions import OfflineTransitions, make_transitions, recorded_rewards
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.tabletop.clone_policy import demonstration_rows, read_episodes
from embodied_rm.tabletop.envs import EnvConfig, make_evaluator
from embodied_rm.types import Array, Episode, RewardOutput
from embodied_sim.registry import make_task


@dataclass(frozen=True, kw_only=True)
class OfflineCommand(OfflineConfig):
    """Config of `offline`."""

    task: str
    data: Path
    rule: str = "shaped"
    progress_scale: float = 1.0
    success_reward: float = 1.0
    checkpoint: Path | None = None
    eval_episodes: int = 200
    env: EnvConfig = field(default_factory=EnvConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_minimum(self, 0, "progress_scale", "success_reward")
        rule = find_rule(self.rule)
        if not rule.per_step:
            raise UserError(
                f"rule={self.rule} needs whole rollouts of the present policy; recorded episodes allow rules that are "
                "known step by step, such as sparse, dense, shaped, difference"
            )


def main(config: OfflineCommand, run: RunFolder, reporter: Reporter) -> None:
    """Learn from the recorded episodes of a task and evaluate; write policy and metrics into the run folder."""
    task = make_task(config.task).name
    source = LeRobotDataset(resolve_dataset(config.data))
    rows = demonstration_rows(source, task, failures=True)
    needs_model = find_rule(config.rule).progress_source == "model"
    net = load_progress_net(resolve_reward_model(config.checkpoint)) if needs_model else None
    episodes, seed = config.eval_episodes, config.seed
    evaluate = make_evaluator(
        config.task, config.env, episodes=episodes, seed=seed, obs_mode="state", encoder_model=None
    )
    reporter.table(
        "offline",
        {
            "task": task,
            "episodes": f"{len(rows)}, {sum(source.meta[row].success is True for row in rows)} of them successes",
            "reward": f"rule {config.rule}, {config.success_reward:g} for a recorded success",
            "method": f"{config.method}, {config.steps} steps of {config.batch_size} transitions",
            "evaluated over": f"{episodes} episodes",
        },
    )
    transitions = read_transitions(read_episodes(source, rows, net, reporter), net, config)
    offline_config = to_base_config(config, OfflineConfig)
    policy = make_policy(transitions, offline_config)
    rows_of_training = learn_offline(policy, transitions, offline_config, run, reporter)
    save_policy(run.path / POLICY_DIR, policy, task=task)
    eval_result = evaluate(policy)
    reporter.table("learned offline", {"transitions": len(transitions), **eval_result.as_dict()})
    metrics = {"transitions": len(transitions), **rows_of_training[-1]}
    run.write_json("metrics.json", {"offline": metrics, "offline_success": eval_result.as_dict()})


def read_transitions(
    episodes: Sequence[Episode], net: ProgressNet | None, config: OfflineCommand
) -> OfflineTransitions:
    """Return the transitions of episodes with their rewards; `net` scores the videos, None: no rule needs it."""
    scores: Sequence[RewardOutput | None] = [None] * len(episodes) if net is None else score_episodes(net, episodes)
    rule, params = find_rule(config.rule), RewardParams(gamma=config.gamma, scale=config.progress_scale)
    rewards = [
        recorded_rewards(
            episode,
            rule,
            params,
            progress=recorded_progress(episode) if rule.progress_source == "simulator" else predicted_progress(score),
            success_prob=None if score is None else np.nan_to_num(score.success),
            success_reward=config.success_reward,
        )
        for episode, score in zip(episodes, scores, strict=True)
    ]
    return make_transitions(episodes, rewards)


def recorded_progress(episode: Episode) -> Array:
    """Return the simulator's progress, float32 [T]; `DataError` if it was not recorded."""
    if episode.progress is None:
        raise DataError(f"{episode.name}: the simulator's progress was not recorded; use rule=shaped, or rule=sparse")
    return episode.progress


def predicted_progress(score: RewardOutput | None) -> Array | None:
    """Return the progress of a score, float32 [T] in [0, 1]; None without one."""
    return None if score is None else np.clip(score.progress, 0, 1).astype(np.float32)


COMMAND = Command(resumable=True, schema=OfflineCommand, main=main)

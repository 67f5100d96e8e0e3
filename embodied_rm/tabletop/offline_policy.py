"""`embodied-rm offline`: a policy from recorded episodes, good and bad, by offline reinforcement learning."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from embodied_rm.command import Command, to_base_config
from embodied_rm.data.dataset_path import resolve_dataset
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.errors import DataError, UserError
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.scoring import score_episodes
from embodied_rm.paths import POLICY_DIR, resolve_reward_model
from embodied_rm.rl.learner.policy import save_policy
from embodied_rm.rl.offline.offline_config import OfflineConfig
from embodied_rm.rl.offline.offline_reward import OfflineReward
from embodied_rm.rl.offline.train_offline import learn_offline, make_policy
from embodied_rm.rl.offline.transitions import OfflineTransitions
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.tabletop.clone_policy import demonstration_rows, read_action_free, read_episodes
from embodied_rm.tabletop.collect_episodes import observation_size
from embodied_rm.tabletop.envs import EnvConfig, make_evaluator
from embodied_rm.tabletop.user_transitions import make_user_transitions
from embodied_rm.types import Episode
from embodied_sim.registry import make_task


@dataclass(frozen=True, kw_only=True)
class OfflineCommand(OfflineConfig, OfflineReward):
    """Config of `offline`."""

    task: str
    data: Path
    action_free_data: Path | None = None
    checkpoint: Path | None = None
    user_answers: Path | None = None
    eval_episodes: int = 200
    env: EnvConfig = field(default_factory=EnvConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        OfflineReward.__post_init__(self)
        if self.user_answers is not None and (self.rule != "raw" or self.rank_progress or self.checkpoint is None):
            raise UserError(
                "user_answers= rewards frames by the user's reward as it is: set checkpoint= to a run of embodied-rm "
                f"personalize, rule=raw and rank_progress=false, got rule={self.rule}"
            )

    @property
    def scores_videos(self) -> bool:
        """Whether a reward model scores the videos."""
        return self.needs_predictions and self.user_answers is None


def main(config: OfflineCommand, run: RunFolder, reporter: Reporter) -> None:
    """Learn from the recorded episodes of a task and evaluate; write policy and metrics into the run folder."""
    task = make_task(config.task).name
    source = LeRobotDataset(resolve_dataset(config.data))
    rows = demonstration_rows(source, task, failures=True)
    net = load_progress_net(resolve_reward_model(config.checkpoint)) if config.scores_videos else None
    episodes, seed = config.eval_episodes, config.seed
    evaluate = make_evaluator(config.task, config.env, episodes=episodes, seed=seed)
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
    recordings = read_episodes(source, rows, net, reporter)
    if config.action_free_data is not None:
        recordings += read_action_free(config.action_free_data, task, recordings, net, reporter, failures=True)
    transitions = reward_recordings(recordings, net, config)
    obs_dim, expected = transitions.observation.shape[1], observation_size(config.task)
    if obs_dim != expected:
        raise DataError(f"the recorded states have size {obs_dim}, the observations of {task} {expected}")
    offline_config = to_base_config(config, OfflineConfig)
    policy = make_policy(transitions, offline_config)
    rows_of_training = learn_offline(policy, transitions, offline_config, run, reporter)
    save_policy(run.path / POLICY_DIR, policy, task=task)
    eval_result = evaluate(policy)
    reporter.table("learned offline", {"transitions": len(transitions), **eval_result.as_dict()})
    metrics = {"transitions": len(transitions), **rows_of_training[-1]}
    run.write_json("metrics.json", {"offline": metrics, "offline_success": eval_result.as_dict()})


def reward_recordings(
    recordings: Sequence[Episode], net: ProgressNet | None, config: OfflineCommand
) -> OfflineTransitions:
    """Return the transitions of recorded episodes with the rewards of the config."""
    if config.user_answers is not None:
        assert config.checkpoint is not None
        weights = {"progress_scale": config.progress_scale, "success_reward": config.success_reward}
        return make_user_transitions(recordings, config.checkpoint, config.user_answers, **weights)
    predictions = None if net is None else score_episodes(net, recordings)
    return config.make_transitions(recordings, predictions, config.gamma)


COMMAND = Command(resumable=True, schema=OfflineCommand, main=main)

"""`embodied-rm clone`: behavior cloning of one task's demonstrations, evaluated in the simulator."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from embodied_rm.command import Command, to_base_config
from embodied_rm.data.dataset_path import resolve_dataset
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import UserError, check_minimum, lookup, unknown_name_message
from embodied_rm.models.checkpoint import load_progress_net, weights_digest
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.reward_model import DescribedRewardModel
from embodied_rm.models.scoring import score_episodes
from embodied_rm.paths import IMITATION_DIR, POLICY_DIR, resolve_reward_model
from embodied_rm.rl.cloning.bc import CloneConfig, clone, select_demonstrations
from embodied_rm.rl.envs.embedding_obs import embed_observations
from embodied_rm.rl.learner.demo_pairs import DemoPairs, make_demo_pairs, progress_weights, save_demo_pairs
from embodied_rm.rl.learner.policy import save_policy
from embodied_rm.rl.offline.inverse_dynamics import infer_actions
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.score import read_episodes_for
from embodied_rm.tabletop.envs import EnvConfig, make_evaluator
from embodied_rm.types import Episode
from embodied_sim.mirror_image import MIRRORED_ACTIONS, mirrored_columns
from embodied_sim.observation import PROPRIO_DIM, horizontal_position_columns
from embodied_sim.registry import make_task

LATER_KEYS = ("translation_invariant", "mirror_images")  # keys that cells of benchmarks record where they are set


@dataclass(frozen=True, kw_only=True)
class CloneCommand(CloneConfig):
    """Config of `clone`."""

    task: str
    data: Path
    action_free_data: Path | None = None
    include_failures: bool = False
    reward_weighted: bool = False
    checkpoint: Path | None = None
    progress_horizon: int = 10
    translation_invariant: bool = False
    mirror_images: bool = False
    eval_episodes: int = 200
    env: EnvConfig = field(default_factory=EnvConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_minimum(self, 1, "progress_horizon")
        if self.translation_invariant and self.obs_mode != "state":
            raise UserError(f"translation_invariant=true needs obs_mode=state: {self.obs_mode} sees where objects are")
        if self.mirror_images and self.obs_mode != "state":
            raise UserError(f"mirror_images=true needs obs_mode=state: images of {self.obs_mode} are not mirrored")

    def cell_settings(self) -> dict[str, Any]:
        """Return the settings as cells of benchmarks record them: cells from before a key existed stay valid."""
        return {name: value for name, value in asdict(self).items() if value or name not in LATER_KEYS}


def main(config: CloneCommand, run: RunFolder, reporter: Reporter) -> None:
    """Clone and evaluate a policy; write policy and metrics into the run folder."""
    task = make_task(config.task)
    source = LeRobotDataset(resolve_dataset(config.data))
    rows = demonstration_rows(source, task.name, failures=config.include_failures)
    uses_images = config.obs_mode != "state"
    model_folder = resolve_reward_model(config.checkpoint) if config.reward_weighted or uses_images else None
    net = None if model_folder is None else load_progress_net(model_folder)
    num_eval, seed = config.eval_episodes, config.seed
    evaluate = make_evaluator(
        config.task, config.env, episodes=num_eval, seed=seed, obs_mode=config.obs_mode, encoder_model=net
    )
    demo_rows = [rows[i] for i in select_demonstrations(len(rows), config)]
    reporter.table(
        "clone",
        {
            "task": task.name,
            "demonstrations": f"{len(demo_rows)} of {len(rows)}",
            "weights": f"by progress within {config.progress_horizon} frames" if config.reward_weighted else "uniform",
            "observations": config.obs_mode,
            "policy": f"{config.hidden_sizes} hidden units, {config.steps} steps of {config.batch_size} transitions",
            "evaluated over": f"{num_eval} episodes",
        },
    )
    episodes = read_episodes(source, demo_rows, net, reporter)
    if config.action_free_data is not None:
        failures = config.include_failures
        episodes += read_action_free(config.action_free_data, task.name, episodes, net, reporter, failures=failures)
    pairs = make_pairs(episodes, net, config, reporter)
    save_demo_pairs(run.path / IMITATION_DIR, pairs)
    digest = weights_digest(model_folder) if model_folder is not None and uses_images else ""
    proprio_dim = PROPRIO_DIM if uses_images else pairs.observation.shape[1]
    views = config.env.views if uses_images else ()
    ignored = horizontal_position_columns(task) if config.translation_invariant else ()
    columns, actions = (mirrored_columns(config.task), MIRRORED_ACTIONS) if config.mirror_images else ((), ())
    base = to_base_config(config, CloneConfig)
    policy, fit = clone(pairs, base, digest, proprio_dim, views, ignored, columns, actions)
    save_policy(run.path / POLICY_DIR, policy, task=task.name)
    eval_result = evaluate(policy)
    reporter.table("cloned", {**asdict(fit), **eval_result.as_dict()})
    run.write_json("metrics.json", {"clone": asdict(fit), "cloned_success": eval_result.as_dict()})


def make_pairs(
    episodes: Sequence[Episode], net: ProgressNet | None, config: CloneCommand, reporter: Reporter
) -> DemoPairs:
    """Return the (observation, action, weight) pairs to imitate, with the observations of the policy."""
    weights = None
    if net is not None and config.reward_weighted:
        progress = [prediction.progress for prediction in score_episodes(net, episodes)]
        weights = progress_weights(progress, config.progress_horizon)
    if net is not None and config.obs_mode != "state":
        policy_views = [select_views(episode, config.env.views) for episode in episodes]
        tracked = reporter.track(policy_views, "encode demonstrations")
        episodes = [embed_observations(net, episode, PROPRIO_DIM) for episode in tracked]
    return make_demo_pairs(episodes, weights)


def select_views(episode: Episode, names: Sequence[str]) -> Episode:
    """Return the episode with only the views of the policy. Raises `UserError` for a view that was not recorded."""
    kind = "recorded view (env.views are the views of the policy)"
    return replace(episode, views={name: lookup(episode.views, name, kind) for name in names})


def demonstration_rows(data: EpisodeSource, task: str, *, failures: bool) -> list[int]:
    """Return the rows of one task's successes, or of all its episodes. Raises `UserError` if there are none."""
    tasks = {meta.metadata.get("task", "") for meta in data.meta} - {""}
    rows = [i for i, m in enumerate(data.meta) if m.metadata.get("task") == task and (failures or m.success)]
    if not rows:
        message = unknown_name_message(task, tasks, "recorded task")
        raise UserError(f"the dataset has no successful episode of {task}" if task in tasks else message)
    return rows


def read_episodes(
    data: EpisodeSource, rows: Sequence[int], net: DescribedRewardModel | None, reporter: Reporter
) -> list[Episode]:
    """Read episodes with the views of the reward model; without a model, with one view only."""
    if net is not None:
        episodes = read_episodes_for(net.input_spec, data, rows)
        return list(reporter.track(episodes, "read demonstrations", total=len(rows)))
    # An `Episode` needs at least one view.
    return [data.episode(i, views=data.views[:1]) for i in reporter.track(rows, "read demonstrations")]


def read_action_free(
    path: Path, task: str, labeled: Sequence[Episode], net: ProgressNet | None, reporter: Reporter, *, failures: bool
) -> list[Episode]:
    """Read a task's episodes of a dataset whose actions are missing or not used, with actions that are inferred.

    Args:
        path: The dataset.
        task: Name of the task.
        labeled: Episodes with actions, which the inverse dynamics model is trained on.
        net: Reward model that will score them; None: none.
        reporter: Output for the user.
        failures: Whether failed episodes are read too.

    Raises:
        UserError: The dataset has no episode of the task.
        DataError: Fewer than two episodes have actions, or an episode has no states.
    """
    source = LeRobotDataset(resolve_dataset(path))
    episodes = read_episodes(source, demonstration_rows(source, task, failures=failures), net, reporter)
    action_free = [replace(episode, action=None) for episode in episodes]
    inferred = infer_actions([*labeled, *action_free], seed=0, proprio_dim=PROPRIO_DIM)
    error = f"{inferred.validation_rmse:.3f}"
    reporter.table("inferred actions", {"episodes": inferred.num_inferred, "error on unseen episodes, RMSE": error})
    return inferred.episodes[len(labeled) :]


COMMAND = Command(schema=CloneCommand, main=main)

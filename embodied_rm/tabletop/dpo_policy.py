"""`embodied-rm dpo`: a cloned policy that is improved in a world model of recordings, without an environment step."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from torch import Tensor

from embodied_rm.api.imagination import encode_recordings
from embodied_rm.checkpoint_io import MANIFEST_NAME, read_manifest
from embodied_rm.command import Command, to_base_config
from embodied_rm.data.dataset_path import resolve_dataset
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.errors import DataError, check_minimum
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.paths import POLICY_DIR, resolve_checkpoint, resolve_reward_model
from embodied_rm.rl.imagination.dpo import DPOConfig
from embodied_rm.rl.imagination.improve_policy import check_recordings, check_state_policy, improve_policy
from embodied_rm.rl.imagination.latent_episodes import LatentEpisode
from embodied_rm.rl.imagination.train_world_model import prediction_error, split_episodes, train_world_model
from embodied_rm.rl.imagination.world_model import WorldModel, load_world_model, save_world_model
from embodied_rm.rl.imagination.world_model_config import WorldModelConfig
from embodied_rm.rl.learner.policy import load_policy, save_policy
from embodied_rm.rl.resume_inputs import check_same_inputs, describe_inputs
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.tabletop.clone_policy import demonstration_rows, read_episodes
from embodied_rm.tabletop.envs import EnvConfig, make_evaluator
from embodied_sim.registry import make_task

WORLD_MODEL_DIR = "world_model"


@dataclass(frozen=True, kw_only=True)
class DPOCommand(DPOConfig, WorldModelConfig):
    """Config of `dpo`."""

    task: str
    policy: Path
    data: Path
    checkpoint: Path | None = None
    eval_episodes: int = 200
    env: EnvConfig = field(default_factory=EnvConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        WorldModelConfig.__post_init__(self)
        check_minimum(self, 1, "eval_episodes")


def main(config: DPOCommand, run: RunFolder, reporter: Reporter) -> None:
    """Improve a policy and evaluate it; write world model, policy and metrics into the run folder."""
    task = make_task(config.task).name
    policy = load_policy(resolve_checkpoint(config.policy, POLICY_DIR))
    check_state_policy(policy, config.policy)
    source = LeRobotDataset(resolve_dataset(config.data))
    rows = demonstration_rows(source, task, failures=True)
    if not any(source.meta[row].success is True for row in rows):
        raise DataError(f"{config.data} has no recorded success of {task}: chunks start where a demonstration was")
    net = load_progress_net(resolve_reward_model(config.checkpoint))
    episodes, seed = config.eval_episodes, config.seed
    evaluate = make_evaluator(config.task, config.env, episodes=episodes, seed=seed)
    reporter.table(
        "dpo",
        {
            "task": task,
            "episodes": f"{len(rows)}, {sum(source.meta[row].success is True for row in rows)} of them successes",
            "world model": f"{config.num_members} members, {config.world_model_steps} steps",
            "chunks": f"{config.groups_per_state} x {config.num_chunks} per state, of {config.horizon} actions",
            "evaluated over": f"{episodes} episodes",
        },
    )
    recorded = read_episodes(source, rows, net, reporter)
    check_recordings(policy, recorded, config.horizon)
    recordings = encode_recordings(net, recorded, reporter)
    train, validation = split_episodes(recordings, config, seed)
    model = open_world_model(train, to_base_config(config, WorldModelConfig), seed, run, reporter)
    error = prediction_error(model, validation, config.horizon)
    demonstrations = [episode for episode in recordings if episode.is_demonstration]
    improved, stats = improve_policy(
        policy, model, demonstrations, config.horizon, to_base_config(config, DPOConfig), reporter
    )
    save_policy(run.path / POLICY_DIR, improved, task=task)
    eval_result = evaluate(improved)
    reporter.table("improved", {**asdict(stats), **eval_result.as_dict()})
    metrics = {"dpo": asdict(stats), "world_model": asdict(error), "dpo_success": eval_result.as_dict()}
    run.write_json("metrics.json", metrics)


def open_world_model(
    episodes: Sequence[LatentEpisode], config: WorldModelConfig, seed: int, run: RunFolder, reporter: Reporter
) -> WorldModel:
    """Return the world model of a run folder, trained on the episodes unless it is there.

    Raises `UserError` if it is there and was trained on other episodes or with other settings.
    """
    folder = run.path / WORLD_MODEL_DIR
    columns = (column for episode in episodes for column in vars(episode).values() if isinstance(column, Tensor))
    inputs = describe_inputs({**vars(config), "seed": seed}, columns)
    if not (folder / MANIFEST_NAME).exists():
        save_world_model(folder, train_world_model(episodes, config, seed, reporter), inputs)
    check_same_inputs(read_manifest(folder)["inputs"], inputs, run.path)
    return load_world_model(folder)


COMMAND = Command(resumable=True, schema=DPOCommand, main=main)

"""`embodied-rm personalize`: the reward of several users who prefer different things (VPL)."""

import math
from dataclasses import dataclass, field
from pathlib import Path

from embodied_rm.command import Command
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.load_dataset import load_dataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import UserError
from embodied_rm.labels.comparisons import read_comparisons
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.training.user_preferences.train_user_reward import (
    UserRewardConfig,
    measure_accuracy,
    measure_asking,
    train_user_reward,
)
from embodied_rm.training.user_preferences.user_answers import UserAnswers, frame_vectors, make_user_answers
from embodied_rm.training.user_preferences.user_reward_net import UserRewardNet, save_user_reward
from embodied_rm.types import Array

CHECKPOINT_DIR = "checkpoint"


@dataclass(frozen=True, kw_only=True)
class PersonalizeCommand(UserRewardConfig):
    """Config of `personalize`."""

    data: Path
    comparisons: tuple[Path, ...]
    held_out_share: float = 0.3
    seed: int = 0
    instruction: str | None = None
    features: FeatureMap = field(default_factory=FeatureMap)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len({path.name for path in self.comparisons}) < max(len(self.comparisons), 2):
            names = ",".join(map(str, self.comparisons))
            raise UserError(f"comparisons must be tables of two or more users, with different names, got [{names}]")
        if not 0 < self.held_out_share < 1:
            raise UserError(f"held_out_share must be in (0, 1), got {self.held_out_share}")


def main(config: PersonalizeCommand, run: RunFolder, reporter: Reporter) -> None:
    """Train the reward of the users, and one for all of them; measure both on unseen episodes."""
    tables = {path.name: read_comparisons(path) for path in config.comparisons}
    frames = read_frames(load_dataset(config.data, reporter, config.instruction, config.features))
    users = make_user_answers(tables, frames, config.held_out_share, config.num_answers + 1, config.seed)
    answers = {name: f"{len(user.train)} answers, {len(user.held_out)} held out" for name, user in users.items()}
    reporter.table("personalize", {"episodes": len(frames), **answers})
    parts = [user.train for user in users.values()]
    net, one_reward = (
        train_user_reward(parts, config, size, config.seed, reporter) for size in (config.latent_size, 0)
    )
    metrics = {name: measure_user(net, one_reward, user, config) for name, user in users.items()}
    for name, values in metrics.items():
        reporter.table(f"{name}: share of right predictions", values)
    save_user_reward(run.path / CHECKPOINT_DIR, net)
    run.write_json("metrics.json", {"personalize": metrics})


def read_frames(source: EpisodeSource) -> dict[str, Array]:
    """Return state and action of each episode, float32 [T, D]; `DataError` if one was not recorded."""
    columns = ((meta.name, source.columns(row)) for row, meta in enumerate(source.meta))
    return {name: frame_vectors(name, values.state, values.action) for name, values in columns}


def measure_user(
    net: UserRewardNet, one_reward: UserRewardNet, user: UserAnswers, config: PersonalizeCommand
) -> dict[str, float | None]:
    """Return the accuracies of a user's answers about unseen episodes; None: no answer is in conflict."""
    inputs = (user.held_out, user.is_conflict, config.num_answers, config.seed)
    measured = {
        "one reward for all": measure_accuracy(one_reward, *inputs),
        f"{config.num_answers} random answers": measure_accuracy(net, *inputs),
        f"{config.num_answers} chosen answers": measure_asking(net, *inputs),
    }
    return {
        f"{name}, {part}": value if math.isfinite(value) else None
        for name, values in measured.items()
        for part, value in values.items()
    }


COMMAND = Command(schema=PersonalizeCommand, main=main)

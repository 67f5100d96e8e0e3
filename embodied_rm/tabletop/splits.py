"""Splits: environments for training, unseen ones for evaluation, and checks that the two do not overlap."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from embodied_rm.config_files import group_choices
from embodied_rm.config_schema import load_group_choice
from embodied_rm.data.provenance import hash_scene
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError, UserError, lookup
from embodied_rm.tabletop.envs import EnvConfig
from embodied_sim.domain_randomization import Randomization
from embodied_sim.holdout import Holdout

NO_SPLIT, ALL_UNSEEN = "none", "all"  # special split names: nothing is held out; all unseen splits
UNSEEN_TASK_SPLIT = "unseen_task"  # the split whose tasks are not trained on
TRAINED_ON_MESSAGE = (
    "the model was trained on it, so its scores are not those of unseen episodes: evaluate on episodes "
    "recorded with another seed (embodied-rm collect seed=...)"
)
"""Error for an episode of the training data."""
REQUIRED_TEXT_KEYS = ("split", "task", "objects", "side", "phrasing")
"""Metadata that an episode needs so that overlaps can be detected."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Tasks, robot, holdout and randomization of environments: one file of `configs/split`."""

    name: str = NO_SPLIT
    tasks: tuple[str, ...] = ("lift_cube", "open_drawer", "cube_in_drawer")
    robot: str = "panda"
    holdout: Holdout = field(default_factory=Holdout)
    randomize: Randomization = field(default_factory=Randomization)

    def make_env_config(self, env_config: EnvConfig) -> EnvConfig:
        """Return the config with this split's robot and randomization. Raises `UserError` if it sets them."""
        if self.name == NO_SPLIT:
            return env_config
        for key in ("robot", "randomize"):
            if getattr(env_config, key) != getattr(EnvConfig(), key):
                raise UserError(f"env.{key} is set by split={self.name}: leave it out")
        return replace(env_config, robot=self.robot, randomize=self.randomize)

    def select_tasks(self, tasks: Sequence[str]) -> tuple[str, ...]:
        """Return the tasks, by default all of the split. Raises `UserError` for a task outside of it."""
        if self.name != NO_SPLIT:
            for task in tasks:
                lookup(dict.fromkeys(self.tasks), task, f"task of split={self.name}")
        return tuple(tasks) or self.tasks


@cache
def load_split(name: str) -> Split:
    """Load a split from its file in `configs/split`."""
    split: Split = load_group_choice("split", name, Split)
    return split


def unseen_splits() -> list[str]:
    """Return the names of the splits that are for evaluation only."""
    return [name for name in group_choices("split") if name.startswith("unseen_")]


def check_split(split: Split) -> None:
    """Raise `UserError` if a bundled split was changed, or if its holdout names unknown objects or sides."""
    if split.name in group_choices("split") and split != load_split(split.name):
        raise UserError(f"split={split.name} is fixed; give a changed split another name: split.name=...")
    if split == load_split(NO_SPLIT):
        return
    from embodied_sim.registry import make_task, task_names  # by mujoco, the extra `sim`

    tasks = [make_task(name) for name in (*task_names(), *split.tasks)]
    props_by_noun = {prop.noun: prop for task in tasks for prop in task.object_props}
    sides = {f"{task.name} {side}": side for task in tasks for side in task.sides}
    for pair in split.holdout.color_object_pairs:
        lookup(props_by_noun, pair.partition(" ")[2], f"object of the held-out pair {pair!r}:")
    for side in split.holdout.sides:
        lookup(sides, side, "held-out side")


def check_split_membership(split: Split, episodes: Iterable[EpisodeMeta]) -> None:
    """Raise `DataError` for the first episode that does not belong to the split."""
    from embodied_sim.registry import make_task  # by mujoco, the extra `sim`

    tasks = {make_task(name).name for name in split.tasks}
    for episode in episodes:
        if reason := split_mismatch(split, tasks, episode.metadata):
            raise DataError(f"{episode.name}: {reason}")


def split_mismatch(split: Split, tasks: set[str], text: Mapping[str, str]) -> str | None:
    """Return the reason why an episode with this metadata does not belong to the split, or None."""
    if missing := [key for key in REQUIRED_TEXT_KEYS if key not in text]:
        return f"its metadata lack {missing[0]!r}: record it with embodied-rm collect split={split.name}"
    if text["split"] != split.name:
        return f"it was recorded with split={text['split']}, not with split={split.name}"
    if text["task"] not in tasks:
        return f"the task {text['task']} is none of split={split.name}: {', '.join(sorted(tasks))}"
    pairs, sides = (tuple(filter(None, text[key].split(", "))) for key in ("objects", "side"))
    if disallowed := split.holdout.violations(pairs, sides, int(text["phrasing"])):
        return f"split={split.name} holds out {', '.join(disallowed)}"
    return None


def check_not_trained_on(facts: Mapping[str, Any], episodes: Iterable[EpisodeMeta]) -> None:
    """Raise `DataError` for the first episode that, or whose initial scene, the model was trained on."""
    scenes = set(facts.get("scenes", ()))
    for episode in episodes:
        if overlap := training_overlap(facts, episode.metadata.get("split", NO_SPLIT), episode.metadata.get("seed")):
            raise DataError(f"{episode.name}: {overlap}")
        if hash_scene(episode.metadata.get("scene", "")) in scenes:
            raise DataError(f"{episode.name}: {TRAINED_ON_MESSAGE}")


def check_split_unseen(facts: Mapping[str, Any], split: Split, seed: int) -> None:
    """Raise `UserError` if the model was trained on the episodes of a split and seed, or on a task of `unseen_task`."""
    if overlap := training_overlap(facts, split.name, str(seed)):
        raise UserError(overlap)
    if split.name == UNSEEN_TASK_SPLIT and (trained_tasks := sorted({*facts.get("tasks", ())} & {*split.tasks})):
        raise UserError(
            f"the model was trained on {', '.join(trained_tasks)}, which split={split.name} requires to be unseen: "
            "train it with split=seen, or evaluate it on a split of your own, split.name=..."
        )


def training_overlap(facts: Mapping[str, Any], split: str, seed: str | None) -> str | None:
    """Return the reason why a model must not be evaluated on a split and seed, or None.

    It must not if it was trained on them, or on any seed of an unseen split.
    """
    for recorded_split in facts.get("splits", ()):
        name, _, recorded_seed = recorded_split.rpartition(" ")
        if name == split != NO_SPLIT and (recorded_seed == seed or name in unseen_splits()):
            return (
                f"the model was trained on split={name} (seed {recorded_seed}), so its scores are not those of unseen "
                "episodes: evaluate it on others"
            )
    return None

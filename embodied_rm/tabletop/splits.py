"""Splits: which environments a model is trained on, which it is only judged by, and that the two do not mix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from embodied_rm.config_files import group_choices
from embodied_rm.config_schema import load_group_choice
from embodied_rm.data.provenance import hash_scene
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError, UserError, lookup
from embodied_rm.tabletop.envs import EnvConfig
from embodied_sim.domain_randomization import Randomization
from embodied_sim.holdout import Holdout
from embodied_sim.registry import make_task, task_names

NO_SPLIT, ALL_UNSEEN = "none", "all"
"""Splits that are none: nothing held out; and every unseen one."""
UNSEEN_TASK_SPLIT = "unseen_task"
"""The split whose tasks are unseen as such."""
TRAINED_ON_MESSAGE = (
    "the model was trained on it; its scores there would say nothing about unseen episodes: judge it by others, "
    "recorded with another seed (embodied-rm collect seed=...)"
)
"""What is said of an episode that is known again."""
REQUIRED_TEXT_KEYS = ("split", "task", "objects", "side", "phrasing")
"""What an episode must say of itself for a leak to be found."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Tasks, arm, holdout and randomisation of environments: one file of `configs/split`."""

    name: str = NO_SPLIT
    tasks: tuple[str, ...] = ("lift_cube", "open_drawer", "cube_in_drawer")
    robot: str = "panda"
    holdout: Holdout = field(default_factory=Holdout)
    randomize: Randomization = field(default_factory=Randomization)

    def make_env_config(self, env_config: EnvConfig) -> EnvConfig:
        """Its environments on that machinery. Raises `UserError` where `env` asks for others."""
        if self.name == NO_SPLIT:
            return env_config
        for key in ("robot", "randomize"):
            if getattr(env_config, key) != getattr(EnvConfig(), key):
                raise UserError(f"env.{key} is decided by split={self.name}: leave it out")
        return replace(env_config, robot=self.robot, randomize=self.randomize)

    def select_tasks(self, tasks: Sequence[str]) -> tuple[str, ...]:
        """Those tasks, or all of the split where none is named. Raises `UserError` for one that is not in it."""
        if self.name != NO_SPLIT:
            for task in tasks:
                lookup(dict.fromkeys(self.tasks), task, f"task of split={self.name}")
        return tuple(tasks) or self.tasks


def load_split(name: str) -> Split:
    """The split as its file in `configs/split` has it."""
    split: Split = load_group_choice("split", name, Split)
    return split


def unseen_splits() -> list[str]:
    """The names of those that are for judging only."""
    return [name for name in group_choices("split") if name.startswith("unseen_")]


def check_split(split: Split) -> None:
    """Raises `UserError` for a shipped split that was changed, and for a holdout of things that no task has."""
    if split.name in group_choices("split") and split != load_split(split.name):
        raise UserError(f"split={split.name} is fixed; a changed one needs a name of its own: split.name=...")
    tasks = [make_task(name) for name in (*task_names(), *split.tasks)]
    props_by_noun = {prop.noun: prop for task in tasks for prop in task.object_props}
    sides = {f"{task.name} {side}": side for task in tasks for side in task.sides}
    for pair in split.holdout.color_object_pairs:
        lookup(props_by_noun, pair.partition(" ")[2], f"thing of the held-out pair {pair!r}:")
    for side in split.holdout.sides:
        lookup(sides, side, "held-out side")


def check_split_membership(split: Split, episodes: Iterable[EpisodeMeta]) -> None:
    """Raises `DataError` naming the first episode that is not of the split's environments, and why."""
    tasks = {make_task(name).name for name in split.tasks}
    for episode in episodes:
        if reason := split_mismatch(split, tasks, episode.metadata):
            raise DataError(f"{episode.name}: {reason}")


def split_mismatch(split: Split, tasks: set[str], text: Mapping[str, str]) -> str | None:
    """Why an episode that says that of itself does not belong to the split."""
    if missing := [key for key in REQUIRED_TEXT_KEYS if key not in text]:
        return f"it does not say its {missing[0]}: record it with embodied-rm collect split={split.name}"
    if text["split"] != split.name:
        return f"it was recorded with split={text['split']}, not with split={split.name}"
    if text["task"] not in tasks:
        return f"the task {text['task']} is none of split={split.name}: {', '.join(sorted(tasks))}"
    pairs, sides = (tuple(filter(None, text[key].split(", "))) for key in ("objects", "side"))
    if disallowed := split.holdout.violations(pairs, sides, int(text["phrasing"])):
        return f"split={split.name} does not have what it shows or says: {', '.join(disallowed)}"
    return None


def check_not_trained_on(facts: Mapping[str, Any], episodes: Iterable[EpisodeMeta]) -> None:
    """Raises `DataError` naming the first episode that the model of these facts is not to be judged by, see
    `trained_on`, or that began in a scene which the model was trained on."""
    scenes = set(facts.get("scenes", ()))
    for episode in episodes:
        if overlap := training_overlap(facts, episode.metadata.get("split", NO_SPLIT), episode.metadata.get("seed")):
            raise DataError(f"{episode.name}: {overlap}")
        if hash_scene(episode.metadata.get("scene", "")) in scenes:
            raise DataError(f"{episode.name}: {TRAINED_ON_MESSAGE}")


def check_split_unseen(facts: Mapping[str, Any], split: Split, seed: int) -> None:
    """The same of the episodes that a split with this seed would record, a `UserError`, and of a split of unseen tasks
    for a model that was trained on one of them."""
    if overlap := training_overlap(facts, split.name, str(seed)):
        raise UserError(overlap)
    if split.name == UNSEEN_TASK_SPLIT and (trained_tasks := sorted({*facts.get("tasks", ())} & {*split.tasks})):
        raise UserError(
            f"the model was trained on {', '.join(trained_tasks)}, which split={split.name} holds for unseen: train it with "
            "split=seen, or judge it by a split of your own, split.name=..."
        )


def training_overlap(facts: Mapping[str, Any], split: str, seed: str | None) -> str | None:
    """Why the model of these facts is not to be judged by episodes of that split and seed: it was trained on them, or
    on anything of an unseen split; None: it may be."""
    for recorded_split in facts.get("splits", ()):
        name, _, recorded_seed = recorded_split.rpartition(" ")
        if name == split != NO_SPLIT and (recorded_seed == seed or name in unseen_splits()):
            return (
                f"the model was trained on split={name} (seed {recorded_seed}); its scores there would say nothing about "
                "unseen episodes: judge it by others"
            )
    return None

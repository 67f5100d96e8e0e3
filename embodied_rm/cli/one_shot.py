"""One-shot learning in an evaluation: a demonstration of each task of a split, in context or by adaptation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from embodied_rm.adapt import AdaptConfig, adapt
from embodied_rm.cli.commands import collect
from embodied_rm.cli.places import DATASET, dataset_in
from embodied_rm.cli.reports import spread
from embodied_rm.cli.stages import Stages
from embodied_rm.data.catalog import open_data
from embodied_rm.errors import UserError, lookup
from embodied_rm.evaluate import Judged, judge
from embodied_rm.labels.steps import goal_of, task_of
from embodied_rm.models.augment import AugmentConfig
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.plans import THEN
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.score import read_for
from embodied_rm.train import CHECKPOINT
from embodied_rm.types import Episode
from sim.holdout import Holdout
from sim.registry import find_task

REFERENCE, ADAPT = "reference", "adapt"
TRIALS = 8
"""Successes of a task among which its goals are met."""
STARTS = 100
"""Starts of a task that are drawn to find the sentences for each of its goals."""
MILD = AugmentConfig(shift=0.06, zoom=0.06, rotation=0.04, colour=0.3, flicker=0.1, drop_view=0.3)
"""Less than `adapt` varies a real recording: the cameras of a split hardly move."""


@dataclass(frozen=True, kw_only=True)
class OneShotConfig:
    """How one demonstration of each task is used."""

    by: str | None = None
    """"reference": shown to the model, whose weights stay; "adapt": learned; None: there is none."""
    seed: int = 2000
    """Of the demonstrations."""
    each_goal: bool = False
    """Whether there is one of each goal of a task that was met, not one of the task."""
    updates: int = 500
    rehearse: Path | None = None
    rehearsed: int = 72

    def __post_init__(self) -> None:
        if self.by is not None:
            lookup({REFERENCE: None, ADAPT: None}, self.by, "value of one_shot.by")
        for name in ("updates", "rehearsed"):
            if getattr(self, name) < 1:
                raise UserError(f"one_shot.{name} must be >= 1, got {getattr(self, name)}")
        if self.rehearse is not None and self.by != ADAPT:
            raise UserError(f"one_shot.rehearse is for one_shot.by=adapt, got one_shot.by={self.by}")


@dataclass(frozen=True, kw_only=True)
class OneShot:
    """A model that is shown demonstrations of the tasks of a recorded split. Writes into the run folder `run`."""

    net: ProgressNet
    facts: Mapping[str, Any]
    """What its checkpoint says of it."""
    config: OneShotConfig
    recording: collect.CollectConfig
    """How the episodes that judge the model are recorded."""
    run: RunFolder
    reporter: Reporter

    def demonstrations(self) -> dict[str, list[Episode]]:
        """Task -> successes of it, as the model sees them: the first, or the first of each goal that was met."""
        count = TRIALS if self.config.each_goal else 1
        world = replace(self.recording.world, num_envs=count)
        few = replace(self.recording, successes=count, failures=0, seed=self.config.seed, world=world)
        Stages(self.run, self.reporter).command("record demonstrations", "demonstrations", collect.COMMAND, few)
        source = open_data(self.run.path / "demonstrations" / DATASET)
        shown: dict[str, dict[str, Episode]] = {}
        for episode in read_for(self.net.sight, source):
            shown.setdefault(task_of(episode), {}).setdefault(goal_of(episode), episode)
        return {task: list(of_goals.values()) for task, of_goals in shown.items()}

    def judge(self, shown: Sequence[Episode], episodes: Sequence[Episode], goals: Sequence[Episode] | None) -> Judged:
        """What the model says of episodes of a task of which it has been `shown` these demonstrations.

        The reference of an episode is that of its goal, else the first. To a task of several wishes nothing is adapted,
        for the whole sentence would be learned and never be read: it is followed in context whatever `by` says.
        """
        follow = self.config.by == REFERENCE or THEN in shown[0].instruction
        net = self.net.fused_by("reference") if follow else self.adapted(shown)
        of_goal = {goal_of(demonstration): demonstration for demonstration in shown}
        return judge(net, episodes, goals, [of_goal.get(goal_of(episode), shown[0]) for episode in episodes])

    def adapted(self, shown: Sequence[Episode]) -> ProgressNet:
        """The model adapted to the demonstrations; what an interrupted run has adapted is read."""
        run = RunFolder.open(self.run.path / "adapted" / task_of(shown[0]), resume=True)
        if (run.path / CHECKPOINT).exists():
            return load_progress_net(run.path / CHECKPOINT)
        told = {goal_of(episode): wordings(episode, self.recording.split.holdout) for episode in shown}
        reworded = [
            replace(episode, instruction=sentence)
            for episode in shown
            for sentence in told[goal_of(episode)][0]
            if sentence != episode.instruction
        ]
        config = AdaptConfig(
            max_seconds=None, updates=self.config.updates, learning_rate=7e-4, train_sight=False, augment=MILD
        )
        return adapt(
            shown[0],
            config,
            run,
            self.reporter,
            self.net,
            rehearsed=self._rehearsed(),
            others=[*shown[1:], *reworded],
            foreign=[] if len(shown) > 1 else told[goal_of(shown[0])][1],
            facts=self.facts,
        )

    def _rehearsed(self) -> list[Episode]:
        """Some episodes of every task and outcome that the model was trained on."""
        if self.config.rehearse is None:
            return []
        source = open_data(dataset_in(self.config.rehearse))
        return list(read_for(self.net.sight, source, spread(source, self.config.rehearsed)))


def wordings(demonstration: Episode, holdout: Holdout) -> tuple[list[str], list[str]]:
    """In which sentences such worlds ask for what was demonstrated, and for the other goals of its task."""
    task, rng = find_task(demonstration.meta["task"]), np.random.default_rng(0)
    starts = [holdout.draw(task, rng) for _ in range(STARTS)]
    told: dict[bool, dict[str, None]] = {True: {}, False: {}}
    for start in starts:
        sentences = told[task.goal(start) == goal_of(demonstration)]
        sentences.update(dict.fromkeys(task.instruction(start, index) for index in holdout.phrasings(task)))
    return list(told[True]), list(told[False])

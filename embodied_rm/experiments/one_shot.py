"""One-shot evaluation: the model gets a demonstration of each task, in context or by adaptation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from embodied_rm.data.dataset_path import DATASET_DIR, resolve_dataset
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import UserError, check_minimum, lookup
from embodied_rm.evaluate import PredictionSet, predict_episodes
from embodied_rm.experiments.pipeline import Pipeline
from embodied_rm.experiments.report_parts import select_diverse_rows
from embodied_rm.labels.subtasks import goal_of, task_of
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.score import read_episodes_for
from embodied_rm.training import CHECKPOINT_DIR
from embodied_rm.training.adaptation import AdaptConfig, Replay, adapt
from embodied_rm.training.augment import AugmentConfig
from embodied_rm.types import SUBGOAL_SEPARATOR, Episode
from embodied_sim.holdout import Holdout

if TYPE_CHECKING:
    from embodied_rm.tabletop.collect_episodes import CollectConfig

IN_CONTEXT, ADAPT = "in_context", "adapt"
NUM_DEMO_EPISODES = 8  # successful episodes per task in which a demonstration of each goal is searched
NUM_START_DRAWS = 100  # initial layouts that are drawn to find the instructions of each goal
MILD_AUGMENT = AugmentConfig(
    shift=0.06, zoom=0.06, rotation=0.04, color_jitter=0.3, brightness_jitter=0.1, view_dropout_prob=0.3
)
"""Weaker than the defaults of `adapt` for real recordings: the cameras of a split hardly move."""


@dataclass(frozen=True, kw_only=True)
class OneShotConfig:
    """Config of one-shot evaluation."""

    method: str | None = None
    """"in_context": the demonstration is an input; "adapt": the model is fine-tuned on it; None: no demonstration."""
    seed: int = 2000  # seed of the demonstrations
    per_goal: bool = False  # whether there is one demonstration per goal of a task, instead of one per task
    steps: int = 500
    replay_data: Path | None = None
    replay_episodes: int = 72

    def __post_init__(self) -> None:
        if self.method is not None:
            lookup({IN_CONTEXT: None, ADAPT: None}, self.method, "value of one_shot.method")
        check_minimum(self, 1, "steps", "replay_episodes", prefix="one_shot.")
        if self.replay_data is not None and self.method != ADAPT:
            raise UserError(f"one_shot.replay_data needs one_shot.method=adapt, got one_shot.method={self.method}")


@dataclass(frozen=True, kw_only=True)
class OneShotEvaluator:
    """Evaluates a model with demonstrations of the tasks of a split; writes into the run folder `run`."""

    net: ProgressNet
    facts: Mapping[str, Any]  # metadata of its checkpoint
    config: OneShotConfig
    collect_config: CollectConfig  # how the evaluation episodes are recorded
    run: RunFolder
    reporter: Reporter

    def record_demonstrations(self) -> dict[str, list[Episode]]:
        """Record and return task -> demonstrations: the first success, or the first success of each goal."""
        from embodied_rm.tabletop import collect_episodes  # by mujoco, the extra `sim`

        count, seed = NUM_DEMO_EPISODES if self.config.per_goal else 1, self.config.seed
        env_config = replace(self.collect_config.env, num_envs=count)
        config = replace(self.collect_config, num_successes=count, num_failures=0, seed=seed, env=env_config)
        pipeline = Pipeline(self.run, self.reporter)
        pipeline.run_command("record demonstrations", "demonstrations", collect_episodes.COMMAND, config)
        source = open_dataset(self.run.path / "demonstrations" / DATASET_DIR)
        episodes_by_task: dict[str, dict[str, Episode]] = {}
        for episode in read_episodes_for(self.net.input_spec, source):
            episodes_by_task.setdefault(task_of(episode), {}).setdefault(goal_of(episode), episode)
        return {task: list(episodes_by_goal.values()) for task, episodes_by_goal in episodes_by_task.items()}

    def predict(
        self, demonstrations: Sequence[Episode], episodes: Sequence[Episode], goals: Sequence[Episode] | None
    ) -> PredictionSet:
        """Predict episodes of a task after demonstrations of it.

        The demonstration of an episode is the one of its goal, else the first. A task of several sub-goals is always
        handled in context: adaptation would learn the whole instruction, and the model reads one sub-goal at a time.
        """
        in_context = self.config.method == IN_CONTEXT or SUBGOAL_SEPARATOR in demonstrations[0].instruction
        net = self.net.with_fusion("reference") if in_context else self.adapt_model(demonstrations)
        demonstration_by_goal = {goal_of(demonstration): demonstration for demonstration in demonstrations}
        references = [demonstration_by_goal.get(goal_of(episode), demonstrations[0]) for episode in episodes]
        return predict_episodes(net, episodes, goals, references)

    def adapt_model(self, demonstrations: Sequence[Episode]) -> ProgressNet:
        """Return the model adapted to the demonstrations; load it if it was adapted before."""
        run = RunFolder.open(self.run.path / "adapted" / task_of(demonstrations[0]), resume=True)
        if (run.path / CHECKPOINT_DIR).exists():
            return load_progress_net(run.path / CHECKPOINT_DIR)
        holdout, replay = self.collect_config.split.holdout, self._read_replay_episodes()
        instructions = {goal_of(episode): goal_instructions(episode, holdout) for episode in demonstrations}
        paraphrased = [
            replace(episode, instruction=sentence)
            for episode in demonstrations
            for sentence in instructions[goal_of(episode)][0]
            if sentence != episode.instruction
        ]
        negatives = [] if len(demonstrations) > 1 else instructions[goal_of(demonstrations[0])][1]
        steps = self.config.steps
        config = AdaptConfig(
            max_seconds=None,
            steps=steps,
            learning_rate=7e-4,
            train_encoder=False,
            train_text_encoder=True,
            augment=MILD_AUGMENT,
        )
        return adapt(
            [*demonstrations, *paraphrased], config, run, self.reporter, self.net,
            Replay(episodes=replay, negative_instructions=negatives), init_metadata=self.facts,
        )  # fmt: skip

    def _read_replay_episodes(self) -> list[Episode]:
        """Read training episodes of every task and outcome, against forgetting."""
        if self.config.replay_data is None:
            return []
        source = open_dataset(resolve_dataset(self.config.replay_data))
        rows = select_diverse_rows(source, self.config.replay_episodes)
        return list(read_episodes_for(self.net.input_spec, source, rows))


def goal_instructions(demonstration: Episode, holdout: Holdout) -> tuple[list[str], list[str]]:
    """Return the instructions for the demonstrated goal, and those for the other goals of its task."""
    from embodied_sim.registry import find_task  # by mujoco, the extra `sim`

    task, rng = find_task(demonstration.metadata["task"]), np.random.default_rng(0)
    starts = [holdout.sample_layout(task, rng) for _ in range(NUM_START_DRAWS)]
    instructions: dict[bool, dict[str, None]] = {True: {}, False: {}}
    for start in starts:
        sentences = instructions[task.goal(start) == goal_of(demonstration)]
        sentences.update(dict.fromkeys(task.instruction(start, index) for index in holdout.phrasing_indices(task)))
    return list(instructions[True]), list(instructions[False])

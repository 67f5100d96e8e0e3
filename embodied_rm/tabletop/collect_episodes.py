"""`embodied-rm collect`: record a dataset of scripted experts, scripted failures and stored policies."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from gymnasium.spaces.utils import flatdim

from embodied_rm.command import Command
from embodied_rm.data.dataset_path import begin_dataset
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.record import EpisodeRecorder, PolicyFn
from embodied_rm.data.renderers import RENDERER_KEY
from embodied_rm.errors import UserError, check_minimum
from embodied_rm.rl.watch.evaluate_policy import stream_seed
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.tabletop.envs import EnvConfig, make_envs
from embodied_rm.tabletop.person_policy import PERSON, open_person_policy
from embodied_rm.tabletop.policies import policy_task, scripted_policy, stochastic_policy
from embodied_rm.tabletop.splits import NO_SPLIT, Split, check_split
from embodied_rm.types import Episode
from embodied_sim.scripted_policy import (
    POST_SUCCESS_OUTCOME,
    SUCCESS_OUTCOME,
    WRONG_OBJECT_OUTCOME,
    ScriptedPolicy,
    available_outcomes,
)
from embodied_sim.vec_env import TabletopVecEnv

NUM_SCRIPTED_PARTS = 3
"""Parts of a task's recording by the scripted policy: successes, failures, and continuations after success."""
ROLLOUT_OUTCOME = "rollout"  # outcome label of an episode of a stored policy


@dataclass(frozen=True, kw_only=True)
class CollectConfig:
    """Config of `collect`."""

    split: Split = field(default_factory=Split)
    tasks: tuple[str, ...] = ()  # tasks to record, a subset of the split's; empty: all of them
    num_successes: int = 40
    num_failures: int = 20
    num_post_success: int = 0
    policies: tuple[str, ...] | None = None
    """Run folders of `clone` or `refine` whose policies are recorded too, or `person`."""
    rollouts_per_policy: int | None = None  # episodes per policy
    port: int = 0
    frame_stride: int = 1
    action_noise: float = 0.3
    speed_range: tuple[float, ...] = (0.6, 1.0)
    seed: int = 0
    env: EnvConfig = field(default_factory=EnvConfig)

    def __post_init__(self) -> None:
        counts = self.num_successes, self.num_failures, self.num_post_success
        if min(counts) < 0 or not (any(counts) or self.rollouts_per_policy):
            raise UserError("nothing to record: num_successes={}, num_failures={}, num_post_success={}".format(*counts))
        if len(self.speed_range) != 2 or not 0 < self.speed_range[0] <= self.speed_range[1] <= 1:
            raise UserError(f"speed_range must be two shares [slowest,fastest] in (0, 1], got {list(self.speed_range)}")
        check_minimum(self, 0, "action_noise")
        if (self.policies is None) != (self.rollouts_per_policy is None):
            raise UserError("policies=[...] and rollouts_per_policy=... must be set together")
        if self.port and PERSON not in (self.policies or ()):
            raise UserError(f"port={self.port} is that of the page of policies=[{PERSON}]: leave it out")
        if self.rollouts_per_policy is not None and self.rollouts_per_policy < 1:
            raise UserError(f"rollouts_per_policy must be >= 1, got {self.rollouts_per_policy}")


def main(config: CollectConfig, run: RunFolder, reporter: Reporter) -> None:
    """Record every task into one dataset. Raises `UserError` if tasks or environments do not belong to the split."""
    check_split(config.split)
    tasks = config.split.select_tasks(config.tasks)
    if not tasks:
        raise UserError(f"split={config.split.name} has no tasks to record; embodied-rm tasks lists those there are")
    for folder in stored_policies(config):
        if policy_task(folder) not in tasks:
            raise UserError(f"the policy in {folder} is for {policy_task(folder)}, which is none of {', '.join(tasks)}")
    config = replace(config, tasks=tasks, env=config.split.make_env_config(config.env))
    episodes = f"{config.num_successes} successes, {config.num_failures} failures"
    episodes += f", {config.num_post_success} continued after success" if config.num_post_success else ""
    episodes += f", {config.rollouts_per_policy} per policy" if config.rollouts_per_policy else ""
    split = {} if config.split.name == NO_SPLIT else {"split": config.split.name}
    views = f"{', '.join(config.env.views)} at {config.env.image_size} pixels"
    settings = {"tasks": tasks, "episodes per task": episodes, "views": views, "num_envs": config.env.num_envs}
    reporter.table("collect", {**split, **settings})
    run.write_json("metrics.json", {"collect": collect(config, run, reporter)})


def collect(config: CollectConfig, run: RunFolder, reporter: Reporter) -> dict[str, object]:
    """Write `<run>/dataset` and return the counts of episodes and frames."""
    target = begin_dataset(run)
    outcome_counts, num_successes, frames = Counter[str](), 0, 0
    writes_state = len(set(map(observation_size, config.tasks))) == 1
    if not writes_state:
        problem = "the tasks' observations differ in size, so the dataset has no state"
        reporter.log(f"{problem}: no policy can be cloned from it")
    with DatasetWriter(target, robot_type=Path(config.env.robot).stem) as writer:
        for task_index, task in enumerate(config.tasks):
            total = config.num_successes + config.num_failures + config.num_post_success
            total += (config.rollouts_per_policy or 0) * len(policies_for_task(config, task))
            recorded = record_task(task, config, reporter, task_index)
            for episode in reporter.track(recorded, f"record {task}", total=total):
                state = episode.state if writes_state else None
                writer.add(replace(episode, name=f"episode_{outcome_counts.total():06d}", state=state))
                frames += len(episode)
                outcome_counts[f"{episode.metadata['task']}: {episode.metadata['outcome']}"] += 1
                num_successes += episode.success is True
    reporter.table("recorded", {**dict(sorted(outcome_counts.items())), "successes": num_successes, "frames": frames})
    return {"episodes": outcome_counts.total(), "successes": num_successes, "frames": frames}


def observation_size(task: str) -> int:
    """Return the size of a task's observation vector."""
    with closing(TabletopVecEnv(task, 1, views=())) as env:
        return flatdim(env.single_observation_space)


def record_task(task: str, config: CollectConfig, reporter: Reporter, task_index: int = 0) -> Iterator[Episode]:
    """Yield episodes of one task: successes, failures, episodes continued after success, and rollouts of policies.

    Successes and rollouts end at success. The other episodes end at the time limit; some of them undo a success. A
    task without post-success plans has no episodes of the third kind. `task_index` selects a random stream that no
    other task uses.
    """
    holdout = config.split.holdout
    for part, count in enumerate((config.num_successes, config.num_failures, config.num_post_success)):
        if not count:
            continue
        seed = stream_seed(config.seed, task_index, part)
        with closing(make_envs(task, config.env, ends_on_success=part == 0, holdout=holdout)) as env:
            if target_outcomes := part_outcomes(part, env):
                yield from record_actors(env, target_outcomes, count, config, seed)
    for part, folder in enumerate(policies_for_task(config, task), start=NUM_SCRIPTED_PARTS):
        seed, count = stream_seed(config.seed, task_index, part), config.rollouts_per_policy or 0
        env_config = replace(config.env, num_envs=1) if folder == PERSON else config.env
        with closing(make_envs(task, env_config, ends_on_success=True, holdout=holdout)) as env, ExitStack() as stack:
            if folder == PERSON:
                act = stack.enter_context(open_person_policy(env, config.port, reporter))
            else:
                act = stochastic_policy(Path(folder), env, seed)
            yield from record_episodes(env, act, count, config, seed, lambda row: ROLLOUT_OUTCOME)


def stored_policies(config: CollectConfig) -> tuple[str, ...]:
    """Return the folders of all policies."""
    return tuple(folder for folder in config.policies or () if folder != PERSON)


def policies_for_task(config: CollectConfig, task: str) -> tuple[str, ...]:
    """Return the folders of the policies of a task, and the name of the person who acts in every task."""
    return tuple(folder for folder in config.policies or () if folder == PERSON or policy_task(folder) == task)


def part_outcomes(part: int, env: TabletopVecEnv) -> tuple[str, ...]:
    """Return the outcomes that the scripted policy aims at in a part (0, 1 or 2) of a task's recording."""
    if part == 1:
        return failure_order(available_outcomes(env), env.task.distinguishes_objects)
    wanted = SUCCESS_OUTCOME if part == 0 else POST_SUCCESS_OUTCOME
    return tuple(outcome for outcome in available_outcomes(env) if outcome == wanted)


def failure_order(outcome_kinds: Sequence[str], names_object: bool) -> tuple[str, ...]:
    """Return the order in which failures are recorded.

    If the instruction names one of several objects, every other failure manipulates the wrong object. Such an episode
    differs from a success only in the instruction, so the model needs many of them to learn to read it.
    """
    no_others = (SUCCESS_OUTCOME, POST_SUCCESS_OUTCOME, WRONG_OBJECT_OUTCOME)
    others = [outcome for outcome in outcome_kinds if outcome not in no_others]
    if not names_object:
        return (*others, WRONG_OBJECT_OUTCOME)
    return tuple(outcome for other in others for outcome in (WRONG_OBJECT_OUTCOME, other))


def record_actors(
    env: TabletopVecEnv, outcome_kinds: Sequence[str], count: int, config: CollectConfig, seed: int
) -> Iterator[Episode]:
    """Yield `count` episodes of the scripted policy, which aims at the given outcomes in turn."""
    slowest, fastest = config.speed_range
    actor = ScriptedPolicy(env, outcome_kinds, seed=seed, noise=config.action_noise, speed_range=(slowest, fastest))
    return record_episodes(env, scripted_policy(actor), count, config, seed, lambda row: str(actor.outcomes[row]))


def record_episodes(
    env: TabletopVecEnv, act: PolicyFn, count: int, config: CollectConfig, seed: int, outcome: Callable[[int], str]
) -> Iterator[Episode]:
    """Yield `count` episodes of the policy `act`; `outcome` returns the outcome label of an environment's episode."""

    def describe(row: int) -> dict[str, str]:
        labels = {"task": env.task.name, "goal": env.goals[row], "outcome": outcome(row)}
        origin = {"split": config.split.name, "seed": str(config.seed), RENDERER_KEY: env.renderer_fingerprint}
        return {**labels, **origin, **env.episode_metadata(row)}

    stride = config.frame_stride
    return iter(EpisodeRecorder(env, act, num_episodes=count, frame_stride=stride, seed=seed, metadata_fn=describe))


COMMAND = Command(schema=CollectConfig, main=main)

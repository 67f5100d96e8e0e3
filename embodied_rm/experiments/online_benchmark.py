"""`embodied-rm bench online`: refinement that starts from policies that learned offline, on the same recordings."""

from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from embodied_rm.command import Command
from embodied_rm.errors import UserError, check_minimum
from embodied_rm.experiments.compare_rules import read_cell
from embodied_rm.experiments.comparison import CellResult
from embodied_rm.experiments.mixed_recordings import (
    MethodCell,
    check_half_failures,
    check_methods,
    check_tasks,
    clone_successes,
    record_mixed,
)
from embodied_rm.experiments.online_page import markdown_section, summary
from embodied_rm.experiments.pipeline import Pipeline
from embodied_rm.experiments.results_cache import open_results_cache
from embodied_rm.experiments.results_page import describe_machine, write_section
from embodied_rm.models.checkpoint import model_digest
from embodied_rm.paths import resolve_reward_model
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.tabletop import dpo_policy, offline_policy, refine_policy
from embodied_rm.tabletop.envs import EnvConfig
from embodied_rm.tabletop.refine_command import RefineCommand
from embodied_sim.registry import make_task

METHODS = ("clone", "iql", "dpo", "hnpg", "rlpd")
"""What refinement starts from; `hnpg` and `rlpd` start from the clone and go on learning from the recordings."""
FIRST_SEED = 1  # settings were chosen on recordings of seed 101


@dataclass(frozen=True, kw_only=True)
class BenchOnlineConfig:
    """Config of `bench online`."""

    tasks: tuple[str, ...] = ("lift_cube", "turn_lever", "stack_cubes")
    methods: tuple[str, ...] = METHODS
    num_seeds: int = 5
    num_demonstrations: int = 20
    num_rollouts: int = 40
    num_envs: int = 64
    iterations: int = 20
    rlpd_iterations: int = 40
    target_success: float = 0.8
    eval_episodes: int = 64
    checkpoint: Path | None = None
    results_page: Path | None = None

    def __post_init__(self) -> None:
        check_tasks(self.tasks)
        check_methods(self.methods, METHODS)
        check_minimum(self, 1, "num_seeds", "num_rollouts", "num_envs", "eval_episodes")
        check_minimum(self, RefineConfig().critic_warmup_iterations + 1, "iterations", "rlpd_iterations")
        check_half_failures(self.num_demonstrations)
        if not 0 < self.target_success <= 1:
            raise UserError(f"target_success must be in (0, 1], got {self.target_success}")


def main(config: BenchOnlineConfig, run: RunFolder, reporter: Reporter) -> None:
    """Record, learn offline and refine by every method; write the metrics and, if set, the results page."""
    digest = model_digest(resolve_reward_model(config.checkpoint))  # fails early if it is missing
    seeds = range(FIRST_SEED, FIRST_SEED + config.num_seeds)
    cache, pipeline = open_results_cache(config.results_page), Pipeline(run, reporter)
    base_settings = {**asdict(config), "tasks": None, "methods": None, "num_seeds": None, "results_page": None}
    base_settings["target_success"] = None  # it only decides what is counted
    cells = []
    for values in reporter.track(list(product(seeds, config.tasks, config.methods)), "cells"):
        cell = MethodCell(*values)
        unused = dict.fromkeys(("num_envs", "iterations") if cell.method == "rlpd" else ("rlpd_iterations",))
        used_model = digest if cell.method == "dpo" else None
        settings = {**base_settings, **cell._asdict(), **unused, "checkpoint": used_model}
        measure = partial(measure_cell, cell, config, pipeline)
        result = cache.get_or_measure(cell.name, settings, run.path / "cells" / cell.name, measure)
        cells.append(CellResult.from_json(result))
    for method in config.methods:
        reporter.table(method, summary([cell for cell in cells if cell.rule == method], config.target_success))
    if config.results_page is not None:
        text = markdown_section(cells, asdict(config), config.results_page)
        write_section(config.results_page, "bench online", text, title="Offline, then online")
    run.write_json("metrics.json", {"bench": {"machine": describe_machine(), "cells": list(map(asdict, cells))}})


def measure_cell(cell: MethodCell, config: BenchOnlineConfig, pipeline: Pipeline) -> dict[str, Any]:
    """Record and learn offline, unless that is finished already, and refine."""
    data = record_mixed(cell.task, cell.seed, cell.folder, config, pipeline)
    policy = learn_policy(cell, config, data, pipeline)
    refine = refine_config(cell, config, data, policy)
    pipeline.run_command("refine", cell.name, refine_policy.COMMAND, refine)
    return asdict(replace(read_cell(pipeline.run.path / cell.name, refine), rule=cell.method))


def learn_policy(cell: MethodCell, config: BenchOnlineConfig, data: Path, pipeline: Pipeline) -> Path:
    """Learn the policy that refinement starts from; return its run folder."""
    root = pipeline.run.path / cell.folder
    common: dict[str, Any] = {"task": cell.task, "data": data, "seed": cell.seed, "eval_episodes": config.eval_episodes}
    if cell.method == "iql":
        command = offline_policy.OfflineCommand(**common, rule="sparse")
        pipeline.run_command("offline", f"{cell.folder}/start_iql", offline_policy.COMMAND, command)
        return root / "start_iql"
    clone_successes(cell.task, cell.seed, data, config.eval_episodes, f"{cell.folder}/start_clone", pipeline)
    if cell.method != "dpo":
        return root / "start_clone"
    dpo = dpo_policy.DPOCommand(**common, policy=root / "start_clone", checkpoint=config.checkpoint)
    pipeline.run_command("dpo", f"{cell.folder}/start_dpo", dpo_policy.COMMAND, dpo)
    return root / "start_dpo"


def refine_config(cell: MethodCell, config: BenchOnlineConfig, data: Path, policy: Path) -> RefineCommand:
    """Return how a cell is refined: on the simulator's success alone, so that no reward model differs in quality."""
    common: dict[str, Any] = {
        "task": cell.task,
        "policy": policy,
        "seed": cell.seed,
        "eval_episodes": config.eval_episodes,
        "stop_patience": 1000,
        "reward": RewardConfig(rule="sparse", success_source="simulator"),
    }
    if cell.method == "rlpd":
        return RefineCommand(
            **common,
            algorithm="rlpd",
            recorded_data=data,
            env=EnvConfig(num_envs=5),
            rollout_steps=50,
            iterations=config.rlpd_iterations,
        )
    if cell.method == "hnpg":
        common |= {"algorithm": "hnpg", "recorded_data": data}
    max_steps = make_task(cell.task).max_episode_steps
    return RefineCommand(
        **common, env=EnvConfig(num_envs=config.num_envs), rollout_steps=max_steps, iterations=config.iterations
    )


COMMAND = Command(resumable=True, schema=BenchOnlineConfig, main=main)

"""`embodied-rm bench programs`: policies that learn from programs of a language model, against `dense`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from embodied_rm.atomic_file import write_atomic
from embodied_rm.command import Command
from embodied_rm.errors import UserError, check_minimum
from embodied_rm.experiments import write_reward
from embodied_rm.experiments.compare_rules import CompareConfig, make_recipe, read_cell, task_preset
from embodied_rm.experiments.comparison import CellResult, filter_by_rule
from embodied_rm.experiments.pipeline import Pipeline
from embodied_rm.experiments.programs_page import ARMS, BASELINE, SearchResult, markdown_section
from embodied_rm.experiments.recipe import RefinementRecipe, clone_demonstrations
from embodied_rm.experiments.results_cache import open_results_cache
from embodied_rm.experiments.results_page import describe_machine, write_section
from embodied_rm.experiments.write_reward import LEDGER_FILE, PROGRAM_FILE, WriterConfig, WriteRewardConfig
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.tabletop import refine_policy
from embodied_sim.registry import make_task

SEARCH_SEED = 100  # of the demonstrations and the policy that programs are tried on; the cells have others
FIRST_PROGRAM_FILE = "first_program.txt"  # the first program that the critic accepted, in the folder of a search


@dataclass(frozen=True, kw_only=True)
class BenchProgramsConfig:
    """Config of `bench programs`."""

    transcripts: Path
    generations: int = 3
    candidates: int = 3
    search_iterations: int = 12
    results_page: Path | None = None
    writer: WriterConfig = field(default_factory=WriterConfig)
    compare: CompareConfig

    def __post_init__(self) -> None:
        check_minimum(self, 1, "generations", "candidates", "search_iterations")
        if self.compare.rules != (BASELINE,):
            raise UserError(f"compare.rules must be [{BASELINE}], which programs are compared with")


def main(config: BenchProgramsConfig, run: RunFolder, reporter: Reporter) -> None:
    """Search for programs by both designers, and refine with each; write metrics and, if set, the results page."""
    cache, pipeline = open_results_cache(config.results_page), Pipeline(run, reporter)
    searches = {}
    for task in reporter.track(config.compare.tasks, "searches"):
        settings = search_settings(config, task)
        search = partial(search_both, task, config, pipeline)
        searches[task] = SearchResult(**cache.get_or_measure(f"{task}/search", settings, run.path / task, search))
    cells = []
    seeds = range(config.compare.num_seeds)
    for seed, task, arm in reporter.track(list(product(seeds, config.compare.tasks, ARMS)), "cells"):
        recipe, source = make_recipe(config.compare, seed, task, BASELINE), searches[task].sources.get(arm)
        settings = {"recipe": recipe.cache_settings("")[1], "program": source}
        name = f"{recipe.seed_folder}/{arm}"
        measure = partial(measure_arm, recipe, name, source, pipeline)
        cell = CellResult.from_json(cache.get_or_measure(name, settings, run.path / "cells" / name, measure))
        cells.append(replace(cell, rule=arm))
    for arm in ARMS:
        rates = [cell.refined_success for cell in filter_by_rule(cells, arm)]
        reporter.table(arm, {"success": fmean(rates), "policies": len(rates)})
    if config.results_page is not None:
        text = markdown_section(searches, cells, config.generations * config.candidates, config.results_page)
        write_section(config.results_page, "bench programs", text, title="Reward programs")
    run.write_json("metrics.json", {"bench": {"machine": describe_machine(), "cells": list(map(asdict, cells))}})


def transcript_path(config: BenchProgramsConfig, task: str) -> Path:
    """Return the transcript of the search for a task."""
    return config.transcripts / f"{make_task(task).name}.jsonl"


def search_settings(config: BenchProgramsConfig, task: str) -> dict[str, Any]:
    """Return what the result of a search depends on, but for its transcript."""
    recipe = make_recipe(config.compare, SEARCH_SEED, task, BASELINE)
    names = ("generations", "candidates", "search_iterations")
    return {"recipe": recipe.cache_settings("")[1], **{name: getattr(config, name) for name in names}}


def search_both(task: str, config: BenchProgramsConfig, pipeline: Pipeline) -> dict[str, Any]:
    """Search by the language model and by random changes of its first program; return programs and counts."""
    recipe, preset = make_recipe(config.compare, SEARCH_SEED, task, BASELINE), task_preset(config.compare, task)
    policy = clone_demonstrations(recipe, pipeline)
    search = WriteRewardConfig(
        task=task,
        policy=policy,
        transcript=transcript_path(config, task),
        generations=config.generations,
        candidates=config.candidates,
        iterations=config.search_iterations,
        rollout_steps=preset.rollout_steps,
        gamma=preset.gamma,
        seed=SEARCH_SEED,
        writer=config.writer,
    )
    name, control_name = f"{recipe.seed_folder}/search", f"{recipe.seed_folder}/control"
    folder, control_folder = pipeline.run.path / name, pipeline.run.path / control_name
    metrics = {"written": pipeline.run_command("search", name, write_reward.COMMAND, search)}
    candidates = pipeline.run.read_json(f"{name}/{LEDGER_FILE}")["candidates"]
    first = next(candidate["source"] for candidate in candidates if candidate["report"] is not None)
    first_path = folder / FIRST_PROGRAM_FILE
    write_atomic(first_path, first)
    control = replace(search, transcript=None, writer=WriterConfig(), first_program=first_path)
    metrics["changed"] = pipeline.run_command("search", control_name, write_reward.COMMAND, control)
    best, changed = ((path / PROGRAM_FILE).read_text() for path in (folder, control_folder))
    return {
        "sources": {"first program": first, "best program": best, "best of random changes": changed},
        "fitness": {key: entry["write_reward"]["fitness"] for key, entry in metrics.items()},
        "refused": {key: entry["write_reward"]["refused"] for key, entry in metrics.items()},
    }


def measure_arm(recipe: RefinementRecipe, name: str, source: str | None, pipeline: Pipeline) -> Mapping[str, Any]:
    """Refine on a program, or on the progress of the simulator without one."""
    refine = replace(recipe.refine, policy=clone_demonstrations(recipe, pipeline))
    if source is not None:
        path = pipeline.run.path / f"{name}.txt"
        write_atomic(path, source)
        refine = replace(refine, program=path)
    pipeline.run_command("refine", name, refine_policy.COMMAND, refine)
    return asdict(read_cell(pipeline.run.path / name, refine))


COMMAND = Command(resumable=True, schema=BenchProgramsConfig, main=main)

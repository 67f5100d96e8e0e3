"""`embodied-rm bench cloning`: what a reward model is worth to who imitates good and bad demonstrations alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from embodied_rm.cli.benchmarks import beside, machine, put_section
from embodied_rm.cli.command import Command
from embodied_rm.cli.commands import clone, collect
from embodied_rm.cli.ledger import Ledger, ledger_of
from embodied_rm.cli.places import reward_model_in
from embodied_rm.cli.stages import Stages
from embodied_rm.errors import UserError
from embodied_rm.metrics import paired_difference
from embodied_rm.models.checkpoint import judging_digest
from embodied_rm.run import Reporter, RunFolder
from sim.registry import make_task

PLAIN, ALIGNED, SUCCESSES = "plain", "aligned", "successes alone"
WAYS = (PLAIN, ALIGNED, SUCCESSES)


@dataclass(frozen=True, kw_only=True)
class BenchCloningConfig:
    """Which tasks, how often, and how many demonstrations."""

    tasks: tuple[str, ...] = ("lift_cube", "open_drawer")
    seeds: int = 5
    demonstrations: int = 20
    episodes: int = 200
    checkpoint: Path | None = None
    page: Path | None = None

    def __post_init__(self) -> None:
        for task in self.tasks:
            make_task(task)
        if self.seeds < 1:
            raise UserError(f"seeds must be >= 1, got {self.seeds}")
        if self.demonstrations < 2 or self.demonstrations % 2:
            raise UserError(
                f"demonstrations must be even and >= 2, got {self.demonstrations}: half of them are failures"
            )


class Recipe(NamedTuple):
    """All that decides a cell but for the model."""

    way: str
    shown: collect.CollectConfig
    imitate: clone.CloneCommand

    @property
    def folder(self) -> str:
        """Of its task and seed, in the run folder."""
        return f"{make_task(self.imitate.task).name}/{self.imitate.seed}"

    @property
    def name(self) -> str:
        """What the ledger calls the cell, and its folder."""
        return f"{self.folder}/{self.way}"


def start(config: BenchCloningConfig, run: RunFolder, reporter: Reporter) -> None:
    """Record, clone in every way, and leave the numbers and perhaps a section of a page."""
    model = judging_digest(reward_model_in(config.checkpoint))  # a missing one is told before anything is recorded
    recipes = [recipe(config, *each) for each in product(range(config.seeds), config.tasks, WAYS)]
    work = cloned(recipes, model, Stages(run, reporter), ledger_of(config.page, "cloning"))
    done = list(zip(recipes, reporter.track(work, "cells", total=len(recipes)), strict=True))
    rates = {
        task: {way: [rate for one, rate in done if (one.imitate.task, one.way) == (task, way)] for way in WAYS}
        for task in config.tasks
    }
    for task, found in rates.items():
        reporter.table(task, {way: f"{fmean(each):.3f}" for way, each in found.items()})
    run.write_json("metrics.json", {"bench": {"machine": machine(), "success": rates}})
    if config.page is not None:
        put_section(config.page, "bench cloning", section(config, rates, config.page), title="Reward rules")


def recipe(config: BenchCloningConfig, seed: int, task: str, way: str) -> Recipe:
    """How the cell of a seed, a task and a way comes about; paths are inside the folder of task and seed."""
    half = config.demonstrations // 2
    shown = collect.CollectConfig(tasks=(task,), successes=half, failures=half, noise=0.1, pace=(1.0, 1.0), seed=seed)
    imitate = clone.CloneCommand(
        task=task,
        data=Path("demonstrations"),
        checkpoint=config.checkpoint,
        demonstrations=half if way == SUCCESSES else config.demonstrations,
        episodes=config.episodes,
        seed=seed,
    )
    return Recipe(way, shown, replace(imitate, failures=way != SUCCESSES, aligned=way == ALIGNED))


def cloned(recipes: Sequence[Recipe], model: str, stages: Stages, ledger: Ledger) -> Iterator[float]:
    """Success of each cell in turn; what is finished, here or in the ledger, is only read."""
    for one in recipes:
        imitate = replace(one.imitate, checkpoint=None)  # wherever it lies
        asked = model if one.way == ALIGNED else None
        decided = {"collect": asdict(one.shown), "clone": asdict(imitate), "model": asked}
        told = ledger.cell(one.name, decided, stages.run.path / one.name, partial(measured, one, stages))
        yield told["success"]


def measured(one: Recipe, stages: Stages) -> dict[str, float]:
    """Record and clone whatever of that is not finished."""
    home = stages.run.path / one.folder
    stages.command("collect", f"{one.folder}/demonstrations", collect.COMMAND, one.shown)
    imitate = replace(one.imitate, data=home / one.imitate.data)
    return {"success": stages.command("clone", one.name, clone.COMMAND, imitate)["cloned_success"]["rate"]}


def section(config: BenchCloningConfig, rates: Mapping[str, Mapping[str, Sequence[float]]], page: Path) -> str:
    """The results as Markdown."""
    lines = [
        "## Cloning good and bad demonstrations",
        "",
        f"`embodied-rm bench cloning`: {config.demonstrations} demonstrations of which half are failures, "
        f"{config.seeds} seeds, each with recordings of its own; success over {config.episodes} episodes, mean and "
        "worst seed. Aligned: moments weighed by the progress that the reward model sees after them (SARM's RA-BC); it "
        f"is not told which demonstrations failed. Every cell as data: `{beside(page, 'cloning', '.jsonl').name}`.",
        "",
        f"| task | {' | '.join(WAYS)} | aligned more than plain | 95 % |",
        "|---" * (len(WAYS) + 3) + "|",
    ]
    for task, found in rates.items():
        gain, low, high = paired_difference(found[ALIGNED], found[PLAIN])
        told = " | ".join(f"{fmean(each):.3f} ({min(each):.3f})" for each in found.values())
        lines.append(f"| `{task}` | {told} | {gain:+.3f} | {low:+.3f} to {high:+.3f} |")
    return "\n".join(lines)


COMMAND = Command(schema=BenchCloningConfig, start=start)

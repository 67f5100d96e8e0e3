"""`embodied-rm bench fusion`: what each perspective, each fusion of them and each view is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from embodied_rm.cli.benchmarks import machine, put_section
from embodied_rm.cli.command import Command
from embodied_rm.cli.commands.evaluate import similar
from embodied_rm.cli.goals import goals_of_others
from embodied_rm.cli.trial import on_trial, ours
from embodied_rm.evaluate import Judged, Truth, blind_tables, judge, model_table, truths
from embodied_rm.evaluate.view_subsets import Seeing, subsets
from embodied_rm.fusion import Fusion
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.similarity import Similarity
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.types import Episode

Row = Mapping[str, float]
PROGRESS = ("voc", "voc_f1", "mae_successes", "mae_failures", "preference_accuracy", "epic", "starc")
"""What fusion can change: verdicts and steps are not fused."""
VERDICT = ("success_auc", "completion_accuracy", "mcc")
FREE: tuple[Fusion, ...] = ("incremental", "forward", "least", "mean", "precise")
"""Fusions that need no goal picture. Without one "consistent" is "mean" (`fusion.fuse_consistent`)."""
ANCHORED: tuple[Fusion, ...] = ("backward", "least", "mean", "precise", "consistent")
"""Fusions in which a goal picture has a part."""


@dataclass(frozen=True, kw_only=True)
class BenchFusionConfig:
    """Which model on which data."""

    data: Path
    checkpoint: Path | None = None
    similarity: str | None = None
    page: Path | None = None


def start(config: BenchFusionConfig, run: RunFolder, reporter: Reporter) -> None:
    """Judge the episodes in every way; leave the numbers and perhaps a section of a page."""
    similarity = None if config.similarity is None else Similarity(config.similarity)
    trial = on_trial(config.checkpoint, config.data, reporter)
    net, source, episodes = ours(trial.model, "bench fusion"), trial.source, trial.read(reporter)
    known = truths(episodes)
    goals = goals_of_others(episodes, f"{config.data}")
    fused = dict(reporter.track(fusions(net, episodes, known, goals), "fusions", total=len(FREE + ANCHORED)))
    everything = list(range(len(episodes)))
    seeing = {} if similarity is None else {"similarity": similar(similarity, source, everything, reporter)}
    fused |= baselines(list(goals), known, seeing, PROGRESS)
    views = [view for view in net.config.views if view in source.views]
    seen = dict(reporter.track(views_chosen(net, episodes, known, views), "views", total=2 ** len(views) - 1))
    seen |= baselines(everything, known, seeing, (*PROGRESS, *VERDICT))
    for name, row in {**fused, **seen}.items():
        reporter.table(name, dict(row))
    counts = {"fusions": len(goals), "views": len(episodes)}
    numbers = {"machine": machine(), "episodes": counts, "fusions": fused, "views": seen}
    run.write_json("metrics.json", {"bench": numbers})
    if config.page is not None:
        put_section(config.page, "bench fusion", section(fused, seen, counts), title="Fusion and views")


def fusions(
    net: ProgressNet, episodes: Sequence[Episode], known: Sequence[Truth], goals: Mapping[int, int]
) -> Iterator[tuple[str, Row]]:
    """Fusion by fusion, without and with goals, over the same episodes: those for which there is a goal."""
    shown, ends = [episodes[row] for row in goals], [episodes[goal] for goal in goals.values()]
    true = [known[row] for row in goals]
    for kind in FREE:
        yield kind, table(judge(net.fused_by(kind), shown), true, PROGRESS)
    for kind in ANCHORED:
        yield f"{kind}, with goal", table(judge(net.fused_by(kind), shown, ends), true, PROGRESS)


def views_chosen(
    net: ProgressNet, episodes: Sequence[Episode], known: Sequence[Truth], views: Sequence[str]
) -> Iterator[tuple[str, Row]]:
    """Every choice of views, the others absent."""
    for chosen in subsets(views):
        yield " + ".join(chosen), table(judge(Seeing(net, chosen), episodes), known, (*PROGRESS, *VERDICT))


def table(judged: Judged, known: Sequence[Truth], columns: Sequence[str]) -> Row:
    """These metrics of a judgement, those that exist."""
    return only(columns, model_table(judged, known))


def baselines(
    rows: Sequence[int], known: Sequence[Truth], seeing: Mapping[str, Judged], columns: Sequence[str]
) -> dict[str, Row]:
    """The same of curves that look at no picture, and of what other models said of all episodes; of some of them."""
    some = [known[row] for row in rows]
    tables = {**blind_tables(some), **{name: model_table(said.take(rows), some) for name, said in seeing.items()}}
    return {f"_{name}_": only(columns, numbers) for name, numbers in tables.items()}


def only(columns: Sequence[str], numbers: Row) -> Row:
    """Those of the columns that exist."""
    return {name: numbers[name] for name in columns if name in numbers}


def section(fused: Mapping[str, Row], seen: Mapping[str, Row], counts: Mapping[str, int]) -> str:
    """The results as Markdown."""
    return "\n".join(
        [
            "## Fusion and views",
            "",
            "`embodied-rm bench fusion`; what the numbers mean: `docs/metrics.md`. One checkpoint, the weights of "
            f"every row the same. {counts['fusions']} episodes, those for which another one shows the goal:",
            "",
            *lines("fusion", fused, PROGRESS),
            "",
            f"All {counts['views']} episodes, views not named being absent:",
            "",
            *lines("views", seen, (*PROGRESS, *VERDICT)),
        ]
    )


def lines(what: str, rows: Mapping[str, Row], columns: Sequence[str]) -> list[str]:
    """A Markdown table; "-" is a number that does not exist."""
    cells = {name: [f"{row[c]:.3f}" if c in row else "-" for c in columns] for name, row in rows.items()}
    head = [f"| {what} | {' | '.join(c.replace('_', ' ') for c in columns)} |", "|---|" + "---|" * len(columns)]
    return head + [f"| {name} | {' | '.join(row)} |" for name, row in cells.items()]


COMMAND = Command(schema=BenchFusionConfig, start=start)

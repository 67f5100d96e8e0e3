"""`embodied-rm inspect`: list all issues of a dataset by episode and file."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from embodied_rm.atomic_file import write_atomic
from embodied_rm.command import Command
from embodied_rm.data.block_reader import validate_episode
from embodied_rm.data.dataset_path import resolve_dataset
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.issues import DataIssue, affected_episodes, list_names
from embodied_rm.data.load_dataset import report_issues, write_issues
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import CheckFailedError, DataError
from embodied_rm.experiments.episode_panel import contact_sheet_row, episode_panel
from embodied_rm.report import Report, ReportTable, write_report
from embodied_rm.report.episode_images import draw_contact_sheet
from embodied_rm.run_folder import Reporter, RunFolder

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class InspectCommand:
    """Config of `inspect`."""

    data: Path
    instruction: str | None = None
    decode: bool = True
    report_episodes: int = 6
    strict: bool = False
    features: FeatureMap = field(default_factory=FeatureMap)


def main(config: InspectCommand, run: RunFolder, reporter: Reporter) -> None:
    """Check the dataset; write issues, counts and report. Raises `CheckFailedError` if `strict` finds issues."""
    source = open_dataset(resolve_dataset(config.data), config.instruction, config.features)
    issues = list(source.issues)
    if config.decode:
        for index in reporter.track(range(len(source)), "inspect"):
            issues += validate_episode(source, index)
    report_issues(issues, reporter, max_lines=None)
    counts = count_episodes(source, issues)
    reporter.table("inspected", counts)
    write_issues(run, issues)
    report = make_report(config, source, issues, counts, reporter)
    write_report(run.file_path("report.html"), report)
    if report.contact_sheet:
        write_atomic(run.file_path("contact_sheet.png"), report.contact_sheet)
    run.write_json("metrics.json", {"inspect": counts})
    if config.strict and issues:
        raise CheckFailedError(f"{config.data}: {len(issues)} issues; {run.path / 'issues.json'} lists them")


def count_episodes(source: EpisodeSource, issues: Sequence[DataIssue]) -> dict[str, Any]:
    """Count what a dataset holds, without the episodes that have issues."""
    invalid_names = set(affected_episodes(issues))
    valid_rows = [row for row, meta in enumerate(source.meta) if meta.name not in invalid_names]
    valid_episodes = [source.meta[row] for row in valid_rows]
    success_counts = Counter(meta.success for meta in valid_episodes)
    sizes = Counter("{}x{}".format(*source.image_size(row)) for row in valid_rows)
    rates = Counter(f"{source.frame_rate(row):g}" for row in valid_rows)
    return {
        "episodes": len(valid_episodes),
        "frames": sum(meta.length for meta in valid_episodes),
        "views": list(source.views),
        "image_size": list_counts(sizes),
        "fps": list_counts(rates) if len(rates) != 1 else source.frame_rate(valid_rows[0]),
        "instructions": len({meta.instruction for meta in valid_episodes}),
        "annotated": sum(bool(meta.subtasks) for meta in valid_episodes),
        "successes": success_counts[True],
        "failures": success_counts[False],
        "issues": len(issues),
        "episodes_with_issues": len(invalid_names),
    }


def list_counts(counts: Counter[str]) -> str:
    """Return the values, the most frequent first, with their numbers of episodes if there are several."""
    if len(counts) == 1:
        return next(iter(counts))
    return list_names([f"{value} ({count} episode{'s' * (count > 1)})" for value, count in counts.most_common()])


def make_report(
    config: InspectCommand,
    source: EpisodeSource,
    issues: Sequence[DataIssue],
    counts: dict[str, Any],
    reporter: Reporter,
) -> Report:
    """Return the report: the issues, images of episodes over the whole dataset, and panels of the first valid ones."""
    invalid_names = set(affected_episodes(issues))
    valid_rows = [row for row, meta in enumerate(source.meta) if meta.name not in invalid_names]
    count = min(config.report_episodes, len(valid_rows))
    sampled_rows = [valid_rows[i] for i in np.linspace(0, len(valid_rows) - 1, count).round().astype(int)]
    sheet_rows = list(read_rows(contact_sheet_row, source, sampled_rows, reporter))
    return Report(
        title="Inspected dataset",
        subtitle=f"{config.data}: {counts['episodes']} valid episodes, {counts['episodes_with_issues']} with issues",
        contact_sheet=draw_contact_sheet(sheet_rows) if sheet_rows else b"",
        episodes=tuple(islice(read_rows(episode_panel, source, valid_rows, reporter), config.report_episodes)),
        tables=issue_tables(issues, config.data),
        details=counts,
    )


def read_rows(
    read: Callable[[EpisodeSource, int], T], source: EpisodeSource, rows: Sequence[int], reporter: Reporter
) -> Iterator[T]:
    """Yield what is read of each episode; one that cannot be read is skipped and logged."""
    for row in rows:
        try:
            yield read(source, row)
        except DataError as error:
            reporter.log(f"not displayed: {error}")


def issue_tables(issues: Sequence[DataIssue], root: Path) -> tuple[ReportTable, ...]:
    """Return the table of issues, with file paths relative to `root`; empty without issues."""
    rows = tuple(
        (", ".join(issue.episodes) or "-", str(issue.file).removeprefix(f"{root}/"), issue.message) for issue in issues
    )
    return (ReportTable(title="Issues", header=("episodes", "file", "issue"), rows=rows),) if rows else ()


COMMAND = Command(schema=InspectCommand, main=main)

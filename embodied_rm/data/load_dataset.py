"""Open a dataset and read its episodes, with a report of those that are left out."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from embodied_rm.data.dataset_path import resolve_dataset
from embodied_rm.data.degenerate_views import find_degenerate_views, view_issues
from embodied_rm.data.feature_map import DEFAULT_FEATURE_MAP, FeatureMap
from embodied_rm.data.issues import MAX_LISTED_ISSUES, DataIssue, affected_episodes
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.types import Episode


def load_dataset(
    folder: Path, reporter: Reporter, instruction: str | None = None, features: FeatureMap = DEFAULT_FEATURE_MAP
) -> EpisodeSource:
    """Open the dataset in a folder, see `open_dataset`, and report the episodes that are left out."""
    source = open_dataset(resolve_dataset(folder), instruction, features)
    report_issues(source.issues, reporter)
    return source


def report_issues(issues: Sequence[DataIssue], reporter: Reporter, max_lines: int | None = MAX_LISTED_ISSUES) -> None:
    """Log one line per issue, at most `max_lines` (None: all)."""
    for issue in issues[:max_lines]:
        prefix = "left out" if issue.episodes and not issue.is_note else "note"
        reporter.log(": ".join((prefix, *filter(None, [", ".join(issue.episodes)]), str(issue))))
    if max_lines is not None and len(issues) > max_lines:
        reporter.log(
            f"and {len(issues) - max_lines} more issues; {len(affected_episodes(issues))} episodes are left out in "
            "total: embodied-rm inspect lists all of them"
        )


def write_issues(run: RunFolder, issues: Sequence[DataIssue]) -> None:
    """Write all issues into the run folder, as issues.json."""
    run.write_json("issues.json", {"issues": [{**vars(issue), "file": str(issue.file)} for issue in issues]})


def read_valid_episodes(
    source: EpisodeSource, rows: Sequence[int], read: Callable[[int], Episode], reporter: Reporter, description: str
) -> Iterator[Episode]:
    """Yield the episodes of these rows but those that cannot be read. `DataError` if none can.

    Those that cannot, and views that show nothing, are reported.
    """
    count = 0
    issues: list[DataIssue] = []
    notes: list[DataIssue] = []
    for row in reporter.track(rows, description, total=len(rows)):
        try:
            episode = read(row)
        except DataError as error:
            issues.append(DataIssue.from_error(error, (source.meta[row].name,)))
            continue
        count += 1
        notes += view_issues(source, row, find_degenerate_views(episode))
        yield episode
    report_issues([*issues, *notes], reporter)
    if issues and not count:
        raise DataError(f"no episode can be read: {issues[0]}")

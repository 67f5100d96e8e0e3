"""`embodied-rm filter`: write the episodes of a dataset that a reward model finds good, as a new dataset."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from embodied_rm.command import Command, to_base_config
from embodied_rm.data.convert_dataset import convert_dataset
from embodied_rm.data.dataset_path import begin_dataset
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.load_dataset import load_dataset, report_issues, write_issues
from embodied_rm.errors import DataError
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.score import EpisodeSelection, SelectionConfig, read_predictions, select_episodes

SELECTION_FILE = "episodes.json"


@dataclass(frozen=True, kw_only=True)
class FilterCommand(SelectionConfig):
    """Config of `filter`."""

    data: Path
    scores: Path
    instruction: str | None = None
    robot_type: str = "unknown"
    features: FeatureMap = field(default_factory=FeatureMap)


def main(config: FilterCommand, run: RunFolder, reporter: Reporter) -> None:
    """Select episodes by their scores and convert them; write the prediction of every episode and counts."""
    target = begin_dataset(run)
    source = load_dataset(config.data, reporter, config.instruction, config.features)
    predictions = read_predictions(config.scores, source.meta)
    episodes = select_episodes(source.meta, predictions, to_base_config(config, SelectionConfig))
    run.write_json(SELECTION_FILE, {"episodes": [asdict(episode) for episode in episodes]})
    reporter.table("episodes that are kept, per task", count_by_task(episodes))
    kept = [row for row, episode in enumerate(episodes) if episode.reason is None]
    if not kept:
        raise DataError(f"no episode of {config.data} is good enough: {run.file_path(SELECTION_FILE)} says why")
    issues = convert_dataset(source, target, reporter, indices=kept, robot_type=config.robot_type)
    report_issues(issues, reporter, max_lines=None)
    write_issues(run, [*source.issues, *issues])
    metrics = {"episodes": len(episodes), "kept": len(kept) - len(issues), "unreadable": len(issues)}
    reporter.table("filter", {**metrics, "dataset": target})
    run.write_json("metrics.json", {"filter": metrics})


def count_by_task(episodes: Sequence[EpisodeSelection]) -> dict[str, str]:
    """Return instruction -> how many of its episodes are kept."""
    totals = Counter(episode.instruction for episode in episodes)
    kept = Counter(episode.instruction for episode in episodes if episode.reason is None)
    return {instruction: f"{kept[instruction]} of {total}" for instruction, total in totals.items()}


COMMAND = Command(schema=FilterCommand, main=main)

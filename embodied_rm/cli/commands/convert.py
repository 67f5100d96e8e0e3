"""`embodied-rm convert`: convert episodes of any supported format to a LeRobot v3.0 dataset."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from embodied_rm.command import Command
from embodied_rm.data.convert_dataset import convert_dataset
from embodied_rm.data.dataset_path import begin_dataset
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.issues import affected_episodes
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.load_dataset import load_dataset, report_issues, write_issues
from embodied_rm.errors import UserError
from embodied_rm.run_folder import Reporter, RunFolder


@dataclass(frozen=True, kw_only=True)
class ConvertCommand:
    """Config of `convert`."""

    data: Path
    instruction: str | None = None
    image_size: tuple[int, ...] | None = None
    robot_type: str = "unknown"
    features: FeatureMap = field(default_factory=FeatureMap)

    def __post_init__(self) -> None:
        if self.image_size is not None and (
            len(self.image_size) != 2 or min(self.image_size) < 2 or any(n % 2 for n in self.image_size)
        ):
            raise UserError(f"image_size must be [height, width], both even and >= 2, got {list(self.image_size)}")


def main(config: ConvertCommand, run: RunFolder, reporter: Reporter) -> None:
    """Convert the episodes, open the result to check it, and write counts into the run folder."""
    start_s = time.monotonic()
    target = begin_dataset(run)
    source = load_dataset(config.data, reporter, config.instruction, config.features)
    size = None if config.image_size is None else (config.image_size[0], config.image_size[1])
    issues = convert_dataset(source, target, reporter, size=size, robot_type=config.robot_type)
    report_issues(issues, reporter, max_lines=None)
    write_issues(run, [*source.issues, *issues])
    converted = LeRobotDataset(target)
    skipped = [*affected_episodes(source.issues), *affected_episodes(issues)]
    metrics = {
        "episodes": len(converted),
        "frames": sum(meta.length for meta in converted.meta),
        "skipped_episodes": skipped,
        "seconds": time.monotonic() - start_s,
    }
    reporter.table("converted", {**metrics, "views": converted.views, "skipped_episodes": len(skipped)})
    run.write_json("metrics.json", {"convert": metrics})


COMMAND = Command(schema=ConvertCommand, main=main)

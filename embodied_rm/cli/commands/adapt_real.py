"""`embodied-rm adapt real`: a reward model from demonstrations of a real robot, over a pretrained encoder."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from embodied_rm.api.demonstration_reward_model import open_direction_net, read_thinned
from embodied_rm.command import Command
from embodied_rm.data.dataset_hash import hash_episodes
from embodied_rm.data.degenerate_views import find_degenerate_views, view_issues
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.load_dataset import report_issues
from embodied_rm.data.provenance import dataset_provenance
from embodied_rm.data.source import find_index
from embodied_rm.experiments.load import load_videos
from embodied_rm.models.in_context.demonstration_checkpoint import save_demonstration_model
from embodied_rm.models.in_context.demonstration_model import DemonstrationModel
from embodied_rm.models.in_context.frozen_encoder import open_frozen_encoder
from embodied_rm.models.pretrained_weights import EFFICIENTNET_LITE0
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.training import CHECKPOINT_DIR
from embodied_rm.training.in_context.adapt_demonstrations import MAX_FRAMES, adapt_demonstrations


@dataclass(frozen=True, kw_only=True)
class AdaptRealConfig:
    """Config of `adapt real`."""

    data: Path
    episode_indices: tuple[int, ...] = (0,)
    encoder: str = EFFICIENTNET_LITE0.name
    seed: int = 0
    features: FeatureMap = field(default_factory=FeatureMap)


def main(config: AdaptRealConfig, run: RunFolder, reporter: Reporter) -> None:
    """Adapt, and leave checkpoint and metrics in the run folder."""
    start_s = time.monotonic()
    encoder = open_frozen_encoder(config.encoder)  # a wrong name is told before any video is decoded
    source = load_videos(config.data, reporter, None, config.features)
    rows = [find_index(source, index) for index in config.episode_indices]
    reporter.table("adapt real", {"demonstrations": len(rows), "views": source.views, "encoder": config.encoder})
    tracked = reporter.track(rows, "decode", total=len(rows))
    episodes = [read_thinned(source, row, encoder.image_size, MAX_FRAMES) for row in tracked]
    for row, episode in zip(rows, episodes, strict=True):
        report_issues(view_issues(source, row, find_degenerate_views(episode)), reporter)
    model = adapt_demonstrations(episodes, encoder, reporter, config.seed, open_direction_net(encoder))
    facts = {"data_sha256": hash_episodes(source, rows), "episodes": len(rows), **dataset_provenance(config.data)}
    save_demonstration_model(run.path / CHECKPOINT_DIR, model, facts)
    metrics = {**describe(model, [source.meta[row].length for row in rows]), "seconds": time.monotonic() - start_s}
    reporter.table("adapted", metrics)
    run.write_json("metrics.json", {"adapt": metrics})


def describe(model: DemonstrationModel, lengths: Sequence[int]) -> Mapping[str, float]:
    """Return what was learned from demonstrations of these numbers of frames."""
    return {
        "frames": sum(lengths),
        "keyframes": sum(len(demonstration) for demonstration in model.demonstrations),
        "subtasks": max(int(demonstration.subtasks.max()) + 1 for demonstration in model.demonstrations),
        "frame_weight": sum(d.frame_weight for d in model.demonstrations) / len(model.demonstrations),
    }


COMMAND = Command(schema=AdaptRealConfig, main=main)

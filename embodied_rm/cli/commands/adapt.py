"""`embodied-rm adapt`: fit a reward model to one annotated demonstration."""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from embodied_rm.cli.commands.train import read_held_out, report_curve
from embodied_rm.command import Command, to_base_config
from embodied_rm.data.dataset_path import resolve_dataset
from embodied_rm.data.degenerate_views import find_degenerate_views, view_issues
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.load_dataset import load_dataset, report_issues
from embodied_rm.data.open_dataset import lacks_instruction
from embodied_rm.data.provenance import dataset_provenance, merge_provenance
from embodied_rm.data.source import find_index
from embodied_rm.experiments.load import load_net
from embodied_rm.paths import resolve_reward_model
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.training import HeldOutConfig
from embodied_rm.training.adaptation import AdaptConfig, adapt
from embodied_rm.training.fitting import with_image_size_of_encoder


@dataclass(frozen=True, kw_only=True)
class AdaptCommand(AdaptConfig, HeldOutConfig):
    """Config of `adapt`: adaptation to one stored episode."""

    data: Path
    held_out: Path | None = None
    instruction: str | None = None
    episode_index: int = 0
    init_from: Path | None = None
    features: FeatureMap = field(default_factory=FeatureMap)

    def __post_init__(self) -> None:
        super().__post_init__()
        HeldOutConfig.__post_init__(self)
        self.check_episodes(self.held_out is not None)


def main(config: AdaptCommand, run: RunFolder, reporter: Reporter) -> None:
    """Adapt, and leave checkpoint and metrics in the run folder."""
    start_s = time.monotonic()
    if config.preference_model is not None:
        config = replace(config, preference_model=resolve_reward_model(config.preference_model))
    initial_net, facts = (None, None) if config.init_from is None else load_net(config.init_from)
    if initial_net is None:
        config = with_image_size_of_encoder(config)
    source = load_dataset(config.data, reporter, config.instruction, config.features)
    row = find_index(source, config.episode_index)
    size = config.image_size if initial_net is None else initial_net.config.encoder.image_size
    demonstration = source.episode(row, size=size)
    report_issues(view_issues(source, row, find_degenerate_views(demonstration)), reporter)
    origin = merge_provenance(facts or {}, dataset_provenance(config.data))
    held_out = None
    if config.held_out is not None:
        # Recordings of attempts need no instruction of their own: they are judged by that of the demonstration.
        instruction = demonstration.instruction if lacks_instruction(resolve_dataset(config.held_out)) else None
        held_out = read_held_out(config.held_out, config, config.features, reporter, size=size, instruction=instruction)
    base_config = to_base_config(config, AdaptConfig)
    net = adapt([demonstration], base_config, run, reporter, initial_net, init_metadata=origin, held_out=held_out)
    metrics: dict[str, Any] = {
        "frames": len(demonstration),
        "subtasks": len(demonstration.subtasks),
        "parameters": sum(parameter.numel() for parameter in net.parameters()),
        "seconds": time.monotonic() - start_s,
    }
    run.write_json("metrics.json", {"adapt": metrics | report_curve(run, config.data, config.held_out)})


COMMAND = Command(resumable=True, schema=AdaptCommand, main=main)

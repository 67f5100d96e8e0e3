"""`embodied-rm export`: a reward model as ONNX, compared with the checkpoint that it was made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.cli.command import Command
from embodied_rm.cli.places import REWARD_MODEL, checkpoint_in
from embodied_rm.errors import UserError
from embodied_rm.models.checkpoint import digest_of, export_progress_net, load_progress_net
from embodied_rm.models.likeness import differences
from embodied_rm.run import Reporter, RunFolder


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """What to export, and how exactly."""

    checkpoint: Path
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        if not self.tolerance > 0:
            raise UserError(f"tolerance must be > 0, got {self.tolerance}")


def start(config: ExportConfig, run: RunFolder, reporter: Reporter) -> None:
    """Export and compare. Raises `UserError` when the two differ by more than `tolerance`."""
    folder = checkpoint_in(config.checkpoint, REWARD_MODEL)
    net = load_progress_net(folder)
    facts = {**read_manifest(folder)["facts"], "exported_from": digest_of(folder)}
    exported = export_progress_net(run.path / REWARD_MODEL, net, facts)
    found = differences(net, exported)
    reporter.table("largest differences from the checkpoint", found)
    if max(found.values()) > config.tolerance:
        raise UserError(f"the exported model differs by {max(found.values()):.2g}, tolerance={config.tolerance:g}")
    run.write_json("metrics.json", {"export": found})


COMMAND = Command(schema=ExportConfig, start=start)

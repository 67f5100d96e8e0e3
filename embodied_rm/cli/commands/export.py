"""`embodied-rm export`: export a reward model to ONNX and compare it with the checkpoint."""

from dataclasses import dataclass
from pathlib import Path

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.command import Command
from embodied_rm.errors import UserError
from embodied_rm.models.checkpoint import export_progress_net, load_progress_net, weights_digest
from embodied_rm.models.numerical_parity import max_differences
from embodied_rm.paths import CHECKPOINT_DIR, resolve_reward_model
from embodied_rm.run_folder import Reporter, RunFolder


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Config of `export`."""

    checkpoint: Path
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        if not self.tolerance > 0:
            raise UserError(f"tolerance must be > 0, got {self.tolerance}")


def main(config: ExportConfig, run: RunFolder, reporter: Reporter) -> None:
    """Export and compare. Raises `UserError` if the two models differ by more than `tolerance`."""
    folder = resolve_reward_model(config.checkpoint)
    net = load_progress_net(folder)
    facts = {**read_manifest(folder)["facts"], "exported_from": weights_digest(folder)}
    exported = export_progress_net(run.path / CHECKPOINT_DIR, net, facts)
    differences = max_differences(net, exported)
    reporter.table("largest differences from the checkpoint", differences)
    if max(differences.values()) > config.tolerance:
        raise UserError(
            f"the exported model differs by {max(differences.values()):.2g}, tolerance={config.tolerance:g}"
        )
    run.write_json("metrics.json", {"export": differences})


COMMAND = Command(schema=ExportConfig, main=main)

"""Load the reward model of a checkpoint folder, of whichever architecture it is."""

from pathlib import Path

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.in_context.demonstration_checkpoint import ARCHITECTURE as DEMONSTRATION
from embodied_rm.models.in_context.demonstration_checkpoint import load_demonstration_model, stored_frame_rate
from embodied_rm.models.reward_model import DescribedRewardModel, InputSpec
from embodied_rm.models.zero_shot.zero_shot_checkpoint import ARCHITECTURE as ZERO_SHOT
from embodied_rm.models.zero_shot.zero_shot_checkpoint import load_zero_shot_model


def load_checkpoint(folder: Path | str) -> DescribedRewardModel:
    """Load a model that predicts.

    Args:
        folder: A checkpoint folder: of `train`, `adapt`, `export`, `train real` or `adapt real`.

    Returns:
        The model, in eval mode on the CPU.

    Raises:
        CheckpointError: When it is damaged, of an unknown architecture, or needs encoders that are absent.
    """
    architecture = read_manifest(folder)["architecture"]
    if architecture == ZERO_SHOT:
        return load_zero_shot_model(folder)
    if architecture == DEMONSTRATION:
        return load_demonstration_model(folder)
    return load_progress_net(folder)


def reads_instruction(folder: Path | str) -> bool:
    """Return whether the model in a checkpoint folder reads an instruction; one of demonstrations does not."""
    return bool(read_manifest(folder)["architecture"] != DEMONSTRATION)


def checkpoint_frame_stride(folder: Path | str, fps: float) -> int:
    """As `InputSpec.frame_stride` of the model in a folder, which is not loaded."""
    return InputSpec(frame_rate=stored_frame_rate(folder)).frame_stride(fps)

"""Open a dataset, and load a reward model: from this machine, or from the Hugging Face Hub."""

from pathlib import Path
from typing import overload

from embodied_rm.api.demonstration_reward_model import DemonstrationRewardModel
from embodied_rm.api.hub_upload import read_card
from embodied_rm.api.progress_reward_model import ProgressRewardModel
from embodied_rm.api.zero_shot_reward_model import ZeroShotRewardModel
from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.data.dataset_path import resolve_dataset
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.source import EpisodeSource
from embodied_rm.hub_checkpoint import download_checkpoint, is_hub_checkpoint
from embodied_rm.models.in_context.demonstration_model import DemonstrationModel
from embodied_rm.models.load_checkpoint import load_checkpoint
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.zero_shot.zero_shot_model import ZeroShotModel
from embodied_rm.paths import resolve_reward_model

LoadedRewardModel = ProgressRewardModel | ZeroShotRewardModel | DemonstrationRewardModel


def open_dataset(
    path: str | Path, *, instruction: str | None = None, features: FeatureMap | None = None
) -> EpisodeSource:
    """Open episodes of any layout: LeRobot v2.1 and v3.0, mp4 files, tables of them, robomimic, Minari.

    Args:
        path: A folder, a video or an HDF5 file; "hub:owner/name" for a dataset on the Hugging Face Hub.
        instruction: The instruction of recordings and HDF5 files, in place of a stored one.
        features: Names of stored views and columns, where they differ from the ones that a model knows.

    Returns:
        An iterable of `Episode`. `len(data)`, `data.meta` and `data.issues` decode nothing; `data.issues` lists the
        episodes that are left out, and why.

    Raises:
        DataError: Naming the file and its fault, or the layouts that were looked for.
    """
    # pyarrow and PyAV take time to import, which models without a dataset should not pay.
    from embodied_rm.data.open_dataset import open_dataset as open_source

    return open_source(resolve_dataset(Path(path)), instruction, features or FeatureMap())


@overload
def load_reward_model(source: None = None) -> ProgressRewardModel: ...
@overload
def load_reward_model(source: str | Path) -> LoadedRewardModel: ...
def load_reward_model(source: str | Path | None = None) -> LoadedRewardModel:
    """Load a reward model. Nothing that is read can run code.

    Args:
        source: None: the bundled model, which knows the views front, side and wrist of the simulated tabletop tasks.
            "real": the bundled model of real robots, for any views. A checkpoint folder, or the run folder of a
            training. Or "hf:owner/name", a model on the Hugging Face Hub: "@" and a branch, tag or commit select a
            revision, and "#sha256=" and its manifest's SHA-256 after that refuse any other model.

    Returns:
        The model, in eval mode on the CPU.

    Raises:
        UserError: When the folder holds no model, or a name on the hub has another form.
        CheckpointError: When a checkpoint is damaged, cannot be downloaded, has another SHA-256 than the required one,
            or needs encoders that are absent.
    """
    if source is not None and is_hub_checkpoint(source):
        folder = download_checkpoint(str(source))
    else:
        folder = resolve_reward_model(None if source is None else Path(source))
    model, facts, card = load_checkpoint(folder), read_manifest(folder)["facts"], read_card(folder)
    if isinstance(model, ZeroShotModel):
        return ZeroShotRewardModel(model, facts, card)
    if isinstance(model, DemonstrationModel):
        return DemonstrationRewardModel(model, facts, card)
    assert isinstance(model, ProgressNet)
    return ProgressRewardModel(model, facts, card)

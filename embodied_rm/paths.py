"""Where commands find what other commands left: a run folder or the thing inside it, both may be named."""

from __future__ import annotations

from pathlib import Path

from embodied_rm.checkpoint_io import MANIFEST_NAME
from embodied_rm.data.hub import download_dataset, is_hub_path
from embodied_rm.errors import UserError
from embodied_rm.models.judges.judge_config import NO_JUDGE, JudgeConfig

POLICY_DIR, CHECKPOINT_DIR, DATASET_DIR, IMITATION_DIR = "policy", "checkpoint", "dataset", "imitated"
"""Names inside a run folder."""
PACKAGE_DIR = Path(__file__).resolve().parent
PACKAGED_DIR = PACKAGE_DIR / "checkpoints"
CHECKPOINTS_DIR = PACKAGED_DIR if PACKAGED_DIR.is_dir() else PACKAGE_DIR.parent / "assets" / "checkpoints"
"""The bundled reward models: inside the installed package, or at the top of a checkout."""
BUNDLED_CHECKPOINT = CHECKPOINTS_DIR / "tabletop"
"""The reward model that comes with the package."""


def resolve_checkpoint(folder: Path, name: str) -> Path:
    """The checkpoint `folder` itself, or the one called `name` in the run folder `folder`."""
    for candidate in (folder, folder / name):
        if (candidate / MANIFEST_NAME).is_file():
            return candidate
    raise UserError(f"no {name} found in {folder}: neither {MANIFEST_NAME} nor {name}/{MANIFEST_NAME} is there")


def resolve_imitation_data(policy: Path) -> Path:
    """What the policy in `policy` was cloned from. Raises `UserError` when nobody kept it."""
    folder = resolve_checkpoint(policy, POLICY_DIR).parent / IMITATION_DIR
    if not (folder / MANIFEST_NAME).is_file():
        raise UserError(
            f"imitation_coef needs the demonstrations that the policy was cloned from, and there is no {folder}: name "
            "the run folder of a clone, or set imitation_coef=0"
        )
    return folder


def resolve_reward_model(folder: Path | None) -> Path:
    """The reward model in `folder` (see `checkpoint_in`), or the one in the box.

    Raises `UserError` when it is not there, the one in the box with how it is made.
    """
    if folder is not None:
        return resolve_checkpoint(folder, CHECKPOINT_DIR)
    if not (BUNDLED_CHECKPOINT / MANIFEST_NAME).is_file():
        raise UserError(
            f"the model in the box is missing, there is no {BUNDLED_CHECKPOINT / MANIFEST_NAME}: `make checkpoint` makes it in "
            "two hours; or name another with checkpoint=..."
        )
    return BUNDLED_CHECKPOINT


def model_label(folder: Path | None, judge: JudgeConfig = NO_JUDGE) -> str:
    """What reports call the reward model in `folder`, or the judge in its place."""
    if judge.type is not None:
        return f"{judge.type}, {judge.folder or f'{judge.model} at {judge.url}'}"
    return "the model in the box" if folder is None else str(folder)


def resolve_dataset(folder: Path) -> Path:
    """The dataset `folder` itself (or file, of a format that is one), or the one in the run folder `folder`; one of the
    hub (`hub:owner/name`) is fetched."""
    if is_hub_path(folder):
        return download_dataset(folder)
    if not folder.exists():
        raise UserError(f"the dataset folder {folder} does not exist")
    return folder / DATASET_DIR if (folder / DATASET_DIR / "meta").is_dir() else folder

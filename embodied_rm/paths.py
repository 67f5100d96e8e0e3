"""Resolve paths to the outputs of other commands: a run folder, or the checkpoint inside it."""

from functools import cache
from pathlib import Path

from embodied_rm.checkpoint_io import MANIFEST_NAME
from embodied_rm.errors import UserError
from embodied_rm.hub_checkpoint import download_checkpoint, is_hub_checkpoint
from embodied_rm.models.judges.judge_config import NO_JUDGE, JudgeConfig

POLICY_DIR, CHECKPOINT_DIR, IMITATION_DIR = "policy", "checkpoint", "imitated"
"""Names inside a run folder."""
PACKAGE_DIR = Path(__file__).resolve().parent
PACKAGED_DIR = PACKAGE_DIR / "checkpoints"
CHECKPOINTS_DIR = PACKAGED_DIR if PACKAGED_DIR.is_dir() else PACKAGE_DIR.parent / "assets" / "checkpoints"
"""The bundled reward models: inside the installed package, or at the top of a checkout."""
BUNDLED_CHECKPOINT = CHECKPOINTS_DIR / "tabletop"  # the default reward model
BUNDLED_NAMES = ("tabletop", "long", "real")
REAL_CHECKPOINT = CHECKPOINTS_DIR / "real"  # the one for video of real robots


def resolve_checkpoint(folder: Path, name: str) -> Path:
    """Return the checkpoint `folder` itself, or the checkpoint `name` in the run folder `folder`."""
    for candidate in (folder, folder / name):
        if (candidate / MANIFEST_NAME).is_file():
            return candidate
    if not folder.exists():
        raise UserError(f"{folder} does not exist: name a run folder, or a folder with a {name}")
    raise UserError(f"no {name} found in {folder}: neither {MANIFEST_NAME} nor {name}/{MANIFEST_NAME} is there")


def resolve_imitation_data(policy: Path) -> Path:
    """Return the demonstrations from which the policy in `policy` was cloned."""
    folder = resolve_checkpoint(policy, POLICY_DIR).parent / IMITATION_DIR
    if not (folder / MANIFEST_NAME).is_file():
        raise UserError(
            f"imitation_coef needs the demonstrations that the policy was cloned from, and there is no {folder}: name "
            "the run folder of a clone, or set imitation_coef=0"
        )
    return folder


def resolve_reward_model(folder: Path | None) -> Path:
    """Return the reward model in `folder`, see `resolve_checkpoint`; the bundled one if `folder` is None.

    The name of a bundled model, such as `real`, stands for its folder, unless there is a folder of that name. A model
    on the Hugging Face Hub (`hf:owner/name`) is downloaded.
    """
    if folder is not None and is_hub_checkpoint(folder):
        return download_once(str(folder))
    if folder is not None and not folder.exists() and folder in map(Path, BUNDLED_NAMES):
        return resolve_checkpoint(CHECKPOINTS_DIR / folder, CHECKPOINT_DIR)
    if folder is not None:
        return resolve_checkpoint(folder, CHECKPOINT_DIR)
    if not (BUNDLED_CHECKPOINT / MANIFEST_NAME).is_file():
        raise UserError(
            f"the bundled model is missing, there is no {BUNDLED_CHECKPOINT / MANIFEST_NAME}: "
            "`make checkpoint` builds it in two hours; or set checkpoint=... to another one"
        )
    return BUNDLED_CHECKPOINT


@cache
def download_once(source: str) -> Path:
    """As `download_checkpoint`. A command asks several times, and must get one version while a branch moves."""
    return download_checkpoint(source)


def model_label(folder: Path | None, judge: JudgeConfig = NO_JUDGE) -> str:
    """Return the name of the reward model in `folder`, or of the judge that replaces it, for reports."""
    if judge.type is not None:
        return f"{judge.type}, {judge.folder or f'{judge.model} at {judge.url}'}"
    return "the bundled model" if folder is None else str(folder)

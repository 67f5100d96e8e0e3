"""Where commands find what other commands left: a run folder or the thing inside it, both may be named."""

from __future__ import annotations

from pathlib import Path

from embodied_rm.checkpoint_io import MANIFEST
from embodied_rm.data.hub import fetched, on_hub
from embodied_rm.errors import UserError
from embodied_rm.models.judges.config import NOBODY, JudgeConfig
from sim.paths import ASSETS

POLICY, REWARD_MODEL, DATASET, IMITATED = "policy", "checkpoint", "dataset", "imitated"
"""Names inside a run folder."""
IN_THE_BOX = ASSETS / "checkpoints" / "tabletop"
"""The reward model that comes with the package."""


def checkpoint_in(folder: Path, name: str) -> Path:
    """The checkpoint `folder` itself, or the one called `name` in the run folder `folder`."""
    for candidate in (folder, folder / name):
        if (candidate / MANIFEST).is_file():
            return candidate
    raise UserError(f"no {name} found in {folder}: neither {MANIFEST} nor {name}/{MANIFEST} is there")


def imitated_in(policy: Path) -> Path:
    """What the policy in `policy` was cloned from. Raises `UserError` when nobody kept it."""
    folder = checkpoint_in(policy, POLICY).parent / IMITATED
    if not (folder / MANIFEST).is_file():
        raise UserError(
            f"imitation_coef needs the demonstrations that the policy was cloned from, and there is no {folder}: name "
            "the run folder of a clone, or set imitation_coef=0"
        )
    return folder


def reward_model_in(folder: Path | None) -> Path:
    """The reward model in `folder` (see `checkpoint_in`), or the one in the box.

    Raises `UserError` when it is not there, the one in the box with how it is made.
    """
    if folder is not None:
        return checkpoint_in(folder, REWARD_MODEL)
    if not (IN_THE_BOX / MANIFEST).is_file():
        raise UserError(
            f"the model in the box is missing, there is no {IN_THE_BOX / MANIFEST}: `make checkpoint` makes it in "
            "two hours; or name another with checkpoint=..."
        )
    return IN_THE_BOX


def spoken_model(folder: Path | None, judge: JudgeConfig = NOBODY) -> str:
    """What reports call the reward model in `folder`, or the judge in its place."""
    if judge.layout is not None:
        return f"{judge.layout}, {judge.folder or f'{judge.model} at {judge.url}'}"
    return "the model in the box" if folder is None else str(folder)


def dataset_in(folder: Path) -> Path:
    """The dataset `folder` itself (or file, of a format that is one), or the one in the run folder `folder`; one of the
    hub (`hub:owner/name`) is fetched."""
    if on_hub(folder):
        return fetched(folder)
    if not folder.exists():
        raise UserError(f"the dataset folder {folder} does not exist")
    return folder / DATASET if (folder / DATASET / "meta").is_dir() else folder

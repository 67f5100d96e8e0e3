"""Files with other weights than a released model are refused by a message with the expected and the stored names."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from released_layouts import LAYOUTS
from safetensors.torch import load_file, save_file

from embodied_rm.errors import CheckpointError
from embodied_rm.models.judges.factory import open_judge
from embodied_rm.models.judges.judge_config import JudgeConfig

Layout = Callable[[str], dict[str, Path]]


def copy_folders(folders: dict[str, Path], target: Path) -> dict[str, Path]:
    return {key: Path(shutil.copytree(path, target / key)) for key, path in folders.items()}


def rename_weights(folder: Path, rename: Callable[[str], str]) -> None:
    for path in folder.rglob("*.safetensors"):
        save_file({rename(name): tensor for name, tensor in load_file(path).items()}, path, {"format": "pt"})
    for path in [*folder.rglob("*.pth"), *folder.rglob("*.pt")]:
        # torch.load is safe here, because the fixture wrote the file.
        checkpoint = torch.load(path, weights_only=False)
        key = next(key for key in ("model_state_dict", "liv") if key in checkpoint)
        torch.save({**checkpoint, key: {rename(name): weight for name, weight in checkpoint[key].items()}}, path)


@pytest.mark.parametrize(
    ("name", "key"), [*((name, "folder") for name in sorted(LAYOUTS)), ("lrm", "base_model"), ("rewind", "base_model")]
)
def test_a_message_has_other_names_of_weights(name: str, key: str, layout: Layout, tmp_path: Path) -> None:
    folders = copy_folders(layout(name), tmp_path)
    rename_weights(folders[key], lambda weight: f"a_{weight}")
    expected = r"\d+ of \d+ weights are missing, such as \S+ .*its files have \d+, such as a_\S+, a_\S+"
    if name == "lrm" and key == "folder":
        expected = r"a_base_model.model.\S+ is not an adapter weight; those begin with base_model.model."
    if name == "liv":
        expected = r"no weights module.model.\.\.\. under the key 'liv'; its keys are liv, global_step, .* such as a_"
    with pytest.raises(CheckpointError, match=expected):
        open_judge(JudgeConfig(type=name, **folders))  # type: ignore[arg-type]


def test_a_message_has_the_nearest_module_of_an_adapter(layout: Layout, tmp_path: Path) -> None:
    folders = copy_folders(layout("lrm"), tmp_path)
    rename_weights(folders["folder"] / "completion", lambda weight: weight.replace("self_attn", "attn"))
    message = r"completion is not for this model: it has no .*\.attn\.\w+ \(the nearest name is .*self_attn\.\w+\)"
    with pytest.raises(CheckpointError, match=message):
        open_judge(JudgeConfig(type="lrm", **folders))  # type: ignore[arg-type]


def test_a_checkpoint_without_a_model_shows_its_keys(layout: Layout, tmp_path: Path) -> None:
    folders = copy_folders(layout("rewind"), tmp_path)
    (path,) = folders["folder"].glob("*.pth")
    torch.save({"net": {}, "epoch": 1}, path)
    with pytest.raises(CheckpointError, match=r"no model_state_dict in it, only net, epoch"):
        open_judge(JudgeConfig(type="rewind", **folders))  # type: ignore[arg-type]

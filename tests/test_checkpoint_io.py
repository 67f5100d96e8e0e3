"""A checkpoint loads unchanged or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from embodied_rm.checkpoint_io import MANIFEST_NAME, add_prefix, load_into, load_tensors, save_tensors, strip_prefix
from embodied_rm.errors import CheckpointError

TENSORS = {
    "weight": torch.arange(12.0).reshape(3, 4),
    "count": torch.tensor(7),
    "half": torch.ones(2, dtype=torch.bfloat16),
    "flag": torch.tensor([True, False]),
}
SETTINGS = {"architecture": "toy", "rate": 1e-05, "name": "ä ☂", "sizes": [1, 2]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_tensors(tmp_path / "checkpoint", TENSORS, SETTINGS)
    return tmp_path / "checkpoint"


def test_round_trip(folder: Path) -> None:
    tensors, manifest = load_tensors(folder, "toy")
    assert manifest == SETTINGS
    assert tensors.keys() == TENSORS.keys()
    assert all(
        torch.equal(tensors[name], TENSORS[name]) and tensors[name].dtype == TENSORS[name].dtype for name in tensors
    )


def test_flipped_bits_are_rejected(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for path in folder.iterdir():
        original = path.read_bytes()
        for position in rng.choice(8 * len(original), size=min(1000, 8 * len(original)), replace=False):
            flipped = bytearray(original)
            flipped[position // 8] ^= 1 << (position % 8)
            path.write_bytes(flipped)
            with pytest.raises(CheckpointError, match=str(folder)):
                load_tensors(folder, "toy")
        path.write_bytes(original)
    load_tensors(folder, "toy")


def test_truncated_files_are_rejected(folder: Path) -> None:
    for path in folder.iterdir():
        original = path.read_bytes()
        for length in range(0, len(original), 7):
            path.write_bytes(original[:length])
            with pytest.raises(CheckpointError, match=path.name):
                load_tensors(folder, "toy")
        path.write_bytes(original)


@pytest.mark.parametrize("deleted", ["manifest.json", "tensors"])
def test_missing_file_is_named(folder: Path, deleted: str) -> None:
    next(folder.glob(deleted + "*")).unlink()
    with pytest.raises(CheckpointError, match=deleted):
        load_tensors(folder, "toy")


def test_invalid_manifest_is_rejected(folder: Path) -> None:
    for content in ("[]", "{}", "null", "[" * 100_000, json.dumps({"architecture": "toy"})):
        (folder / MANIFEST_NAME).write_text(content)
        with pytest.raises(CheckpointError, match=MANIFEST_NAME):
            load_tensors(folder, "toy")


def test_other_architecture_is_rejected(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'toy'.*'other'"):
        load_tensors(folder, "other")


def test_replaced_folder_keeps_no_old_tensors(folder: Path) -> None:
    (folder / f"tensors-{'0' * 16}.safetensors.partial").write_bytes(b"left by a killed process")
    save_tensors(folder, {"weight": torch.zeros(1)}, {"architecture": "toy"})
    tensors, _ = load_tensors(folder, "toy")
    assert tensors.keys() == {"weight"}
    assert len(list(folder.iterdir())) == 2


def test_interrupted_replacement_leaves_the_old_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import embodied_rm.checkpoint_io as module

    write = module.write_atomic

    def write_except_manifest(path: Path, content: str | bytes) -> None:
        if path.name == MANIFEST_NAME:
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(module, "write_atomic", write_except_manifest)
    with pytest.raises(KeyboardInterrupt):
        save_tensors(folder, {"weight": torch.zeros(1)}, {"architecture": "toy"})
    assert load_tensors(folder, "toy")[0].keys() == TENSORS.keys()


def test_non_finite_weights_are_never_saved(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="'bad'"):
        save_tensors(tmp_path, {"bad": torch.tensor([1.0, float("nan")])}, SETTINGS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("bias"), "lacks tensors: bias"),
        (lambda t: t.update(extra=torch.zeros(1)), "unknown tensors: extra"),
        (lambda t: t.update(bias=torch.zeros(3)), r"'bias' is torch.float32 \[3\].* \[2\]"),
        (lambda t: t.update(bias=torch.zeros(2, dtype=torch.float64)), "'bias' is torch.float64"),
    ],
)
def test_tensors_must_match_the_module(change, message: str) -> None:
    module = torch.nn.Linear(3, 2)
    tensors = dict(torch.nn.Linear(3, 2).state_dict())
    load_into(module, tensors, "source")
    assert all(torch.equal(value, tensors[name]) for name, value in module.state_dict().items())
    change(tensors)
    with pytest.raises(CheckpointError, match=f"source.*{message}"):
        load_into(module, tensors, "source")


def test_prefixes_separate_modules() -> None:
    both = {**add_prefix("a", {"w": torch.zeros(1)}), **add_prefix("ab", {"w": torch.ones(1)})}
    assert strip_prefix("a", both) == {"w": torch.zeros(1)}
    assert strip_prefix("ab", both) == {"w": torch.ones(1)}

"""What the benchmark of interruptions reads: half files, and what two equal runs have in common."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from run_files import half_files, result_values
from safetensors.torch import save_file


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    save_file({"weights": torch.arange(400.0)}, tmp_path / "tensors.safetensors")
    (tmp_path / "metrics.json").write_text(json.dumps({"success": 0.5, "rows": [{"seconds": 1.0}]}))
    (tmp_path / "report.html").write_text("<html><body></body></html>\n")
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (32, 32, 3), np.uint8)).save(tmp_path / "plot.png")
    return tmp_path


def test_whole_files_are_whole(run_folder: Path) -> None:
    assert half_files(run_folder) == []


@pytest.mark.parametrize("name", ["tensors.safetensors", "metrics.json", "report.html", "plot.png"])
def test_a_cut_file_is_a_half_file_unless_its_name_says_so(name: str, run_folder: Path) -> None:
    path = run_folder / name
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert [text.partition(":")[0] for text in half_files(run_folder)] == [name]
    path.rename(path.with_name(f"{name}.partial"))
    assert half_files(run_folder) == []


def test_values_of_json_are_compared_one_by_one(run_folder: Path) -> None:
    before = result_values(run_folder)
    (run_folder / "metrics.json").write_text(json.dumps({"success": 0.5, "rows": [{"seconds": 2.0}]}))
    after = result_values(run_folder)
    assert [name for name in before if after[name] != before[name]] == ["metrics.json/0/rows/0/seconds"]

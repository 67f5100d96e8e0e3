"""What a model says of images that are always the same is in its manifest, and another answer is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sprites import episodes

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.errors import CheckpointError
from embodied_rm.models.checkpoint import load_progress_net, model_digest, save_progress_net
from embodied_rm.models.self_test import MANIFEST_KEY, matches_expected, read_expected, run_self_test, self_test_values
from embodied_rm.paths import BUNDLED_CHECKPOINT
from embodied_rm.train import TrainConfig, make_net


def test_it_is_written_with_the_model_and_passed_by_it_and_by_no_other(tmp_path: Path) -> None:
    net = make_net(episodes(2), TrainConfig(image_size=(32, 32))).eval()
    save_progress_net(tmp_path, net, {})
    expected = read_expected(read_manifest(tmp_path))
    loaded = load_progress_net(tmp_path)
    assert expected is not None and matches_expected(run_self_test(loaded, loaded.input_spec).progress, expected)
    with torch.no_grad():
        for parameter in loaded.heads.parameters():
            parameter.add_(0.5)
    assert not matches_expected(run_self_test(loaded, loaded.input_spec).progress, expected)


def test_the_models_in_the_box_pass_it() -> None:
    for folder in (BUNDLED_CHECKPOINT, BUNDLED_CHECKPOINT.parent / "long"):
        net, expected = load_progress_net(folder), read_expected(read_manifest(folder))
        assert expected is not None and matches_expected(run_self_test(net, net.input_spec).progress, expected)


def test_it_is_no_part_of_what_a_model_is_known_by(tmp_path: Path) -> None:
    net = make_net(episodes(2), TrainConfig(image_size=(32, 32))).eval()
    save_progress_net(tmp_path / "one", net, {})
    digest = model_digest(tmp_path / "one")
    manifest = json.loads((tmp_path / "one" / "manifest.json").read_text())
    assert MANIFEST_KEY in manifest and len(digest) == 64
    save_progress_net(tmp_path / "two", net, {"other": "facts"})
    assert model_digest(tmp_path / "two") == digest


def test_a_model_that_says_nothing_without_a_goal_has_none_and_what_is_none_is_refused() -> None:
    net = make_net(episodes(2), TrainConfig(image_size=(32, 32))).eval().with_fusion("backward")
    assert (
        self_test_values(net, net.input_spec) is None
        and read_expected({MANIFEST_KEY: None}) is None
        and read_expected({}) is None
    )
    for wrong in ("text", [[1.0]], {"a": 1}):
        with pytest.raises(CheckpointError, match="must hold 3 frames"):
            read_expected({MANIFEST_KEY: wrong})
    assert not matches_expected(np.full((3, 2), np.nan, np.float32), None)

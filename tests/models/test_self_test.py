"""What a model says of pictures that are always the same is in its manifest, and another answer is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sprites import episodes

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.cli.places import IN_THE_BOX
from embodied_rm.errors import CheckpointError
from embodied_rm.models.checkpoint import judging_digest, load_progress_net, save_progress_net
from embodied_rm.models.self_test import STORED, examined, expected_of, passed, written
from embodied_rm.train import TrainConfig, new_net


def test_it_is_written_with_the_model_and_passed_by_it_and_by_no_other(tmp_path: Path) -> None:
    net = new_net(episodes(2), TrainConfig(image_size=(32, 32))).eval()
    save_progress_net(tmp_path, net, {})
    expected = expected_of(read_manifest(tmp_path))
    loaded = load_progress_net(tmp_path)
    assert expected is not None and passed(examined(loaded, loaded.sight).said, expected)
    with torch.no_grad():
        for parameter in loaded.heads.parameters():
            parameter.add_(0.5)
    assert not passed(examined(loaded, loaded.sight).said, expected)


def test_the_models_in_the_box_pass_it() -> None:
    for folder in (IN_THE_BOX, IN_THE_BOX.parent / "long"):
        net, expected = load_progress_net(folder), expected_of(read_manifest(folder))
        assert expected is not None and passed(examined(net, net.sight).said, expected)


def test_it_is_no_part_of_what_a_model_is_known_by(tmp_path: Path) -> None:
    net = new_net(episodes(2), TrainConfig(image_size=(32, 32))).eval()
    save_progress_net(tmp_path / "one", net, {})
    digest = judging_digest(tmp_path / "one")
    manifest = json.loads((tmp_path / "one" / "manifest.json").read_text())
    assert STORED in manifest and len(digest) == 64
    save_progress_net(tmp_path / "two", net, {"other": "facts"})
    assert judging_digest(tmp_path / "two") == digest


def test_a_model_that_says_nothing_without_a_goal_has_none_and_what_is_none_is_refused() -> None:
    net = new_net(episodes(2), TrainConfig(image_size=(32, 32))).eval().fused_by("backward")
    assert written(net, net.sight) is None and expected_of({STORED: None}) is None and expected_of({}) is None
    for wrong in ("text", [[1.0]], {"a": 1}):
        with pytest.raises(CheckpointError, match="is no judgement of 3 frames"):
            expected_of({STORED: wrong})
    assert not passed(np.full((3, 2), np.nan, np.float32), None)

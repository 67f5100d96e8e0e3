"""The self-test: predictions on fixed images are stored in the manifest, and other predictions are detected."""

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
from embodied_rm.models.self_test import (
    MANIFEST_KEY,
    NUM_EPISODES,
    NUM_FRAMES,
    OUTPUT_NAMES,
    matches_expected,
    read_expected,
    run_self_test,
    self_test_values,
)
from embodied_rm.paths import BUNDLED_CHECKPOINT
from embodied_rm.training import TrainConfig, make_net


def test_self_test_is_stored_and_detects_other_weights(tmp_path: Path) -> None:
    net = make_net(episodes(2), TrainConfig(image_size=(32, 32))).eval()
    save_progress_net(tmp_path, net, {})
    expected = read_expected(read_manifest(tmp_path))
    loaded = load_progress_net(tmp_path)
    assert expected is not None and matches_expected(run_self_test(loaded, loaded.input_spec).outputs, expected)
    with torch.no_grad():
        loaded.heads._completion.mlp[-1].bias.add_(2.0)
    outputs = run_self_test(loaded, loaded.input_spec).outputs
    assert not matches_expected(outputs, expected)
    assert matches_expected(outputs, {name: expected[name] for name in expected if name != "success"})
    with torch.no_grad():
        for parameter in loaded.heads.parameters():
            parameter.add_(0.5)
    assert not matches_expected(run_self_test(loaded, loaded.input_spec).outputs, expected)


def test_bundled_checkpoints_pass() -> None:
    for folder in (BUNDLED_CHECKPOINT, BUNDLED_CHECKPOINT.parent / "long"):
        net, expected = load_progress_net(folder), read_expected(read_manifest(folder))
        assert expected is not None and set(expected) == set(OUTPUT_NAMES)
        assert matches_expected(run_self_test(net, net.input_spec).outputs, expected)


def test_self_test_is_not_part_of_the_digest(tmp_path: Path) -> None:
    net = make_net(episodes(2), TrainConfig(image_size=(32, 32))).eval()
    save_progress_net(tmp_path / "one", net, {})
    digest = model_digest(tmp_path / "one")
    manifest = json.loads((tmp_path / "one" / "manifest.json").read_text())
    assert MANIFEST_KEY in manifest and len(digest) == 64
    save_progress_net(tmp_path / "two", net, {"other": "facts"})
    assert model_digest(tmp_path / "two") == digest


def test_model_that_needs_a_goal_has_no_self_test_and_invalid_entries_raise() -> None:
    net = make_net(episodes(2), TrainConfig(image_size=(32, 32))).eval().with_fusion("backward")
    assert (
        self_test_values(net, net.input_spec) is None
        and read_expected({MANIFEST_KEY: None}) is None
        and read_expected({}) is None
    )
    values = [[0.5] * NUM_EPISODES] * NUM_FRAMES
    for invalid in (
        "text",
        [[1.0]],
        {"a": 1},
        {"success": values},
        {"progress": values, "other": values},
        {"progress": 1},
    ):
        with pytest.raises(CheckpointError, match="must hold 3 frames"):
            read_expected({MANIFEST_KEY: invalid})
    earlier = read_expected({MANIFEST_KEY: values})
    assert earlier is not None and set(earlier) == {"progress"}
    not_finite = {"progress": np.full((NUM_FRAMES, NUM_EPISODES), np.nan)}
    assert not matches_expected(not_finite, None) and not matches_expected(not_finite, not_finite)

"""An exported net: the same predictions for any views, batch and goals, and errors for unsupported uses."""

from __future__ import annotations

import builtins
from dataclasses import replace

import numpy as np
import pytest
import torch
from objectives import objective

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.labels.labeled_episode import label
from embodied_rm.labels.schemes import select_schemes
from embodied_rm.models import onnx_net
from embodied_rm.models.checkpoint import export_progress_net, load_progress_net, save_progress_net
from embodied_rm.models.cuda_net import CudaNet
from embodied_rm.models.encoders import Encoder, small_encoder_config
from embodied_rm.models.numerical_parity import max_differences
from embodied_rm.models.onnx_export import export_graphs, fold_normalization
from embodied_rm.models.onnx_net import OnnxNet
from embodied_rm.models.ood import EmbeddingDistribution
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.reward_model import RewardModel
from embodied_rm.training.adaptation import AdaptConfig, adapt
from embodied_rm.training.augment import AugmentConfig
from embodied_rm.training.batches import LabeledBatchSampler
from embodied_rm.training.forward import augment_batch, training_forward
from embodied_rm.training.train_state import TrainState
from embodied_rm.types import Episode, Subtask, Views

NAMES = ("front", "side", "wrist")
SENTENCES = ("lift the red cube", "open the drawer", "lift the blue cube", "put the cube away")
SIZE, TOLERANCE = 32, 1e-4


def make_net(tower: str = "patch_tower_tiny") -> ProgressNet:
    torch.manual_seed(2)
    net = ProgressNet(NetConfig(views=NAMES, encoder=small_encoder_config(tower, (SIZE, SIZE)), max_subtasks=4))
    with torch.no_grad():
        # Random weights predict hops near 0; larger weights make differences visible.
        for parameter in net.heads.parameters():
            parameter.mul_(3.0)
    states = torch.randn(2, 400, net.config.width)
    return net.eval().with_calibration(EmbeddingDistribution.fit(*states), 0.8, 2.0)


NET = make_net()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("exported")
    export_progress_net(path, NET, {"episodes": 7})
    return path


@pytest.fixture(scope="module")
def exported(folder) -> OnnxNet:
    net = load_progress_net(folder)
    assert isinstance(net, OnnxNet) and isinstance(net, RewardModel)
    assert net.config == NET.config and not list(net.parameters())
    return net


def make_clip(n: int, *, names=NAMES, seed: int = 0, size: int = SIZE) -> list[Views]:
    frames = np.random.default_rng(seed).integers(0, 256, (4, n, len(names), size, size, 3), np.uint8)
    return [Views(names=names, frames=timestep) for timestep in frames]


def play(net: ProgressNet, video, sentences, goal=None):
    state, outputs = net.reset(video[0], list(sentences), goal), []
    for views in video[1:]:
        output, state = net.step(state, views)
        outputs.append(output)
    return outputs


def assert_close(exported: OnnxNet, video, goal=None) -> None:
    sentences = [SENTENCES[i % 4] for i in range(len(video[0]))]
    for one, other in zip(*(play(net, video, sentences, goal) for net in (NET, exported)), strict=True):
        for name in ("progress", "success", "uncertainty", "ood"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=TOLERANCE, err_msg=name)
        for name in ("valid", "subtask"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("with_goal", [False, True])
@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("names", [NAMES, ("wrist",), ("wrist", "front")])
def test_predictions_match_for_any_views_batch_and_goals(exported, names, n, with_goal):
    assert_close(exported, make_clip(n, names=names), make_clip(n, names=names, seed=9)[0] if with_goal else None)


@pytest.mark.parametrize("seed", range(4))
def test_intermittent_views(exported, seed):
    present = np.random.default_rng(seed).random((4, 6, 3)) < 0.4
    present[2, 3:] = False
    present[0, 0] = False
    video = [replace(views, present=mask) for views, mask in zip(make_clip(6, seed=seed), present, strict=True)]
    assert_close(exported, video)


def test_batches_larger_than_one_chunk(exported, monkeypatch):
    monkeypatch.setattr(onnx_net, "MAX_ROWS_PER_CALL", 3)
    visible = np.ones((8, 3), bool)
    visible[3:6] = False  # one complete chunk has no image
    video = make_clip(8)
    assert_close(exported, [video[0], replace(video[1], present=visible), *video[2:]])


def test_tensor_and_array_frames_are_identical(exported):
    video = make_clip(4)
    tensors = [Views(names=NAMES, frames=torch.from_numpy(views.frames)) for views in video]
    for one, other in zip(play(exported, video, SENTENCES), play(exported, tensors, SENTENCES), strict=True):
        np.testing.assert_array_equal(one.progress, other.progress)


def train_briefly(net: ProgressNet) -> ProgressNet:
    """The net after a few optimizer steps on random episodes, with weights that no initialization gives."""
    rng = np.random.default_rng(0)
    episodes = [
        Episode(
            name=f"episode_{i}",
            views={name: rng.integers(0, 256, (6, SIZE, SIZE, 3), np.uint8) for name in NAMES},
            instruction=SENTENCES[i % 4],
            fps=10,
            subtasks=(Subtask(name="reach", start=0, end=3), Subtask(name="lift", start=3, end=6)),
            success=True,
            progress=np.linspace(0, 1, 6, dtype=np.float32),
        )
        for i in range(4)
    ]
    batches, train_state = LabeledBatchSampler(label(episodes), NAMES), TrainState(net, weight_decay=0.05)
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    for _ in range(5):
        batch = batches.sample(3, 4, rng)
        outputs = training_forward(net, batch, augment_batch(net.encoder, batch, AugmentConfig(), generator))
        train_state.update([objective(outputs, batch, select_schemes(("hops",)), rng)], 1e-2)
    return net.eval()


@pytest.mark.parametrize("tower", ["patch_tower_tiny", "stride_tower_tiny"])
def test_trained_net_with_either_tower(tower):
    net = train_briefly(make_net(tower))
    reloaded = OnnxNet(net.config, export_graphs(net))
    assert max(max_differences(net, reloaded).values()) <= TOLERANCE
    assert max(max_differences(net, NET).values()) > 100 * TOLERANCE, "the comparison detects nothing"


def test_normalization_is_folded_into_layers_without_padding():
    assert fold_normalization(make_net().encoder)
    assert not fold_normalization(make_net("stride_tower_tiny").encoder)
    assert not fold_normalization(Encoder(small_encoder_config("mobilenetv3_small_050", (SIZE, SIZE), 1)))


def test_other_image_sizes_and_devices_raise(exported):
    with pytest.raises(UserError, match=r"\[32, 32\].*got \[64, 64\].*use its source checkpoint"):
        exported.reset(make_clip(2, size=64)[0], SENTENCES[:2])
    with pytest.raises(UserError, match=r"not on cuda.*use its source checkpoint"):
        exported.to("cuda")
    assert exported.to(torch.device("cpu")) is exported


def test_exported_net_can_be_neither_trained_nor_exported(exported, tmp_path):
    episode = Episode(name="one", views={"front": np.zeros((2, 8, 8, 3), np.uint8)}, instruction="lift", fps=10)
    with pytest.raises(UserError, match="start from the checkpoint"):
        adapt([episode], AdaptConfig(), None, None, exported)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="is exported already"):
        export_progress_net(tmp_path, exported, {})
    with pytest.raises(UserError, match="an exported model has no weights to save"):
        save_progress_net(tmp_path, exported, {})


def test_flipped_bit_raises(folder):
    for path in folder.iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=path.name):
            load_progress_net(folder)
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
    load_progress_net(folder)


@pytest.mark.parametrize("package", ["onnxruntime", "onnxscript"])
def test_missing_package_raises_and_names_the_extra(folder, monkeypatch, package):
    original_import = builtins.__import__

    def without(name, *rest):
        if name == package:
            raise ModuleNotFoundError(name)
        return original_import(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=rf"needs .*{package}.*embodied-rm\[onnx\]"):
        load_progress_net(folder) if package == "onnxruntime" else export_graphs(NET)


def test_cuda_net_matches_within_bf16():
    """Runs on the CPU without the compiler: the compiled function and its precision are the same."""
    differences = max_differences(NET, CudaNet(NET, backend="eager"), num_envs=2, num_steps=2)
    assert 0 < max(differences.values()) < 0.05

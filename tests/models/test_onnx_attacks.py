"""An exported model whose graphs are not as exported is refused in one sentence, and reads no file but its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from embodied_rm.checkpoint_io import load_files, save_files
from embodied_rm.errors import CheckpointError
from embodied_rm.models.checkpoint import ONNX_ARCHITECTURE, export_progress_net, load_progress_net
from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.onnx_export import GRAPH_OUTPUTS
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.self_test import run_self_test

FLOAT, WIDTH = onnx.TensorProto.FLOAT, 8
EXTERNAL_FILE = "weights.bin"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    encoder = small_encoder_config("patch_tower_tiny", (32, 32))
    net = ProgressNet(
        NetConfig(views=("front", "side", "wrist"), encoder=encoder, width=WIDTH, num_layers=1, max_subtasks=2)
    )
    folder = tmp_path_factory.mktemp("exported")
    export_progress_net(folder, net.eval(), {})
    return folder


def graph(nodes: list[onnx.NodeProto], inputs: dict[str, list], output_type: int = FLOAT, weights=(), output="logit"):
    """A serialized graph with float inputs of these shapes."""
    infos = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()]
    outputs = [helper.make_tensor_value_info(output, output_type, None)]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("evil", 1)]
    model = helper.make_model(helper.make_graph(nodes, "graph", infos, outputs, weights), opset_imports=opsets)
    model.ir_version = 8
    return model.SerializeToString()


def success(*nodes: onnx.NodeProto, weights=(), output_type: int = FLOAT) -> bytes:
    """A graph with the inputs and the output of "success"."""
    return graph(list(nodes), {"first": ["n", WIDTH], "current": ["n", WIDTH]}, output_type, weights)


def external(location: str) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name="w", data_type=FLOAT, dims=[WIDTH, 1], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def matmul(location: str) -> bytes:
    """A graph with a file of its own, in the place of an array that it holds."""
    nodes = helper.make_node("MatMul", ["first", "w"], ["y"]), helper.make_node("Squeeze", ["y", "axes"], ["logit"])
    axes = helper.make_tensor("axes", onnx.TensorProto.INT64, [1], [1])
    return success(*nodes, weights=[external(location), axes])


def replace_graphs(source: Path, target: Path, graphs: dict[str, bytes]) -> Path:
    """Write a copy of the exported model with other graphs, and valid digests."""
    names = [f"{name}.onnx" for name in GRAPH_OUTPUTS]
    files, manifest = load_files(source, ONNX_ARCHITECTURE, names)
    save_files(target, files | {f"{name}.onnx": content for name, content in graphs.items()}, manifest)
    return target


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        success(helper.make_node("Run", ["first"], ["logit"], domain="evil")),
        success(helper.make_node("Identity", ["none"], ["logit"])),
        success(helper.make_node("ReduceSum", ["first"], ["logit"]), output_type=onnx.TensorProto.DOUBLE),
        success(helper.make_node("Shape", ["first"], ["logit"]), output_type=onnx.TensorProto.INT64),
        success(helper.make_node("SequenceConstruct", ["first"], ["logit"]), output_type=FLOAT),
        graph([helper.make_node("Identity", ["first"], ["other"])], {"first": ["n"]}, output="other"),
    ],
    ids=["empty", "garbage", "custom operator", "no input", "wrong type", "integers", "sequence", "other output"],
)
def test_invalid_graph_is_refused_in_one_sentence(exported: Path, tmp_path: Path, content: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"^success\.onnx: ") as error_info:
        load_progress_net(replace_graphs(exported, tmp_path, {"success": content}))
    assert "\n" not in str(error_info.value)


@pytest.mark.parametrize("where", ["here", "below", "above", "absolute", "memory"])
def test_no_graph_reads_a_file_that_no_digest_covers(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Weights in another file are read neither from the working directory nor from elsewhere."""
    folder = tmp_path / "checkpoint"
    (folder / "below").mkdir(parents=True)
    for place in (folder, folder / "below", tmp_path):
        (place / EXTERNAL_FILE).write_bytes(np.ones(WIDTH, np.float32).tobytes())
    monkeypatch.chdir(folder)
    locations = {
        "here": EXTERNAL_FILE,
        "below": f"below/{EXTERNAL_FILE}",
        "above": f"../{EXTERNAL_FILE}",
        "absolute": str(tmp_path / EXTERNAL_FILE),
        "memory": "*/_ORT_MEM_ADDR_/*",
    }
    with pytest.raises(CheckpointError, match=r"^success\.onnx: rejected by ONNX Runtime"):
        load_progress_net(replace_graphs(exported, folder, {"success": matmul(locations[where])}))


def reshape_to(*shape: int) -> bytes:
    """A graph that fails for an input of another number of values."""
    sizes = helper.make_tensor("sizes", onnx.TensorProto.INT64, [len(shape)], shape)
    return success(helper.make_node("Reshape", ["first", "sizes"], ["logit"]), weights=[sizes])


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("success", reshape_to(7), "cannot be run"),
        ("success", reshape_to(-1), r"computes arrays of shapes"),
        ("success", graph([helper.make_node("Identity", ["first"], ["logit"])], {"first": ["n", WIDTH]}), "cannot be"),
        (
            "text",
            graph([helper.make_node("Identity", ["ids"], ["instruction"])], {"ids": ["n", 3]}, output="instruction"),
            "cannot be run",
        ),
    ],
    ids=["failing operation", "wrong shape", "missing input", "input of another type"],
)
def test_graph_that_fails_when_it_runs_is_named(
    exported: Path, tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    net = load_progress_net(replace_graphs(exported, tmp_path, {name: content}))
    with pytest.raises(CheckpointError, match=rf"^{name}\.onnx: {reason}") as error_info:
        run_self_test(net, net.input_spec)
    assert "\n" not in str(error_info.value)

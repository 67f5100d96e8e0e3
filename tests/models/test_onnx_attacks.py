"""An exported model whose graphs are not as exported is refused in one sentence, and reads no file but its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from threading import Timer

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from embodied_rm.checkpoint_io import load_files, save_files
from embodied_rm.errors import CheckpointError
from embodied_rm.models import onnx_runs
from embodied_rm.models.checkpoint import ONNX_ARCHITECTURE, export_progress_net, load_progress_net
from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.onnx_export import GRAPH_OUTPUTS
from embodied_rm.models.onnx_net import load_graph
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


def loop() -> bytes:
    """A graph that counts for ever."""
    infos = [helper.make_tensor_value_info(n, onnx.TensorProto.INT64, []) for n in ("i",)]
    condition = [helper.make_tensor_value_info(n, onnx.TensorProto.BOOL, []) for n in ("c", "d")]
    carried = [helper.make_tensor_value_info(n, FLOAT, None) for n in ("a", "b")]
    nodes = [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Add", ["a", "a"], ["b"])]
    body = helper.make_graph(nodes, "body", [*infos, condition[0], carried[0]], [condition[1], carried[1]])
    true = helper.make_tensor("true", onnx.TensorProto.BOOL, [], [True])
    return success(helper.make_node("Loop", ["", "true", "first"], ["logit"], body=body), weights=[true])


def sparse(where: str) -> bytes:
    """A graph with an array of 4 TB that is written in 12 bytes."""
    values = helper.make_tensor("w", FLOAT, [1], [1.0])
    tensor = helper.make_sparse_tensor(values, helper.make_tensor("i", onnx.TensorProto.INT64, [1], [5]), [10**12])
    node = helper.make_node("ReduceSum", ["w"], ["logit"], keepdims=0)
    if where == "node":
        return success(helper.make_node("Constant", [], ["w"], sparse_value=tensor), node)
    model = onnx.load_model_from_string(success(node))
    model.graph.sparse_initializer.append(tensor)
    return model.SerializeToString()


def function() -> bytes:
    """A graph that calls a function of its own."""
    model = onnx.load_model_from_string(success(helper.make_node("Add", ["first", "first"], ["logit"])))
    nodes, opsets = [helper.make_node("Identity", ["x"], ["y"])], [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("", "Add", ["x", "z"], ["y"], nodes, opsets))
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (loop(), "operators that no export has .*Loop"),
        (success(helper.make_node("RandomNormal", [], ["logit"], shape=[10**12])), "RandomNormal"),
        (success(helper.make_node("Add", ["first", "first"], ["logit"], domain="com.microsoft")), "com.microsoft.Add"),
        (sparse("node"), "sparse"),
        (sparse("weights"), "sparse"),
        (function(), "functions"),
    ],
    ids=["loop", "random", "other domain", "sparse constant", "sparse weights", "function"],
)
def test_only_operators_of_exports_are_loaded(exported: Path, tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(CheckpointError, match=rf"^success\.onnx: .*{reason}") as error_info:
        load_progress_net(replace_graphs(exported, tmp_path, {"success": content}))
    assert "\n" not in str(error_info.value)


def huge(operator: str) -> bytes:
    """A graph with an array of 4 TB, which is known when it is loaded or when it runs."""
    sizes = helper.make_tensor("sizes", onnx.TensorProto.INT64, [1], [10**12])
    scalars = [helper.make_tensor(name, FLOAT, [], [value]) for name, value in (("a", 0), ("b", 1e12), ("c", 1))]
    inputs = {"ConstantOfShape": ["sizes"], "Expand": ["one", "sizes"], "Tile": ["one", "sizes"]}
    nodes = [
        helper.make_node("ReduceSum", ["first"], ["sum"], keepdims=0),
        helper.make_node("Reshape", ["sum", "unit"], ["one"]),
        helper.make_node(operator, inputs.get(operator, ["a", "b", "c"]), ["many"]),
        helper.make_node("ReduceSum", ["many"], ["logit"]),
    ]
    return success(*nodes, weights=[sizes, helper.make_tensor("unit", onnx.TensorProto.INT64, [1], [1]), *scalars])


@pytest.mark.parametrize("operator", ["ConstantOfShape", "Expand", "Tile", "Range"])
def test_memory_of_graphs_is_limited(exported: Path, tmp_path: Path, operator: str) -> None:
    with pytest.raises(CheckpointError, match=r"^success\.onnx: (cannot be run|rejected)") as error_info:
        net = load_progress_net(replace_graphs(exported, tmp_path, {"success": huge(operator)}))
        run_self_test(net, net.input_spec)
    assert "\n" not in str(error_info.value)
    assert run_self_test(load_progress_net(exported), net.input_spec).outputs, "the next model has its memory"


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


def endless(num_products: int = 300, size: int = 1500) -> bytes:
    """A graph that multiplies a constant matrix again and again, in a few kilobytes."""
    fill = helper.make_tensor("fill", FLOAT, [1], [1e-4])
    nodes = [helper.make_node("ConstantOfShape", ["shape"], ["m0"], value=fill)]
    nodes += [helper.make_node("MatMul", [f"m{i}", f"m{i}"], [f"m{i + 1}"]) for i in range(num_products)]
    nodes.append(helper.make_node("ReduceSum", [f"m{num_products}"], ["logit"]))
    shape = helper.make_tensor("shape", onnx.TensorProto.INT64, [2], [size, size])
    return success(*nodes, weights=[shape])


def test_a_graph_that_computes_for_hours_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_runs, "MAX_RUN_S", 0.5)
    run = load_graph(endless(), "success", ["logit"])  # loading computes nothing
    with pytest.raises(CheckpointError, match=r"a graph ran longer than 0\.5 s and was ended"):
        run(torch.ones(2, WIDTH), torch.ones(2, WIDTH))
    assert wait_until(lambda: not onnx_runs._active_options)


def test_ctrl_c_ends_a_graph() -> None:
    run = load_graph(endless(), "success", ["logit"])
    Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        run(torch.ones(2, WIDTH), torch.ones(2, WIDTH))
    assert wait_until(lambda: not onnx_runs._active_options)


def wait_until(condition: Callable[[], bool]) -> bool:
    """Wait for a condition, which one more product may delay; return whether it came true."""
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()

"""`OnnxNet`: an exported `ProgressNet` that runs in ONNX Runtime on the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.free_memory import free_memory_bytes
from embodied_rm.models.encoders import token_ids
from embodied_rm.models.heads import HeadOutputs
from embodied_rm.models.image_batch import ImageBatch
from embodied_rm.models.onnx_export import GRAPH_OUTPUTS
from embodied_rm.models.onnx_graph_check import check_graph
from embodied_rm.models.onnx_runs import THREAD_PREFIX, map_in_threads, run_session
from embodied_rm.models.progress_net import NetConfig, ProgressNet

MAX_ROWS_PER_CALL = 64
"""Largest batch of one call: smaller batches add call overhead, larger ones exceed the CPU caches."""
EXTERNAL_DATA_FOLDER_KEY = "session.model_external_initializers_file_folder_path"
"""Option of ONNX Runtime: the folder of weights that a graph does not hold. Without it, the working directory."""
CONSTANT_FOLDING = "ConstantFolding"
"""Optimization of ONNX Runtime that computes constants while it loads a graph, which nothing can end. Exports have none
left to compute."""
SHARED_MEMORY_KEY = "session.use_env_allocators"  # option of ONNX Runtime: graphs share the memory of `limit_memory`
MIN_GRAPH_BYTES, MAX_GRAPH_SHARE = 2 << 30, 0.5
"""Memory that the arrays of all graphs of a process may always take, and the share of the free memory that they may
take: an operator can make an array of any size from three numbers."""
OUTPUT_TYPE = "tensor(float)"

Tensors = tuple[Tensor, ...]
GraphFn = Callable[..., Tensors]  # a graph as a function of tensors
MapChunks = Callable[[Callable[[slice], Tensors], int], list[Tensors]]


class OnnxNet(ProgressNet):
    """A `ProgressNet` without parameters, whose outputs differ by at most 1e-4. It can be neither trained nor moved.

    Chunks of a batch run in parallel, each on one thread, without synchronization between operations.
    """

    def __init__(self, config: NetConfig, graphs: Mapping[str, bytes]) -> None:
        """Load the graphs of `onnx_export.GRAPH_OUTPUTS`, by name.

        `UserError` if ONNX Runtime is missing, `CheckpointError` if it rejects a graph.
        """
        nn.Module.__init__(self)
        self.config = config
        self._graphs = {name: load_graph(content, name, GRAPH_OUTPUTS[name]) for name, content in graphs.items()}
        self._executor = ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix=THREAD_PREFIX)
        heads = OnnxHeads(self._graphs["heads"], self._graphs["success"], self._map_chunks, config.max_subtasks)
        self.heads = heads  # type: ignore[assignment]
        self.eval()

    def to(self, device: Any) -> OnnxNet:  # type: ignore[override]
        """Return the net itself; `UserError` for any device but the CPU."""
        if torch.device(device).type != "cpu":
            raise UserError(f"an exported model runs on the CPU, not on {device}: use its source checkpoint")
        return self

    def _embed_text(self, sentences: Sequence[str]) -> Tensor:
        shape = (len(sentences), self.config.width)
        return check_shapes("text", self._graphs["text"](token_ids(self.config.encoder, sentences)), shape)[0]

    def _embed_images(self, images: ImageBatch, instruction: Tensor, masked_views: Tensor) -> Tensor:
        height, width = images.frames.shape[2:4]
        if (height, width) != tuple(self.config.encoder.image_size):
            raise UserError(
                f"an exported model takes images of {list(self.config.encoder.image_size)} (height, width), "
                f"got {[height, width]}: resize them, or use its source checkpoint"
            )

        def embed_chunk(rows: slice) -> Tensors:
            chunk = images.select(rows)
            if not len(chunk):  # no row has an image: these embeddings are never read
                return (instruction.new_zeros(len(masked_views), *instruction[rows].shape),)
            inputs = (chunk.pixels().cpu(), *chunk.indices(instruction.device), instruction[rows], masked_views)
            shape = (len(masked_views), *instruction[rows].shape)
            return check_shapes("embedding", self._graphs["embedding"](*inputs), shape)

        return torch.cat([embedding for (embedding,) in self._map_chunks(embed_chunk, len(instruction))], dim=1)

    def _map_chunks(self, fn: Callable[[slice], Tensors], num_rows: int) -> list[Tensors]:
        """Apply `fn` to chunks of the rows, in parallel."""
        chunk_size = max(1, min(MAX_ROWS_PER_CALL, -(-num_rows // torch.get_num_threads())))
        starts = range(0, max(num_rows, 1), chunk_size)
        return map_in_threads(self._executor, fn, (slice(i, min(i + chunk_size, num_rows)) for i in starts))


class OnnxHeads:
    """The heads of an exported net, with the interface of `heads.Heads`."""

    def __init__(self, graph: GraphFn, success_graph: GraphFn, map_chunks: MapChunks, max_subtasks: int) -> None:
        self._graph, self._success_graph, self._map_chunks = graph, success_graph, map_chunks
        self._max_subtasks = max_subtasks

    def __call__(self, anchors: Tensor, current: Tensor) -> HeadOutputs:
        """As `Heads.forward`: anchors [A, N, width] and embeddings [N, width]."""

        def predict_chunk(rows: slice) -> Tensors:
            shape = (len(current[rows]),)
            shapes = (len(anchors), *shape), shape, shape, (*shape, self._max_subtasks), shape
            return check_shapes("heads", self._graph(anchors[:, rows], current[rows]), *shapes)

        hops, *others = zip(*self._map_chunks(predict_chunk, len(current)), strict=True)
        return HeadOutputs(torch.cat(hops, dim=1), *map(torch.cat, others))

    def success_logit(self, first: Tensor, current: Tensor) -> Tensor:
        """As `Heads.success_logit`: embeddings [..., width]."""
        rows = current.flatten(0, -2)
        (logit,) = check_shapes("success", self._success_graph(first.flatten(0, -2), rows), (len(rows),))
        return logit.view(current.shape[:-1])


def load_graph(content: bytes, name: str, outputs: Sequence[str]) -> GraphFn:
    """Load a serialized graph as a function of CPU tensors on the calling thread.

    `CheckpointError` if `check_graph` or ONNX Runtime rejects it, if it has other outputs, and if it fails when it is
    run, also for want of memory.
    """
    try:
        import onnxruntime as ort  # optional
    except ModuleNotFoundError as error:
        raise UserError("an exported model needs onnxruntime: pip install 'embodied-rm[onnx]'") from error
    check_graph(content, name)
    limit_memory()
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised, not printed as well
    options.add_session_config_entry(EXTERNAL_DATA_FOLDER_KEY, os.devnull)  # no digest covers files that a graph names
    options.add_session_config_entry(SHARED_MEMORY_KEY, "1")
    with graph_errors(f"{name}.onnx: rejected by ONNX Runtime"):
        session = ort.InferenceSession(
            content, options, providers=["CPUExecutionProvider"], disabled_optimizers=[CONSTANT_FOLDING]
        )
    input_names = [entry.name for entry in session.get_inputs()]
    actual, expected = (
        [(entry.name, entry.type) for entry in session.get_outputs()],
        [(n, OUTPUT_TYPE) for n in outputs],
    )
    if actual != expected:
        lists = (", ".join(f"{n} {kind}" for n, kind in entries) for entries in (actual, expected))
        raise CheckpointError("{}.onnx: has outputs {}, not {}: export it again".format(name, *lists))

    def run(*inputs: Tensor) -> Tensors:
        with graph_errors(f"{name}.onnx: cannot be run"):
            feeds = {
                name: np.ascontiguousarray(tensor.numpy()) for name, tensor in zip(input_names, inputs, strict=True)
            }
            return tuple(map(torch.from_numpy, run_session(session, feeds)))

    return run


@cache
def limit_memory() -> None:
    """Limit the memory of the graphs of this process; ONNX Runtime takes one limit only."""
    import onnxruntime as ort

    memory = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    max_bytes = max(MIN_GRAPH_BYTES, int(MAX_GRAPH_SHARE * free_memory_bytes()))
    ort.create_and_register_allocator(memory, ort.OrtArenaCfg({"max_mem": max_bytes}))


@contextmanager
def graph_errors(message: str) -> Iterator[None]:
    """Raise `CheckpointError` with a message and the reason for any error of ONNX Runtime."""
    try:
        yield
    except Exception as error:  # the exceptions of ONNX Runtime have no base class of their own
        raise CheckpointError(f"{message} ({' '.join(str(error).split())})") from None


def check_shapes(name: str, outputs: Tensors, *shapes: tuple[int, ...]) -> Tensors:
    """Return the outputs of a graph; `CheckpointError` unless they have these shapes."""
    actual = tuple(tuple(output.shape) for output in outputs)
    if actual != shapes:
        raise CheckpointError(f"{name}.onnx: computes arrays of shapes {actual}, not {shapes}: export it again")
    return outputs

"""`OnnxNet`: an exported `ProgressNet` that runs in ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.encoders import token_ids
from embodied_rm.models.heads import HeadOutputs
from embodied_rm.models.image_batch import ImageBatch
from embodied_rm.models.onnx_export import GRAPH_OUTPUTS
from embodied_rm.models.progress_net import NetConfig, ProgressNet

MAX_ROWS_PER_CALL = 64
"""Largest batch of one call: smaller batches add call overhead, larger ones exceed the CPU caches."""

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
        self._executor = ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="onnx")
        heads = OnnxHeads(self._graphs["heads"], self._graphs["success"], self._map_chunks)
        self.heads = heads  # type: ignore[assignment]
        self.eval()

    def to(self, device: Any) -> OnnxNet:  # type: ignore[override]
        """Return the net itself; `UserError` for any device but the CPU."""
        if torch.device(device).type != "cpu":
            raise UserError(f"an exported model runs on the CPU, not on {device}: use its source checkpoint")
        return self

    def _embed_text(self, sentences: Sequence[str]) -> Tensor:
        return self._graphs["text"](token_ids(self.config.encoder, sentences))[0]

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
            indices = chunk.indices(instruction.device)
            return self._graphs["embedding"](chunk.pixels().cpu(), *indices, instruction[rows], masked_views)

        return torch.cat([embedding for (embedding,) in self._map_chunks(embed_chunk, len(instruction))], dim=1)

    def _map_chunks(self, fn: Callable[[slice], Tensors], num_rows: int) -> list[Tensors]:
        """Apply `fn` to chunks of the rows, in parallel."""
        chunk_size = max(1, min(MAX_ROWS_PER_CALL, -(-num_rows // torch.get_num_threads())))
        starts = range(0, max(num_rows, 1), chunk_size)
        return list(self._executor.map(fn, (slice(i, min(i + chunk_size, num_rows)) for i in starts)))


class OnnxHeads:
    """The heads of an exported net, with the interface of `heads.Heads`."""

    def __init__(self, graph: GraphFn, success_graph: GraphFn, map_chunks: MapChunks) -> None:
        self._graph, self._success_graph, self._map_chunks = graph, success_graph, map_chunks

    def __call__(self, anchors: Tensor, current: Tensor) -> HeadOutputs:
        """As `Heads.forward`: anchors [A, N, width] and embeddings [N, width]."""
        chunks = self._map_chunks(lambda rows: self._graph(anchors[:, rows], current[rows]), len(current))
        hops, *others = zip(*chunks, strict=True)
        return HeadOutputs(torch.cat(hops, dim=1), *map(torch.cat, others))

    def success_logit(self, first: Tensor, current: Tensor) -> Tensor:
        """As `Heads.success_logit`: embeddings [..., width]."""
        (logit,) = self._success_graph(first.flatten(0, -2), current.flatten(0, -2))
        return logit.view(current.shape[:-1])


def load_graph(content: bytes, name: str, outputs: Sequence[str]) -> GraphFn:
    """Load a serialized graph, which must have these outputs, as a function of CPU tensors on the calling thread."""
    try:
        import onnxruntime as ort  # optional
    except ModuleNotFoundError as error:
        raise UserError("an exported model needs onnxruntime: pip install 'embodied-rm[onnx]'") from error
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except ort.capi.onnxruntime_pybind11_state.OnnxRuntimeException as error:
        raise CheckpointError(f"{name}.onnx: rejected by ONNX Runtime ({error})") from None
    input_names = [entry.name for entry in session.get_inputs()]
    output_names = [entry.name for entry in session.get_outputs()]
    if output_names != list(outputs):
        actual, expected = (", ".join(names) for names in (output_names, outputs))
        raise CheckpointError(f"{name}.onnx: has outputs {actual}, not {expected}: export it again")

    def run(*inputs: Tensor) -> Tensors:
        feeds = {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in zip(input_names, inputs, strict=True)}
        return tuple(map(torch.from_numpy, session.run(None, feeds)))

    return run

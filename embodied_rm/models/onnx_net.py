"""`OnnxNet`: an exported `ProgressNet`, which judges through ONNX Runtime on the CPU."""

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
"""Most environments that go through a graph at once: fewer cost calls, more no longer fit the caches."""

Tensors = tuple[Tensor, ...]
GraphFn = Callable[..., Tensors]
"""A graph as a function of tensors."""


class OnnxNet(ProgressNet):
    """The contract of `ProgressNet`, its numbers within 1e-4, no parameters: it can be neither trained nor moved.

    Parts of a batch run side by side, each on one thread: nothing waits for another between two operations.
    """

    def __init__(self, config: NetConfig, graphs: Mapping[str, bytes]) -> None:
        """`graphs`: those of `onnx_graphs.GRAPHS`. Raises `UserError` without ONNX Runtime, `CheckpointError` for a
        graph that it does not take."""
        nn.Module.__init__(self)
        self.config = config
        self._graphs = {name: load_graph(content, name, GRAPH_OUTPUTS[name]) for name, content in graphs.items()}
        self._executor = ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="onnx")
        self.heads = OnnxHeads(self._graphs["heads"], self._graphs["completion"], self._map_chunks)  # type: ignore[assignment]
        self.eval()

    def to(self, device: Any) -> OnnxNet:  # type: ignore[override]
        """Itself. Raises `UserError` for any device but the CPU."""
        if torch.device(device).type != "cpu":
            raise UserError(f"an exported model runs on the CPU, not on {device}: use the checkpoint it was made from")
        return self

    def _embed_text(self, sentences: Sequence[str]) -> Tensor:
        return self._graphs["read"](token_ids(self.config.encoder, sentences))[0]

    def _embed_images(self, images: ImageBatch, instruction: Tensor, masked_views: Tensor) -> Tensor:
        height, width = images.frames.shape[2:4]
        if (height, width) != tuple(self.config.encoder.image_size):
            raise UserError(
                f"an exported model takes images of its own size, {list(self.config.encoder.image_size)} (height, "
                f"width), got {[height, width]}: resize them, or use the checkpoint it was made from"
            )

        def embed_chunk(rows: slice) -> Tensors:
            chunk = images.select(rows)
            if not len(chunk):  # nobody shows anything: such states are never read
                return (instruction.new_zeros(len(masked_views), *instruction[rows].shape),)
            indices = chunk.indices(instruction.device)
            return self._graphs["state"](chunk.pixels().cpu(), *indices, instruction[rows], masked_views)

        return torch.cat([embedding for (embedding,) in self._map_chunks(embed_chunk, len(instruction))], dim=1)

    def _map_chunks(self, fn: Callable[[slice], Tensors], num_rows: int) -> list[Tensors]:
        """`part` of every few rows, side by side."""
        chunk_size = max(1, min(MAX_ROWS_PER_CALL, -(-num_rows // torch.get_num_threads())))
        return list(
            self._executor.map(
                fn, (slice(i, min(i + chunk_size, num_rows)) for i in range(0, max(num_rows, 1), chunk_size))
            )
        )


class OnnxHeads:
    """As `heads.Heads`."""

    def __init__(
        self,
        graph: GraphFn,
        success_graph: GraphFn,
        map_chunks: Callable[[Callable[[slice], Tensors], int], list[Tensors]],
    ) -> None:
        self._graph, self._success_graph, self._map_chunks = graph, success_graph, map_chunks

    def __call__(self, anchors: Tensor, current: Tensor) -> HeadOutputs:
        """Of anchors [A, N, width] and states [N, width]."""
        hops, *others = zip(
            *self._map_chunks(lambda rows: self._graph(anchors[:, rows], current[rows]), len(current)), strict=True
        )
        return HeadOutputs(torch.cat(hops, dim=1), *map(torch.cat, others))

    def success_logit(self, first: Tensor, current: Tensor) -> Tensor:
        """Of states [..., width]."""
        (logit,) = self._success_graph(first.flatten(0, -2), current.flatten(0, -2))
        return logit.view(current.shape[:-1])


def load_graph(content: bytes, name: str, outputs: Sequence[str]) -> GraphFn:
    """The graph as a function of tensors on the CPU, on the calling thread; `outputs`: what it must tell."""
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
        raise CheckpointError(f"{name}.onnx: not a graph that ONNX Runtime takes ({error})") from None
    input_names, output_names = (
        [entry.name for entry in entries] for entries in (session.get_inputs(), session.get_outputs())
    )
    if output_names != list(outputs):
        raise CheckpointError(
            f"{name}.onnx: tells {', '.join(output_names)}, not {', '.join(outputs)}: export it again"
        )

    def run(*inputs: Tensor) -> Tensors:
        feeds = {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in zip(input_names, inputs, strict=True)}
        return tuple(map(torch.from_numpy, session.run(None, feeds)))

    return run

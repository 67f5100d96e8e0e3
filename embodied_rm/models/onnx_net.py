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
from embodied_rm.models.heads import Said
from embodied_rm.models.onnx_graphs import GRAPHS
from embodied_rm.models.pictures import Pictures
from embodied_rm.models.progress_net import NetConfig, ProgressNet

ROWS = 64
"""Most environments that go through a graph at once: fewer cost calls, more no longer fit the caches."""

Tensors = tuple[Tensor, ...]
Graph = Callable[..., Tensors]
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
        self._graphs = {name: opened(content, name, GRAPHS[name]) for name, content in graphs.items()}
        self._threads = ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="onnx")
        self.heads = OnnxHeads(self._graphs["heads"], self._graphs["completion"], self._apart)  # type: ignore[assignment]
        self.eval()

    def to(self, device: Any) -> OnnxNet:  # type: ignore[override]
        """Itself. Raises `UserError` for any device but the CPU."""
        if torch.device(device).type != "cpu":
            raise UserError(f"an exported model runs on the CPU, not on {device}: use the checkpoint it was made from")
        return self

    def _vectors(self, sentences: Sequence[str]) -> Tensor:
        return self._graphs["read"](token_ids(self.config.encoder, sentences))[0]

    def _seen(self, pictures: Pictures, instruction: Tensor, hidden: Tensor) -> Tensor:
        height, width = pictures.frames.shape[2:4]
        if (height, width) != tuple(self.config.encoder.image_size):
            raise UserError(
                f"an exported model takes pictures of its own size, {list(self.config.encoder.image_size)} (height, "
                f"width), got {[height, width]}: resize them, or use the checkpoint it was made from"
            )

        def part(moments: slice) -> Tensors:
            mine = pictures.of(moments)
            if not len(mine):  # nobody shows anything: such states are never read
                return (instruction.new_zeros(len(hidden), *instruction[moments].shape),)
            indices = mine.indices(instruction.device)
            return self._graphs["state"](mine.pixels().cpu(), *indices, instruction[moments], hidden)

        return torch.cat([state for (state,) in self._apart(part, len(instruction))], dim=1)

    def _apart(self, part: Callable[[slice], Tensors], rows: int) -> list[Tensors]:
        """`part` of every few rows, side by side."""
        few = max(1, min(ROWS, -(-rows // torch.get_num_threads())))
        return list(self._threads.map(part, (slice(i, min(i + few, rows)) for i in range(0, max(rows, 1), few))))


class OnnxHeads:
    """As `heads.Heads`."""

    def __init__(
        self, graph: Graph, completion: Graph, apart: Callable[[Callable[[slice], Tensors], int], list[Tensors]]
    ) -> None:
        self._graph, self._completion, self._apart = graph, completion, apart

    def __call__(self, anchors: Tensor, now: Tensor) -> Said:
        """Of anchors [A, N, width] and states [N, width]."""
        hops, *others = zip(*self._apart(lambda rows: self._graph(anchors[:, rows], now[rows]), len(now)), strict=True)
        return Said(torch.cat(hops, dim=1), *map(torch.cat, others))

    def completion(self, first: Tensor, now: Tensor) -> Tensor:
        """Of states [..., width]."""
        (logit,) = self._completion(first.flatten(0, -2), now.flatten(0, -2))
        return logit.view(now.shape[:-1])


def opened(content: bytes, name: str, outputs: Sequence[str]) -> Graph:
    """The graph as a function of tensors on the CPU, on the calling thread; `outputs`: what it must tell."""
    try:
        import onnxruntime as ort  # optional
    except ModuleNotFoundError as fault:
        raise UserError("an exported model needs onnxruntime: pip install 'embodied-rm[onnx]'") from fault
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except ort.capi.onnxruntime_pybind11_state.OnnxRuntimeException as fault:
        raise CheckpointError(f"{name}.onnx: not a graph that ONNX Runtime takes ({fault})") from None
    names, told = ([entry.name for entry in entries] for entries in (session.get_inputs(), session.get_outputs()))
    if told != list(outputs):
        raise CheckpointError(f"{name}.onnx: tells {', '.join(told)}, not {', '.join(outputs)}: export it again")

    def run(*inputs: Tensor) -> Tensors:
        fed = {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in zip(names, inputs, strict=True)}
        return tuple(map(torch.from_numpy, session.run(None, fed)))

    return run

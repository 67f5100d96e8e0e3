"""View-frames per second of the frozen image encoder: in torch, ONNX Runtime and OpenVINO, and with 8-bit integers.

    pip install openvino  # optional: without it, the table has no rows of OpenVINO
    python benchmarks/encoder_speed.py

All encode the same 64 images uint8 [224, 224, 3] of a recording in turn, preprocessing included. OpenVINO runs the same
graphs. The table has the median of ten rounds, and the least and the mean cosine of a cell with that of torch.
"""

from __future__ import annotations

import threading
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.experiments.results_page import describe_machine
from embodied_rm.models.in_context.frozen_encoder import FrozenEncoder, RunFn
from embodied_rm.models.in_context.quantized_encoder import quantize_encoder

RECORDING = Path("../shared/data/real_bimanual/episode_001")
NUM_IMAGES, NUM_ROUNDS = 64, 10


def main() -> None:
    """Measure and print the table."""
    source = open_dataset(RECORDING)
    images = source.episode(0, size=(224, 224), stride=source.meta[0].length // NUM_IMAGES).views[source.views[0]]
    images = images[:NUM_IMAGES]
    fast = FrozenEncoder(use_onnx=True)
    quantized = quantize_encoder(fast, images)
    torch_name = "torch"
    encoders = {torch_name: FrozenEncoder(use_onnx=False), "ONNX Runtime": fast, "ONNX Runtime, int8": quantized}
    if find_spec("openvino") is not None:
        for name, encoder in (("OpenVINO", fast), ("OpenVINO, int8", quantized)):
            assert encoder.graph is not None
            encoders[name] = encoder.with_graph(encoder.graph, load_openvino(encoder.graph))
    cells = {name: encoder.encode(images) for name, encoder in encoders.items()}
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    for _ in range(NUM_ROUNDS):
        for name, encoder in encoders.items():
            start_s = time.perf_counter()
            encoder.encode(images)
            seconds[name].append(time.perf_counter() - start_s)
    table = Table("runtime", "view-frames per second", "mean cosine", "least cosine", title=describe_machine())
    for name, times in seconds.items():
        cosines = [(a * b).sum(dim=2) for a, b in zip(cells[name], cells[torch_name], strict=True)]
        mean = min(level.mean().item() for level in cosines)
        least = min(level.min().item() for level in cosines)
        table.add_row(name, f"{len(images) / float(np.median(times)):.0f}", f"{mean:.4f}", f"{least:.4f}")
    Console().print(table)


def load_openvino(graph: bytes) -> RunFn:
    """Load a serialized graph as a function of images, each call on its own thread, as `load_graph` does."""
    import openvino  # optional

    core = openvino.Core()
    model = core.compile_model(
        core.read_model(graph), "CPU", {"INFERENCE_NUM_THREADS": 2, "NUM_STREAMS": 2, "INFERENCE_PRECISION_HINT": "f32"}
    )
    local = threading.local()

    def run(images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if not hasattr(local, "request"):
            local.request = model.create_infer_request()
        results = local.request.infer([images.numpy()])
        return tuple(torch.from_numpy(results[output].copy()) for output in model.outputs)

    return run


if __name__ == "__main__":
    main()

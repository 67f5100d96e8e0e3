"""View-frames per second of the frozen image encoder, in torch and in ONNX Runtime, and how equal the two are.

    python benchmarks/encoder_speed.py

Both runtimes encode the same random images uint8 [64, 224, 224, 3] in turn, preprocessing included; the table has the
median of ten rounds, and the largest difference of a cell's unit vector.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from embodied_rm.experiments.results_page import describe_machine
from embodied_rm.models.in_context.frozen_encoder import FrozenEncoder

NUM_IMAGES, NUM_ROUNDS = 64, 10


def main() -> None:
    """Measure and print the table."""
    images = np.random.default_rng(0).integers(0, 256, (NUM_IMAGES, 224, 224, 3), np.uint8)
    encoders = {"torch": FrozenEncoder(use_onnx=False), "ONNX Runtime": FrozenEncoder(use_onnx=True)}
    cells = {name: encoder.encode(images) for name, encoder in encoders.items()}
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    for _ in range(NUM_ROUNDS):
        for name, encoder in encoders.items():
            start_s = time.perf_counter()
            encoder.encode(images)
            seconds[name].append(time.perf_counter() - start_s)
    difference = max((a - b).abs().max().item() for a, b in zip(*cells.values(), strict=True))
    table = Table("runtime", "view-frames per second", title=describe_machine())
    for name, times in seconds.items():
        table.add_row(name, f"{NUM_IMAGES / float(np.median(times)):.0f}")
    console = Console()
    console.print(table)
    console.print(f"largest difference {difference:.1e}; {torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()

"""How accuracy on real robots grows with the encoder and with the data: python benchmarks/real_curves.py

Trains the model of real robots over each EfficientNet-Lite, and over the smallest with fewer labs, and measures it on
the validation labs; a demonstration in context is measured with the nets of the same encoder. Writes
docs/results/real_curves.md. Takes two hours on two cores; interrupted, it resumes with the unfinished command.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from cli_process import run_once

from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.experiments.real_evaluation.pair_scores import MODEL
from embodied_rm.experiments.results_page import write_section
from embodied_rm.models.in_context.frozen_encoder import FrozenEncoder, open_frozen_encoder
from embodied_rm.models.pretrained_weights import EFFICIENTNET_LITE
from embodied_rm.report.markdown import format_metrics, markdown_table

PAGE = Path("docs/results/real_curves.md")
COMMAND = "python benchmarks/real_curves.py"
TITLE = "Encoders and data on real robots"
ENCODERS = [weights.name for weights in EFFICIENTNET_LITE]
LABS = ("lab_0", "lab_1", "lab_2", "lab_3")  # that are trained on; fewer of them are the first ones
NUM_COPIES = 2  # of each video; the bundled model has five
NUM_IMAGES, NUM_ROUNDS = 32, 5  # of the measurement of speed
ZERO_SHOT = ("order", "reversed", "whole above its own half", "right sentence above wrong")


def main() -> None:
    """Run the missing commands, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the sets")
    parser.add_argument("--out", type=Path, default=Path("runs/real_curves"), help="folder of the runs")
    args = parser.parse_args()
    rows = [
        data_row(labs, train(args.data, args.out, ENCODERS[0], labs))
        for labs in (LABS[:count] for count in range(1, 5))
    ]
    write_section(PAGE, f"{COMMAND}: data", data_section(rows), TITLE)
    rows = [encoder_row(args.data, args.out, name) for name in ENCODERS]
    write_section(PAGE, f"{COMMAND}: encoders", encoder_section(rows), TITLE)


def train(data: Path, out: Path, encoder: str, labs: tuple[str, ...]) -> Mapping[str, Any]:
    """Train over an encoder on labs, and return the metrics; all trainings of an encoder share its features."""
    folder = out / (encoder if labs == LABS else f"{encoder}_{len(labs)}_labs")
    return run(folder, "train", "real", f"data={data / 'droid'}", f"encoder={encoder}", f"num_copies={NUM_COPIES}",
               f"features_dir={out / 'features' / encoder}", f"labs.train=[{','.join(labs)}]")  # fmt: skip


def demonstrate(data: Path, out: Path, encoder: str) -> list[str]:
    """Measure a demonstration in context over an encoder, with the nets that were trained on it."""
    sets = [f"data={data}", f"encoder={encoder}", f"checkpoint={out / encoder}", "zero_shot_sets=[]"]
    return set_cells(run(out / f"{encoder}_demonstration", "evaluate", "real", *sets)["bench"]["sets"])


def run(folder: Path, *command: str) -> Mapping[str, Any]:
    """Run a command of embodied-rm into a folder unless it is finished, and return its metrics."""
    metrics: Mapping[str, Any] = json.loads((run_once(folder, command) / "metrics.json").read_text())
    return metrics


def encoder_cells(name: str, data: Path) -> tuple[str, str]:
    """Return the side of the encoder's images, in pixels, and the view-frames that it encodes per second."""
    encoder = open_frozen_encoder(name)
    source = open_dataset(data / "real_bimanual" / "episode_001")
    episode = source.episode(0, size=encoder.image_size, stride=source.meta[0].length // NUM_IMAGES)
    return f"{encoder.image_size[0]}", f"{speed(encoder, episode.views[source.views[0]][:NUM_IMAGES]):.0f}"


def speed(encoder: FrozenEncoder, images: np.ndarray) -> float:
    """Return the images per second, the median of several rounds."""
    seconds = []
    for _ in range(NUM_ROUNDS):
        start_s = time.perf_counter()
        encoder.encode(images)
        seconds.append(time.perf_counter() - start_s)
    return len(images) / median(seconds)


def set_cells(sets: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    """Return the results of a demonstration in context."""
    columns = {"real_bimanual": ("error",), "bridge_rollouts": ("order", "reversed", "success above failure"),
               "g1_bottle": ("order", "reversed")}  # fmt: skip
    return [cell for name, metrics in columns.items() for cell in format_metrics(sets[name][MODEL], metrics)]


def validation_cells(metrics: Mapping[str, Any]) -> list[str]:
    """Return the results on the validation labs."""
    return format_metrics(metrics["scores"]["validation"], ZERO_SHOT)


def data_row(labs: tuple[str, ...], metrics: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the row of a training on some labs."""
    return str(len(labs)), str(metrics["episodes"]["train"]), *validation_cells(metrics)


def encoder_row(data: Path, out: Path, name: str) -> tuple[str, ...]:
    """Return the row of an encoder: speed, a demonstration in context, and no demonstration."""
    model = train(data, out, name, LABS)
    return name, *encoder_cells(name, data), *demonstrate(data, out, name), *validation_cells(model)


def data_section(rows: list[tuple[str, ...]]) -> str:
    """Return the table of trainings on fewer labs."""
    return "\n".join([
        "## Data",
        "",
        f"`{COMMAND}`: `embodied-rm train real num_copies={NUM_COPIES}` over {ENCODERS[0]} on the first labs of "
        "`configs/labs/droid.yaml`, measured on its validation lab:",
        "",
        *markdown_table(("labs", "episodes", *ZERO_SHOT), rows),
    ])  # fmt: skip


def encoder_section(rows: list[tuple[str, ...]]) -> str:
    """Return both tables of encoders."""
    demonstration = ("bimanual, error", "Bridge, order", "reversed", "pairs", "G1, order", "reversed")
    speed_columns = ("encoder", "image side, pixels", "view-frames per second")
    return "\n".join([
        "## Encoders",
        "",
        f"`{COMMAND}`: a demonstration in context as in `embodied-rm evaluate real`, with nets that are trained over "
        f"the same encoder (`embodied-rm train real num_copies={NUM_COPIES}`):",
        "",
        *markdown_table((*speed_columns, *demonstration), [row[:9] for row in rows]),
        "",
        "The same nets without a demonstration, on the validation lab:",
        "",
        *markdown_table(("encoder", *ZERO_SHOT), [(row[0], *row[9:]) for row in rows]),
    ])  # fmt: skip


if __name__ == "__main__":
    main()

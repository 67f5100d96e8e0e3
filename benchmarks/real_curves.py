"""How accuracy on real robots grows with the encoder and with the data: python benchmarks/real_curves.py

Trains the model of real robots over each EfficientNet-Lite, and over the smallest with fewer labs, and measures it on
the validation labs; a demonstration in context is measured with the nets of the same encoder. Writes
docs/results/real_curves.md. Takes two hours on two cores. Finished cells are stored beside it, in real_curves.jsonl, so
that another machine goes on with the others; an interrupted cell resumes in its run folder.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from cli_process import run_once

from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.experiments.real_evaluation.pair_scores import MODEL
from embodied_rm.experiments.results_cache import ResultsCache, open_results_cache
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
    curves = Curves(args.data, args.out, open_results_cache(PAGE))
    rows = [curves.data_row(LABS[:count]) for count in range(1, len(LABS) + 1)]
    write_section(PAGE, f"{COMMAND}: data", data_section(rows), TITLE)
    rows = [curves.encoder_row(name) for name in ENCODERS]
    write_section(PAGE, f"{COMMAND}: encoders", encoder_section(rows), TITLE)


@dataclass(frozen=True)
class Curves:
    """The cells of both tables: each is a command of embodied-rm, run unless its result is stored."""

    data: Path
    out: Path
    cache: ResultsCache

    def data_row(self, labs: tuple[str, ...]) -> tuple[str, ...]:
        """Return the row of a training on some labs."""
        metrics = self.train(ENCODERS[0], labs)
        return str(len(labs)), str(metrics["episodes"]), *format_metrics(metrics["validation"], ZERO_SHOT)

    def encoder_row(self, encoder: str) -> tuple[str, ...]:
        """Return the row of an encoder: speed, a demonstration in context, and no demonstration."""
        validation = self.train(encoder, LABS)["validation"]
        return (
            encoder,
            *encoder_cells(encoder, self.data),
            *self.demonstrate(encoder),
            *format_metrics(validation, ZERO_SHOT),
        )

    def train(self, encoder: str, labs: tuple[str, ...]) -> Mapping[str, Any]:
        """Train over an encoder on labs; all trainings of an encoder share its features."""
        name = encoder if labs == LABS else f"{encoder}_{len(labs)}_labs"
        return self._cell(name, train_settings(encoder, labs), lambda: self._train_metrics(name, encoder, labs))

    def _train_metrics(self, name: str, encoder: str, labs: tuple[str, ...]) -> Mapping[str, Any]:
        paths = [f"data={self.data / 'droid'}", f"features_dir={self.out / 'features' / encoder}"]
        metrics = self._run(name, "train", "real", *train_settings(encoder, labs), *paths)
        return {"episodes": metrics["episodes"]["train"], "validation": metrics["scores"]["validation"]}

    def demonstrate(self, encoder: str) -> list[str]:
        """Measure a demonstration in context over an encoder, with the nets that were trained on it."""
        name, settings = f"{encoder}_demonstration", [f"encoder={encoder}", "zero_shot_sets=[]"]
        return set_cells(self._cell(name, settings, lambda: self._demonstration_metrics(encoder, name, settings)))

    def _demonstration_metrics(self, encoder: str, name: str, settings: list[str]) -> Mapping[str, Any]:
        self._train_metrics(encoder, encoder, LABS)  # unless its run folder is still there
        paths = [f"data={self.data}", f"checkpoint={self.out / encoder}"]
        sets = self._run(name, "evaluate", "real", *settings, *paths)["bench"]["sets"]
        return {name: metrics[MODEL] for name, metrics in sets.items()}

    def _cell(self, name: str, settings: list[str], measure: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        return self.cache.get_or_measure(name, {"command": settings}, self.out / "cells" / name, measure)

    def _run(self, name: str, *command: str) -> Mapping[str, Any]:
        """Run a command of embodied-rm into a folder unless it is finished, and return its metrics."""
        metrics: Mapping[str, Any] = json.loads((run_once(self.out / name, command) / "metrics.json").read_text())
        return metrics


def train_settings(encoder: str, labs: tuple[str, ...]) -> list[str]:
    """Return the settings of a training, without its paths."""
    return [f"encoder={encoder}", f"num_copies={NUM_COPIES}", f"labs.train=[{','.join(labs)}]"]


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


def set_cells(sets: Mapping[str, Any]) -> list[str]:
    """Return the results of a demonstration in context."""
    columns = {"real_bimanual": ("error",), "bridge_rollouts": ("order", "reversed", "success above failure"),
               "g1_bottle": ("order", "reversed")}  # fmt: skip
    return [cell for name, metrics in columns.items() for cell in format_metrics(sets[name], metrics)]


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

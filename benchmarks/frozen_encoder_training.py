"""Training speed with cached features of a frozen encoder: python benchmarks/frozen_encoder_training.py

A CLIP ViT-B/16 with random weights, as open_clip stores it, and episodes at 224x224. Training steps that encode the
images of every batch alternate with steps that read cached features. Writes docs/results/frozen_encoder_training.md.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from safetensors.torch import save_file

from embodied_rm.experiments.results_page import describe_machine
from embodied_rm.labels.labeled_episode import label
from embodied_rm.labels.schemes import select_schemes
from embodied_rm.models.feature_cache import FeatureCache
from embodied_rm.training import TrainConfig, make_net, prepare_batch
from embodied_rm.training.augment import AugmentConfig
from embodied_rm.training.batches import LabeledBatchSampler
from embodied_rm.training.forward import training_forward
from embodied_rm.training.objective import all_loss_terms, sum_loss_terms
from embodied_rm.training.train_state import TrainState
from embodied_rm.types import Episode, Subtask

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip (of which timm needs definitions)
import open_clip  # isort: skip

TOWER_NAME = "ViT-B-16"
VIEW_NAMES, NUM_FRAMES, NUM_EPISODES = ("front", "wrist"), 24, 4
TARGET_SPEEDUP = 20.0
"""Required speedup."""


def save_random_tower(folder: Path) -> str:
    """Save the tower with random weights as open_clip pushes it to a hub; return its name for `train`."""
    model_config = open_clip.get_model_config(TOWER_NAME)
    torch.manual_seed(0)
    model = open_clip.create_model(TOWER_NAME)
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model_config}))
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(tensors, folder / "open_clip_model.safetensors")
    return f"local-dir:{folder}"


def make_episodes() -> list[Episode]:
    """Return episodes of random images; the speed does not depend on their content."""
    rng = np.random.default_rng(0)
    return [
        Episode(
            name=f"episode_{i}",
            views={view: rng.integers(0, 256, (NUM_FRAMES, 224, 224, 3)).astype(np.uint8) for view in VIEW_NAMES},
            instruction=f"do thing {i}",
            fps=10.0,
            subtasks=(
                Subtask(name="reach", start=0, end=NUM_FRAMES // 2),
                Subtask(name="lift", start=NUM_FRAMES // 2, end=NUM_FRAMES),
            ),
            success=True,
        )
        for i in range(NUM_EPISODES)
    ]


def step_seconds(train_state: TrainState, batches: LabeledBatchSampler, config: TrainConfig) -> float:
    """Return the seconds of one training step, including the creation of the batch."""
    start = time.perf_counter()
    batch, images = prepare_batch(train_state.module.encoder, batches, config, train_state.steps)  # type: ignore[arg-type]
    outputs = training_forward(train_state.module, batch, images)  # type: ignore[arg-type]
    rng = np.random.default_rng(train_state.steps)
    loss = sum_loss_terms(all_loss_terms(outputs, batch, select_schemes(config.label_schemes), rng))
    train_state.update([loss], config.learning_rate)
    return time.perf_counter() - start


def measure(num_rounds: int, folder: Path) -> tuple[list[float], list[float], float]:
    """Return seconds per step without and with cached features, and seconds per cached image."""
    augment = AugmentConfig(shift=0.0, color_jitter=0.0, brightness_jitter=0.0)
    config = TrainConfig(
        encoder=save_random_tower(folder),
        train_encoder=False,
        train_text_encoder=False,
        image_size=(224, 224),
        augment=augment,
    )
    episodes_list = make_episodes()
    net = make_net(episodes_list, config).train()
    labeled = label(episodes_list)
    start = time.perf_counter()
    cache = FeatureCache(folder / "maps", net.encoder)
    cached_episodes = [replace(episode, views=cache.get_views(episode.views)) for episode in labeled]
    fill_s = (time.perf_counter() - start) / (NUM_EPISODES * NUM_FRAMES * len(VIEW_NAMES))
    train_state = TrainState(net, weight_decay=config.weight_decay)
    uncached_batches, cached_batches = (
        LabeledBatchSampler(labeled, VIEW_NAMES),
        LabeledBatchSampler(cached_episodes, VIEW_NAMES),
    )
    uncached_s, cached_s = [], []
    for _ in range(num_rounds):
        uncached_s.append(step_seconds(train_state, uncached_batches, config))
        cached_s.append(median(step_seconds(train_state, cached_batches, config) for _ in range(10)))
        logging.info("uncached %.2f s, cached %.3f s per step", uncached_s[-1], cached_s[-1])
    return uncached_s, cached_s, fill_s


def report(uncached_s: list[float], cached_s: list[float], fill_s: float) -> str:
    """Return the page for docs/results."""
    config, rounds = TrainConfig(), len(uncached_s)
    ratio = median(uncached / cached for uncached, cached in zip(uncached_s, cached_s, strict=True))
    return "\n".join(
        [
            "# Training on a frozen encoder",
            "",
            f"CLIP {TOWER_NAME} at 224x224, random weights, batches of {config.batch_size} episodes x "
            f"{config.frames_per_episode} frames x {len(VIEW_NAMES)} views; medians of {rounds} interleaved rounds. "
            f"{describe_machine()}.",
            "",
            f"    python benchmarks/frozen_encoder_training.py --rounds {rounds}",
            "",
            "| step without cache | step with cached features | speedup | target |",
            "|---|---|---|---|",
            f"| {median(uncached_s):.2f} s | {median(cached_s):.3f} s | {ratio:.0f} | {TARGET_SPEEDUP:g} |",
            "",
            f"Filling the cache took {fill_s:.2f} s an image, once.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of one step without and ten with cache")
    parser.add_argument(
        "--out", type=Path, default=Path("docs/results/frozen_encoder_training.md"), help="results page"
    )
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with tempfile.TemporaryDirectory() as folder:
        args.out.write_text(report(*measure(args.rounds, Path(folder))))


if __name__ == "__main__":
    main()

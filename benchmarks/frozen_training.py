"""What keeping a frozen tower's maps is worth in training: python benchmarks/frozen_training.py

A CLIP ViT-B/16 with random weights, as open_clip stores one; episodes of simulated tasks at 224x224. The same updates,
looking at the pictures of every batch and reading what was kept, in turn. Writes docs/results/frozen_training.md.
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

from embodied_rm.cli.benchmarks import machine
from embodied_rm.labels.batches import Batches
from embodied_rm.labels.labelled import label
from embodied_rm.labels.schemes import chosen
from embodied_rm.models.augment import AugmentConfig
from embodied_rm.models.learner import Learner
from embodied_rm.models.map_cache import MapCache
from embodied_rm.models.training_pass import training_pass
from embodied_rm.objective import objective
from embodied_rm.train import TrainConfig, new_net, prepared
from embodied_rm.types import Episode, Step

import open_clip  # isort: skip (torchvision needs what ours define first)

TOWER = "ViT-B-16"
VIEWS, LENGTH, EPISODES = ("front", "wrist"), 24, 4
ASKED = 20.0
"""How many times as many updates a second."""


def pretrained(folder: Path) -> str:
    """The tower as open_clip pushes it to a hub, with random weights; its name for `train`."""
    about = open_clip.get_model_config(TOWER)
    torch.manual_seed(0)
    model = open_clip.create_model(TOWER)
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": about}))
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(tensors, folder / "open_clip_model.safetensors")
    return f"local-dir:{folder}"


def episodes() -> list[Episode]:
    """Films that nothing is to be learned from: how fast it goes does not depend on what they show."""
    rng = np.random.default_rng(0)
    return [
        Episode(
            name=f"episode_{i}",
            views={view: rng.integers(0, 256, (LENGTH, 224, 224, 3)).astype(np.uint8) for view in VIEWS},
            instruction=f"do thing {i}",
            fps=10.0,
            steps=(Step(name="reach", start=0, end=LENGTH // 2), Step(name="lift", start=LENGTH // 2, end=LENGTH)),
            success=True,
        )
        for i in range(EPISODES)
    ]


def seconds(learner: Learner, batches: Batches, config: TrainConfig) -> float:
    """Of one update, the batch's making included."""
    started = time.perf_counter()
    batch, pictures = prepared(learner.module.encoder, batches, config, learner.updates)  # type: ignore[arg-type]
    outputs = training_pass(learner.module, batch, pictures)  # type: ignore[arg-type]
    rng = np.random.default_rng(learner.updates)
    learner.update([objective(outputs, batch, chosen(config.labels), rng)], config.learning_rate)
    return time.perf_counter() - started


def measured(rounds: int, folder: Path) -> tuple[list[float], list[float], float]:
    """Seconds of updates that look and of such that read, in turn, and of a picture put away."""
    still = AugmentConfig(shift=0.0, colour=0.0, flicker=0.0)
    config = TrainConfig(tower=pretrained(folder), train_tower=False, image_size=(224, 224), augment=still)
    known = episodes()
    net = new_net(known, config).train()
    labelled = label(known)
    started = time.perf_counter()
    cache = MapCache(folder / "maps", net.encoder)
    kept = [replace(episode, views=cache.of_all(episode.views)) for episode in labelled]
    filled = (time.perf_counter() - started) / (EPISODES * LENGTH * len(VIEWS))
    learner = Learner(net, weight_decay=config.weight_decay)
    looking, reading = Batches(labelled, VIEWS), Batches(kept, VIEWS)
    slow, fast = [], []
    for _ in range(rounds):
        slow.append(seconds(learner, looking, config))
        fast.append(median(seconds(learner, reading, config) for _ in range(10)))
        logging.info("looking %.2f s, reading %.3f s an update", slow[-1], fast[-1])
    return slow, fast, filled


def report(slow: list[float], fast: list[float], filled: float) -> str:
    """The page for docs/results."""
    config, rounds = TrainConfig(), len(slow)
    ratio = median(one / other for one, other in zip(slow, fast, strict=True))
    return "\n".join(
        [
            "# Training on a frozen tower",
            "",
            f"CLIP {TOWER} at 224x224, random weights, batches of {config.batch} episodes x {config.moments} moments x "
            f"{len(VIEWS)} views; medians of {rounds} rounds in turn. {machine()}.",
            "",
            f"    python benchmarks/frozen_training.py --rounds {rounds}",
            "",
            "| an update that looks at its pictures | that reads what was kept | times as fast | asked |",
            "|---|---|---|---|",
            f"| {median(slow):.2f} s | {median(fast):.3f} s | {ratio:.0f} | {ASKED:g} |",
            "",
            f"Filling the cache took {filled:.2f} s a picture, once.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds; each is one update that looks and ten that read")
    parser.add_argument("--out", type=Path, default=Path("docs/results/frozen_training.md"), help="the page")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with tempfile.TemporaryDirectory() as folder:
        args.out.write_text(report(*measured(args.rounds, Path(folder))))


if __name__ == "__main__":
    main()

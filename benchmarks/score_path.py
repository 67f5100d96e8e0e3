"""Length of the path from a frame to its reward: python benchmarks/score_path.py

Counts the files and functions of embodied_rm that are entered after a warm-up, each once: by `model.score` on frames,
and by what `embodied-rm score` does with a folder of one clip: open, decode, score, write, without plots and videos.
Child processes, such as the decoder, are not counted.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np

import embodied_rm
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.video.files import write_video
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.score import ScoreConfig, score

PACKAGE_DIR = Path(embodied_rm.__file__).parent
MAX_FILES, MAX_FUNCTIONS = 20, 40
NUM_FRAMES, IMAGE_SIDE_PX, FPS = 8, 64, 10.0
INSTRUCTION = "open the drawer"

Function = tuple[str, str]
"""(file, qualified name) of a function of the package."""


def find_entered_functions(call: Callable[[], object]) -> set[Function]:
    """Return the functions that a call enters, in any thread; a nested function counts as the one around it."""
    entered: set[Function] = set()

    def record(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE_DIR):
            entered.add((str(path.relative_to(PACKAGE_DIR)), frame.f_code.co_qualname.split(".<locals>")[0]))

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return entered


def log_counts(title: str, entered: set[Function]) -> None:
    """Print the counts with their limits, and the functions of each file."""
    files = sorted({file for file, _ in entered})
    logging.info(
        "%s: %d files (at most %d), %d functions (at most %d)",
        *(title, len(files), MAX_FILES, len(entered), MAX_FUNCTIONS),
    )
    for file in files:
        logging.info("  %s: %s", file, ", ".join(sorted(name for path, name in entered if path == file)))


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    model = embodied_rm.load_reward_model()
    view = (model.input_spec.views or ("front",))[0]
    shape = (NUM_FRAMES, IMAGE_SIDE_PX, IMAGE_SIDE_PX, 3)
    frames = np.random.default_rng(0).integers(0, 255, shape, np.uint8)
    model.score(frames, INSTRUCTION)
    log_counts("model.score(frames, instruction)", find_entered_functions(lambda: model.score(frames, INSTRUCTION)))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        clip_dir = folder / "clip"
        clip_dir.mkdir()
        write_video(clip_dir / f"{view}.mp4", frames, FPS)

        def score_clip(out: str) -> None:
            config, run = ScoreConfig(plots=False, videos=False), RunFolder.open(folder / out)
            score(model.net, open_dataset(clip_dir, INSTRUCTION), config, run, NullReporter())

        score_clip("warmup")
        log_counts("scoring of a folder of one clip", find_entered_functions(lambda: score_clip("out")))


if __name__ == "__main__":
    main()

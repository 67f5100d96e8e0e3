"""Length of the path from a stored video to its progress: python benchmarks/score_path.py

Counts the files and functions of embodied_rm that frames pass: a function counts if one of its arguments holds an array
or tensor. Measured on `open_dataset` of an mp4 and `model.score` of its episode. The child process that decodes is not
counted.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import numpy as np
import torch

import embodied_rm
from embodied_rm.data.video.files import write_video

PACKAGE_DIR = Path(embodied_rm.__file__).parent
MAX_FILES, MAX_FUNCTIONS = 20, 40
MIN_ARRAY_SIZE = 8  # entries; smaller arrays are shapes and times
NUM_FRAMES, IMAGE_SIDE_PX, FPS = 8, 64, 10.0
INSTRUCTION = "open the drawer"

Function = tuple[str, str]
"""(file, qualified name) of a function of the package."""


def holds_array(value: object, depth: int = 0) -> bool:
    """Whether a value is an array or tensor, or a container or dataclass with one, up to two levels deep."""
    if isinstance(value, np.ndarray):
        return value.size >= MIN_ARRAY_SIZE
    if isinstance(value, torch.Tensor):
        return value.numel() >= MIN_ARRAY_SIZE
    if depth > 2 or isinstance(value, torch.nn.Module):
        return False
    if isinstance(value, dict):
        return any(holds_array(item, depth + 1) for item in value.values())
    if isinstance(value, list | tuple):
        return any(holds_array(item, depth + 1) for item in value)
    if dataclasses.is_dataclass(value):
        return any(holds_array(getattr(value, item.name), depth + 1) for item in dataclasses.fields(value))
    return False


def find_functions(call: Callable[[], object]) -> list[Function]:
    """Return the functions that frames pass in a call, in order; a nested function counts as the one around it."""
    passed: dict[Function, None] = {}

    def record(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event != "call" or not path.is_relative_to(PACKAGE_DIR):
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if any(holds_array(frame.f_locals.get(name)) for name in names if name != "self"):
            passed.setdefault((str(path.relative_to(PACKAGE_DIR)), code.co_qualname.split(".<locals>")[0]))

    sys.setprofile(record)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(passed)


def find_score_path() -> list[Function]:
    """Return the functions that frames pass from an mp4 to the progress of the bundled model."""
    model = embodied_rm.load_reward_model()
    view = (model.input_spec.views or ("front",))[0]
    shape = (NUM_FRAMES, IMAGE_SIDE_PX, IMAGE_SIDE_PX, 3)
    frames = np.random.default_rng(0).integers(0, 255, shape, np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        write_video(Path(folder) / f"{view}.mp4", frames, FPS)

        def score_video() -> None:
            (episode,) = embodied_rm.open_dataset(folder, instruction=INSTRUCTION)
            model.score(episode.views, episode.instruction)

        score_video()
        return find_functions(score_video)


def count_files(functions: Sequence[Function]) -> int:
    return len({file for file, _ in functions})


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    functions = find_score_path()
    for file, name in functions:
        logging.info("%s: %s", file, name)
    logging.info("%d files, at most %d", count_files(functions), MAX_FILES)
    logging.info("%d functions, at most %d", len(functions), MAX_FUNCTIONS)


if __name__ == "__main__":
    main()

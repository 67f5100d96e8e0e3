"""Frames from a caller as an episode, and a model's output for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embodied_rm.client.shaping import update_success_streak
from embodied_rm.errors import UserError
from embodied_rm.types import BoolArray, Episode, RewardOutput

CLIP_FPS = 1.0
"""Frame rate of an array of frames. No model uses it."""
FrameInput = npt.ArrayLike | Mapping[str, npt.ArrayLike]


@dataclass(frozen=True, kw_only=True)
class ClipOutput(RewardOutput):
    """The output for the T frames of a clip: the arrays of `RewardOutput` over T, and whether the task is done."""

    done: BoolArray
    """bool [T]: whether the success probability has reached the threshold in enough consecutive frames."""


def clip_episode(frames: FrameInput, instruction: str, known_views: Sequence[str] | None) -> Episode:
    """Make an episode of frames, uint8 [T, H, W, 3] or a view name -> such an array, after checks by `UserError`.

    The first of `known_views` is the name of an array without one; None: the model knows any view.
    """
    if not isinstance(instruction, str) or not instruction.strip():
        raise UserError(f"instruction must be a sentence, got {instruction!r}")
    if not isinstance(frames, Mapping):
        frames = {known_views[0] if known_views else "view": frames}
    if not frames:
        raise UserError("frames must hold at least one view, got none")
    unknown = [name for name in frames if known_views is not None and name not in known_views]
    if unknown:
        raise UserError(
            f"the model knows the views {', '.join(known_views or ())}, got {', '.join(map(str, frames))}: name your "
            "cameras as the model does, or train a model on your own with embodied_rm.train"
        )
    views = {}
    for name, array in frames.items():
        try:
            video = views[name] = np.asarray(array)
        except ValueError:
            raise UserError(f"frames of view {name!r} must have one size, got images of several") from None
        if video.dtype != np.uint8 or video.ndim != 4 or 0 in video.shape or video.shape[3] != 3:
            got = f"{video.dtype} {list(video.shape)}"
            raise UserError(f"frames of view {name!r} must be uint8 [T, H, W, 3] with T, H, W >= 1, got {got}")
    return Episode(name="clip", views=views, instruction=instruction, fps=CLIP_FPS)


def done_frames(output: RewardOutput, threshold: float, patience: int) -> BoolArray:
    """Return bool [T]: whether success was predicted in `patience` consecutive frames, now or before.

    The rule is that of `EpisodeReward`, which ends the episodes of a training.
    """
    streak, reached = np.zeros(1, np.int64), np.zeros(len(output), np.bool_)
    predicted = (output.success >= threshold)[:, None]
    for t, valid in enumerate(output.valid[:, None]):
        streak = update_success_streak(streak, predicted[t], valid)
        reached[t] = streak[0] >= patience
    return np.logical_or.accumulate(reached)

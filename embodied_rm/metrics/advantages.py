"""Advantages of recorded frames from progress as a value (RECAP, arXiv 2511.14759)."""

import numpy as np
import numpy.typing as npt

from embodied_rm.types import Array


def progress_advantage(progress: npt.ArrayLike, horizon: int, task_frames: float) -> Array:
    """Return by how much the progress of the next frames exceeds that of an episode of usual length.

    In RECAP, a step has reward -1 / (frames of the task), and the value is in [-1, 0]. With the value progress - 1, the
    advantage over n steps is progress[t + n] - progress[t] - n / task_frames.

    Args:
        progress: [T] in [0, 1]; nan where a frame was not scored.
        horizon: Frames n of the comparison, at least 1; fewer at the end of the episode.
        task_frames: Usual number of frames of the task, > 0.

    Returns:
        float32 [T]; 0 at the last frame, nan where one of both frames was not scored.
    """
    values = np.asarray(progress, np.float32)
    frames = np.arange(len(values))
    later = np.minimum(frames + horizon, len(values) - 1)
    return (values[later] - values - (later - frames) / task_frames).astype(np.float32)

"""True progress, and the relative hop between two frames (Robo-Dopamine, arXiv 2512.23703).

Progress counts finished subtasks. A hop is a fraction of the remaining progress (gain) or of the gained one (loss).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from embodied_rm.labels.subtasks import subtask_indices, subtask_orders, task_of
from embodied_rm.labels.targets import Targets, targets_with_known_success
from embodied_rm.labels.true_progress import label_true_progress, require_true_progress
from embodied_rm.types import Array, Episode


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """Return the targets per episode; `DataError` if the true progress of every one is unknown."""
    require_true_progress(episodes, "hops")
    return ground_truth(episodes)


def ground_truth(episodes: Sequence[Episode]) -> list[Targets]:
    """Return all that is known per episode: subtasks, and true progress or the outcome."""
    orders = subtask_orders(episodes)
    subtasks = [subtask_indices(episode, orders.get(task_of(episode), ())) for episode in episodes]
    return label_true_progress(episodes, targets_with_known_success, subtasks)


def hop(p: npt.ArrayLike, q: npt.ArrayLike) -> Array:
    """Return the relative hop, float32 in [-1, 1], between progress p and q in [0, 1]; `apply_hop` inverts it.

    The hop is (q - p) / (1 - p) forwards and (q - p) / p backwards (equation 3 with a start of 0). It is 0 if nothing
    is left to gain or lose.
    """
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    change = q - p
    remaining = np.where(change >= 0, 1 - p, p)
    fraction = np.divide(change, remaining, out=np.zeros_like(remaining), where=remaining > 0)
    return np.clip(fraction, -1, 1).astype(np.float32)

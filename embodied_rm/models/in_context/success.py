"""Success is the end state, reached on the way: has this video changed the scene as the demonstration did?"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

END_DISTANCE = 0.9
"""Distance to the end of the demonstration, in mean distances of two keyframes, at which the end is as likely as not.
"""
DISTANCE_SLOPE = 3.0  # log odds per such distance
RATIO_SLOPE = 3.0  # log odds per e-fold by which the end is nearer than the start
FULL_COVERAGE = 0.45
"""Ordered coverage from which the way counts as walked: a quarter of all successes on real robots cover less than 0.36
of another robot's demonstration, reversed ones 0.11 at the median."""
NEVER = 0.0


class EndEvidence(NamedTuple):
    """What the frames of N videos say about the end of one demonstration."""

    to_start: Tensor  # distance of the cells that the demonstration changed to its start, float [N]
    to_end: Tensor  # distance to its end, float [N]
    coverage: Tensor  # ordered coverage of the demonstration, float [N] in [0, 1]


def success_score(evidence: EndEvidence) -> Tensor:
    """Probability that the scene is as at the end of the demonstration, and was brought there, float [N].

    The first factor is the end state: near the end, and nearer than to the start. The second one is the way: a video
    that shows the end from its first frame on, or runs backward, has not done the task. `DemonstrationModel` multiplies
    both by the progress: a cube that is grasped looks lifted to the camera at the wrist.
    """
    nearer = (evidence.to_start.clamp_min(1e-6) / evidence.to_end.clamp_min(1e-6)).log()
    at_end = torch.sigmoid(DISTANCE_SLOPE * (END_DISTANCE - evidence.to_end) + RATIO_SLOPE * nearer)
    return at_end * (evidence.coverage / FULL_COVERAGE).clamp(max=1)

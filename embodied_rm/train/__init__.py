"""Train a reward model on labelled episodes: its configuration, what it refuses, its updates, and the whole of it."""

from embodied_rm.train.config import TrainConfig
from embodied_rm.train.fitting import UNFINISHED, fit, new_net, passes
from embodied_rm.train.refusals import refuse_looks
from embodied_rm.train.run import CHECKPOINT, train
from embodied_rm.train.updates import prepared, schedule

__all__ = [
    "CHECKPOINT",
    "UNFINISHED",
    "TrainConfig",
    "fit",
    "new_net",
    "passes",
    "prepared",
    "refuse_looks",
    "schedule",
    "train",
]

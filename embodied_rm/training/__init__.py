"""Training of reward models on labeled episodes."""

from embodied_rm.training.fitting import TRAIN_STATE_DIR, Execution, check_streamable, fit, make_net
from embodied_rm.training.held_out import HeldOut, HeldOutConfig
from embodied_rm.training.loop import prepare_batch
from embodied_rm.training.run_training import CHECKPOINT_DIR, HELD_OUT_FILE, train
from embodied_rm.training.train_config import TrainConfig

__all__ = [
    "CHECKPOINT_DIR",
    "HELD_OUT_FILE",
    "TRAIN_STATE_DIR",
    "Execution",
    "HeldOut",
    "HeldOutConfig",
    "TrainConfig",
    "check_streamable",
    "fit",
    "make_net",
    "prepare_batch",
    "train",
]

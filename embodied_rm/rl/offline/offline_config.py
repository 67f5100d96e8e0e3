"""Settings of offline learning."""

from dataclasses import dataclass
from typing import Literal

from embodied_rm.errors import UserError, check_minimum

OFFLINE_METHODS = ("iql", "cql", "famo2o")


@dataclass(frozen=True, kw_only=True)
class OfflineConfig:
    """Offline reinforcement learning from recorded transitions."""

    method: Literal["iql", "cql", "famo2o"] = "iql"
    """Implicit Q-learning (arXiv 2110.06169), conservative Q-learning (arXiv 2006.04779), or a family of policies of
    implicit Q-learning (arXiv 2310.17966)."""
    steps: int = 2000
    batch_size: int = 256
    learning_rate: float = 3e-4
    hidden_sizes: tuple[int, ...] = (128, 128)  # of the policy
    critic_hidden_sizes: tuple[int, ...] = (128, 128)
    num_critics: int = 2  # Q-functions; targets are their minimum
    gamma: float = 0.98
    target_update_rate: float = 0.005
    expectile: float = 0.7  # of `iql` and `famo2o`: 1/2 values the recorded policy, 1 the best recorded actions
    inverse_temperature: float = 6.0  # of `iql` and `famo2o`: 0 clones, more prefers large advantages
    max_weight: float = 100.0  # of `iql` and `famo2o`: largest weight of an action
    conservative_coef: float = 1.0  # of `cql`: weight of the penalty on values of actions that were not recorded
    num_sampled_actions: int = 4  # of `cql`: actions per state, of each kind, that the penalty compares with
    bc_share: float = 0.2  # of `cql`: share of the steps that clone, before the policy maximizes the values
    validation_share: float = 0.1  # share of the episodes that only measures the error of the critics
    log_std_init: float = -1.0
    """Log standard deviation of the exploration noise, for refinement; offline learning fits only the mean."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in OFFLINE_METHODS:
            raise UserError(f"method must be one of {', '.join(OFFLINE_METHODS)}, got {self.method!r}")
        check_minimum(self, 1, "steps", "batch_size", "num_critics", "num_sampled_actions")
        check_minimum(self, 0, "inverse_temperature", "conservative_coef")
        for name in ("gamma", "target_update_rate"):
            if not 0 < getattr(self, name) <= 1:
                raise UserError(f"{name} must be in (0, 1], got {getattr(self, name)}")
        for name in ("expectile", "validation_share"):
            if not 0 < getattr(self, name) < 1:
                raise UserError(f"{name} must be in (0, 1), got {getattr(self, name)}")
        if not 0 <= self.bc_share <= 1:
            raise UserError(f"bc_share must be in [0, 1], got {self.bc_share}")
        for name in ("learning_rate", "max_weight"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be > 0, got {getattr(self, name)}")

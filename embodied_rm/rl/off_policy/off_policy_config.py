"""Settings of refinements that learn from recorded transitions too."""

from dataclasses import dataclass

from embodied_rm.errors import UserError, check_minimum


@dataclass(frozen=True, kw_only=True)
class RLPDConfig:
    """Reinforcement learning with prior data (arXiv 2302.02948)."""

    updates_per_step: float = 2.0  # updates of the critics per environment step
    pretraining_updates: int = 5000
    """Updates of the critics after the first rollout, before the policy is trained: while values still rise, their
    order is wrong, and the policy would follow it."""
    batch_size: int = 256
    recorded_share: float = 0.5  # share of recorded transitions in a batch; the others are from the replay buffer
    learning_rate: float = 3e-4
    critic_hidden_sizes: tuple[int, ...] = (128, 128)
    num_critics: int = 6  # Q-functions
    num_min_critics: int | None = None
    """Q-functions, drawn for each batch, whose minimum is in its targets; None: all. Each step of an episode takes the
    minimum anew: with all of them, little of the value of a success reaches the start of a long episode."""
    target_update_rate: float = 0.005
    pessimism: float = 1.0
    """Standard deviations over the Q-functions that the policy subtracts from their mean: it avoids actions on which
    they disagree."""
    policy_delay: int = 2  # updates of the critics per update of the policy
    target_noise: float = 0.1  # standard deviation of the noise of the next action in targets (TD3, arXiv 1802.09477)
    bc_kl_coef: float = 0.05
    """Weight of the KL divergence (nats) from the reference policy, against values; constant. Without it, the first
    updates lose the imitated policy."""
    reference_update_rate: float = 0.001
    """Share by which the reference policy, at first the imitated one, follows the policy at each update of it: the
    policy may go far, but not fast. 0: the reference stays the imitated policy."""
    smoothness_coef: float = 0.0
    """Weight of the largest change of values and policy between a state and `SMOOTHNESS_SAMPLES` near it (RO2O, arXiv
    2309.16973); 0: none."""
    smoothness_radius: float = 0.01  # largest distance of these states along each axis, in standard deviations
    dynamics_gap_coef: float = 0.0
    """Weight of the penalty on values of transitions where the simulator and the world of the recordings differ (H2O,
    arXiv 2206.13464), whose own Bellman error then counts less; 0: both are one world."""
    buffer_capacity: int = 100_000  # transitions of the replay buffer

    def __post_init__(self) -> None:
        check_minimum(self, 1, "batch_size", "num_critics", "policy_delay", "buffer_capacity")
        check_minimum(self, 0, "pessimism", "target_noise", "bc_kl_coef", "pretraining_updates")
        check_minimum(self, 0, "smoothness_coef", "smoothness_radius", "dynamics_gap_coef")
        if self.num_min_critics is not None and not 1 <= self.num_min_critics <= self.num_critics:
            raise UserError(f"num_min_critics must be 1 to num_critics={self.num_critics}, got {self.num_min_critics}")
        if self.dynamics_gap_coef and not 0 < round(self.recorded_share * self.batch_size) < self.batch_size:
            raise UserError(
                f"dynamics_gap_coef={self.dynamics_gap_coef:g} compares recorded and new transitions: recorded_share="
                f"{self.recorded_share:g} of batch_size={self.batch_size} must leave some of both"
            )
        if min(self.critic_hidden_sizes, default=0) < 1:
            raise UserError(f"critic_hidden_sizes must be >= 1, got {list(self.critic_hidden_sizes)}")
        for name in ("updates_per_step", "learning_rate"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be > 0, got {getattr(self, name)}")
        for name, low_allowed in (
            ("recorded_share", True),
            ("reference_update_rate", True),
            ("target_update_rate", False),
        ):
            value = getattr(self, name)
            if not (0 <= value <= 1 and (low_allowed or value)):
                raise UserError(f"{name} must be in {'[' if low_allowed else '('}0, 1], got {value}")


@dataclass(frozen=True, kw_only=True)
class HNPGConfig:
    """Hybrid natural policy gradient (arXiv 2311.08384), with PPO as the policy gradient."""

    recorded_coef: float = 1.0
    """Weight of the recorded states in the loss of the critic, each against one state of the rollout."""
    updates: int = 200  # updates of the Q-functions per iteration, 256 transitions each
    learning_rate: float = 1e-3  # learning rate of the Q-functions

    def __post_init__(self) -> None:
        check_minimum(self, 1, "updates")
        for name in ("recorded_coef", "learning_rate"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be > 0, got {getattr(self, name)}")
